"""Counts of reads and writes during the migration, over all instances: one item per day, updated every few seconds.

Each stay in a phase has its own counts, so that failures before a step back do not count after it.

Between updates the counts are in memory: a process that is killed loses some seconds of counts, but no data. A read
that found its job only in S3 is stored at once, because it blocks the next phase.
"""

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final, Literal

from holdfast.jobs.intake.item_writes import combined
from holdfast.jobs.migration.store_timeout import StoreTimeout
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
class StorageCall:
    """One read or write of S3 or the tables. `stay` identifies the stay in a phase: the number of moves so far.

    Outcomes of writes: `ok`, `failed`. Of reads: `hit`, `miss`, `failed`; `fallback`: S3 had the job, the tables did
    not; `stood_in`: S3 had the job, the tables did not respond.
    """

    stay: int
    call: Call
    side: Side
    outcome: Outcome
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.side}_{self.call}_{self.outcome}"


ReportCall = Callable[[StorageCall], None]


def discard(_call: StorageCall) -> None:
    """Counts nothing."""


@dataclass(frozen=True, slots=True)
class CallTotals:
    """Sums over several days."""

    counts: Counter[str]

    @property
    def hit_rate(self) -> float | None:
        """The share of successful reads that found the job in the tables. None: no reads."""
        hits = self.counts["store_read_hit"]
        found = hits + self.fallbacks + self.counts["s3_read_stood_in"]
        return hits / found if found else None

    @property
    def fallbacks(self) -> int:
        return self.counts["s3_read_fallback"]

    @property
    def error_rate(self) -> float | None:
        """The share of writes to the tables that failed. None: no writes."""
        failed = self.counts["store_write_failed"]
        every = failed + self.counts["store_write_ok"]
        return failed / every if every else None

    def mean_ms(self, call: Call, side: Side) -> float | None:
        names = [f"{side}_{call}_{outcome}" for outcome in ("hit", "fallback", "stood_in", "miss", "ok")]
        every = sum(self.counts[name] for name in names)
        return self.counts[f"{side}_{call}_us"] / every / 1000 if every else None


def call_totals(store: Store, now: Instant, stay: int, days: int = 2) -> CallTotals:
    """The sums of this stay, over the last `days` days."""
    keys = [_key(stay, now.plus(-86_400 * back)) for back in range(days)]
    total: Counter[str] = Counter()
    for item in store.batch_get(STATE, keys):
        total.update({name: int(value) for name, value in (item or {}).items() if name not in ("pk", "expiresAt")})
    return CallTotals(total)


class DailyCounts:
    """Counts calls, and adds them to the stored sums every few seconds, on the thread of the call that is due."""

    def __init__(
        self, store: Store, clock: Clock, report: ReportCall = discard, flush_seconds: float = FLUSH_SECONDS
    ) -> None:
        self._store = store
        self._with_timeout = StoreTimeout(flush_seconds, 1, "migration-counts")
        self._clock = clock
        self._report = report
        self._pending: Counter[tuple[int, str]] = Counter()
        self._due = clock.monotonic_seconds() + EVERY_SECONDS
        self._lock = Lock()

    def __call__(self, call: StorageCall) -> None:
        self._report(call)
        with self._lock:
            self._pending[call.stay, call.name] += 1
            if call.outcome != "failed":
                self._pending[call.stay, f"{call.side}_{call.call}_us"] += round(call.seconds * 1e6)
            seconds = self._clock.monotonic_seconds()
            # A fallback is stored at once: it is rare, it blocks the next phase, and no other call may follow it.
            if seconds < self._due and call.outcome != "fallback":
                return
            self._due = seconds + EVERY_SECONDS  # even if the write fails: other threads do not try meanwhile
        with suppress(StoreUnavailable):  # it continues in the background: no webhook waits for counts
            self._with_timeout(self.flush)

    def close(self) -> None:
        """Store pending counts if the store responds soon: the process does not wait long for counts."""
        with suppress(StoreUnavailable):
            self._with_timeout(self.flush)

    def flush(self) -> None:
        """Store pending counts; those that cannot be stored now are kept for later."""
        with self._lock:
            pending, self._pending = self._pending, Counter()
        now = self._clock.now()
        for stay in sorted({stay for stay, _ in pending}):
            sums = [attr(name).plus(number) for (of, name), number in pending.items() if of == stay and number]
            expiry = attr("expiresAt").set_if_absent(now.epoch_seconds + KEPT_SECONDS)
            try:
                self._store.update(STATE, _key(stay, now), combined([*sums, expiry]))
            except HoldfastError as error:
                _log.warning("could not store the migration's counts, will retry: %s", error)
                with self._lock:
                    self._pending.update({of: number for of, number in pending.items() if of[0] == stay})


def _key(stay: int, day: Instant) -> Key:
    return Key(f"migration#counts#{stay}#{day.date()}")
