"""What reads and writes came to, counted for all instances: an item for each day, which instances add to now and then.

Each stay in a phase is counted by itself: what went wrong before somebody went back and mended it is over.

In memory in between: a process that is killed loses some seconds of counting, never anything that was counted for.
"""

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final, Literal

from holdfast.jobs.migration.bounded import Bounded
from holdfast.jobs.writing import together
from holdfast.kernel.errors import HoldfastError, StoreUnavailable
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.store import Key, Store, attr
from holdfast.ports.store.tables import STATE

KEPT_SECONDS: Final = 30 * 86_400
EVERY_SECONDS: Final = 10.0
FLUSH_SECONDS: Final = 0.5
_log = logging.getLogger(__name__)

Side = Literal["store", "s3"]
Call = Literal["read", "write"]
Outcome = Literal["hit", "fallback", "stood_in", "miss", "ok", "failed"]


@dataclass(frozen=True, slots=True)
class Told:
    """One read or write of one side, in one stay in a phase: the number of moves that led there.

    `ok` and `failed` are of writes; a read may fail, too. `fallback`: S3 had the job, and the tables had not;
    `stood_in`: S3 had it, and the tables did not answer.
    """

    stay: int
    call: Call
    side: Side
    outcome: Outcome
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.side}_{self.call}_{self.outcome}"


Tell = Callable[[Told], None]


def nobody(_told: Told) -> None:
    """Nobody counts."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Sums over some days."""

    counts: Counter[str]

    @property
    def hit_rate(self) -> float | None:
        """Of the reads that found a job, the share that found it in the tables. None: there were none."""
        hits = self.counts["store_read_hit"]
        found = hits + self.fallbacks + self.counts["s3_read_stood_in"]
        return hits / found if found else None

    @property
    def fallbacks(self) -> int:
        return self.counts["s3_read_fallback"]

    @property
    def error_rate(self) -> float | None:
        """Of the writes to the tables, the share that failed."""
        failed = self.counts["store_write_failed"]
        every = failed + self.counts["store_write_ok"]
        return failed / every if every else None

    def mean_ms(self, call: Call, side: Side) -> float | None:
        names = [f"{side}_{call}_{outcome}" for outcome in ("hit", "fallback", "stood_in", "miss", "ok")]
        every = sum(self.counts[name] for name in names)
        return self.counts[f"{side}_{call}_us"] / every / 1000 if every else None


def counted(store: Store, now: Instant, stay: int, days: int = 2) -> Counted:
    """The sums of this stay, of today and the days before it."""
    keys = [_key(stay, now.plus(-86_400 * back)) for back in range(days)]
    total: Counter[str] = Counter()
    for item in store.batch_get(STATE, keys):
        total.update({name: int(value) for name, value in (item or {}).items() if name not in ("pk", "expiresAt")})
    return Counted(total)


class Ledger:
    """Counts, and adds to the stored sums every few seconds, on the thread that happens to count then."""

    def __init__(self, store: Store, clock: Clock, told: Tell = nobody, flush_seconds: float = FLUSH_SECONDS) -> None:
        self._store = store
        self._bounded = Bounded(flush_seconds, 1, "figures")
        self._clock = clock
        self._told = told
        self._pending: Counter[tuple[int, str]] = Counter()
        self._due = clock.monotonic_seconds() + EVERY_SECONDS
        self._lock = Lock()

    def __call__(self, told: Told) -> None:
        self._told(told)
        with self._lock:
            self._pending[told.stay, told.name] += 1
            if told.outcome != "failed":
                self._pending[told.stay, f"{told.side}_{told.call}_us"] += round(told.seconds * 1e6)
            seconds = self._clock.monotonic_seconds()
            if seconds < self._due:
                return
            self._due = seconds + EVERY_SECONDS  # whether or not it can be added: the others do not try meanwhile
        with suppress(StoreUnavailable):  # it goes on by itself: no webhook waits for figures
            self._bounded(self.flush)

    def close(self) -> None:
        """Add what is pending, if the store answers soon: the end of a process does not wait long for figures."""
        with suppress(StoreUnavailable):
            self._bounded(self.flush)

    def flush(self) -> None:
        """Add what is pending. What cannot be added now is added later."""
        with self._lock:
            pending, self._pending = self._pending, Counter()
        now = self._clock.now()
        for stay in sorted({stay for stay, _ in pending}):
            sums = [attr(name).plus(number) for (of, name), number in pending.items() if of == stay and number]
            expiry = attr("expiresAt").set_if_absent(now.epoch_seconds + KEPT_SECONDS)
            try:
                self._store.update(STATE, _key(stay, now), together([*sums, expiry]))
            except HoldfastError as error:
                _log.warning("figures of the migration could not be stored now: %s", error)
                with self._lock:
                    self._pending.update({of: number for of, number in pending.items() if of[0] == stay})


def _key(stay: int, day: Instant) -> Key:
    return Key(f"migration#counts#{stay}#{day.date()}")
