"""How far the way over is gone. One item says so for all instances.

    phase           a webhook is written to                        a job is read from
    off             the tables; S3 is not touched                  the tables
    dual_write      S3, then the tables: there, failing is noted   S3, and what the tables know beside it
    dual_read       S3, then the tables: both must succeed         the tables, and S3 where they have nothing
    dynamodb_only   the tables; runner-config.json is left alone   the tables

A move goes one step, forward or back. An instance that cannot ask goes on as it last knew.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import Final

from holdfast.jobs.migration.bounded import Bounded
from holdfast.kernel.errors import BadRequest, HoldfastError, NeedsOperator, Retryable, WriteConflict
from holdfast.kernel.ids import nonce
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.store import Item, Key, Store, Value, attr
from holdfast.ports.store.tables import STATE

KEY: Final = Key("migration#phase")
FRESH_SECONDS: Final = 5.0
ASK_SECONDS: Final = 1.0  # of a webhook's ten: it goes on with what was last known
PATIENT_SECONDS: Final = 10.0  # where no webhook waits
# After this long every instance follows a move: each asks again after FRESH_SECONDS, and a webhook takes no 10 s.
SETTLED_SECONDS: Final = 20.0
_MOVES_KEPT: Final = 20
_log = logging.getLogger(__name__)


class Phase(StrEnum):
    OFF = "off"
    DUAL_WRITE = "dual_write"
    DUAL_READ = "dual_read"
    DYNAMODB_ONLY = "dynamodb_only"

    @property
    def number(self) -> int:
        return ORDER.index(self)

    @property
    def writes_objects(self) -> bool:
        return self in (Phase.DUAL_WRITE, Phase.DUAL_READ)


ORDER: Final = tuple(Phase)
_WHY_NOT: Final = {
    Phase.DUAL_READ: "tables that were not filled would be read first, and what is only in S3 would be missed",
    Phase.DYNAMODB_ONLY: "nobody would have seen whether reads find everything in the tables",
    Phase.DUAL_WRITE: "instances that write no objects yet would be taken for ones that do",
    Phase.OFF: "instances that still write objects, or read them, would disagree with the others",
}


class WrongJump(BadRequest):
    """A move of more than a step, or to where it is already."""


@dataclass(frozen=True, slots=True)
class StoredPhase:
    """`since` None: nothing is stored, and the phase is off. `both_since` is when writing to both began."""

    phase: Phase = Phase.OFF
    since: Instant | None = None
    both_since: Instant | None = None
    seq: int = 0
    moves: tuple[Mapping[str, Value], ...] = ()

    def is_settled(self, now: Instant) -> bool:
        return self.since is None or now.seconds_since(self.since) >= SETTLED_SECONDS


def stored_phase(store: Store) -> StoredPhase:
    item = store.get(STATE, KEY)
    return StoredPhase() if item is None else _read(item)


def step_to(stored: Phase, wanted: Phase) -> None:
    """Raise WrongJump, with the reason, unless the move is one step."""
    if wanted is stored:
        raise WrongJump(f"the phase is {stored} already")
    steps = wanted.number - stored.number
    if abs(steps) != 1:
        between = ORDER[stored.number + (1 if steps > 0 else -1)]
        raise WrongJump(f"from {stored} to {wanted} is more than a step: {_WHY_NOT[wanted]}; {between} comes first")


def move(store: Store, known: StoredPhase, wanted: Phase, now: Instant, by: str) -> StoredPhase:
    """Go one step from what is known. `Retryable` if somebody else moved meanwhile: then nothing was changed."""
    step_to(known.phase, wanted)
    mark = nonce()
    item: Item = {
        "pk": KEY.partition,
        "phase": str(wanted),
        "sinceMs": now.epoch_ms,
        "seq": known.seq + 1,
        "moveId": mark,
        "moves": [*known.moves, {"to": str(wanted), "at": now.iso(), "by": by}][-_MOVES_KEPT:],
    }
    both_since = now if wanted is Phase.DUAL_WRITE and known.phase is Phase.OFF else known.both_since
    if both_since is not None:
        item["bothSinceMs"] = both_since.epoch_ms
    is_as_known = attr("seq").equals(known.seq) if known.since is not None else attr("pk").is_absent()
    try:
        store.put(STATE, item, is_as_known)
    except WriteConflict as conflict:
        if conflict.item is None or conflict.item.get("moveId") != mark:  # else our own, and its answer was lost
            raise Retryable("somebody else moved the phase just now; look again: holdfast migrate status") from conflict
    return _read(item)


def begin(store: Store, wanted: Phase, now: Instant, by: str) -> StoredPhase:
    """At the start of an instance: the stored phase, or the one that JOBS_MIGRATION begins with."""
    stored = stored_phase(store)
    if stored.since is not None:
        if stored.phase is not wanted:
            _log.warning(
                "JOBS_MIGRATION=%s, and the stored phase is %s, which counts; "
                "move it with: holdfast migrate advance, or: holdfast migrate back",
                wanted,
                stored.phase,
            )
        return stored
    if wanted is Phase.OFF:
        return stored
    try:
        return move(store, stored, wanted, now, by)
    except WrongJump as error:
        raise NeedsOperator(f"JOBS_MIGRATION={wanted} cannot be the beginning: {error}") from error
    except Retryable:
        return stored_phase(store)  # another instance began at the same time


class PhaseWatch:
    """The phase, as of a few seconds ago at the most while the store answers."""

    def __init__(self, store: Store, clock: Clock, begun: StoredPhase, ask_seconds: float = ASK_SECONDS) -> None:
        self._store = store
        self._ask = Bounded(ask_seconds, 1, "phase")
        self._clock = clock
        self._known = begun
        self._until = 0.0
        self._lock = Lock()

    def now(self) -> StoredPhase:
        seconds = self._clock.monotonic_seconds()
        with self._lock:
            if seconds < self._until:
                return self._known
            self._until = seconds + FRESH_SECONDS  # the others do not ask meanwhile
        try:
            self._ask(self._look)
        except HoldfastError as error:
            _log.warning("the phase of the migration is not known, and stays %s: %s", self._known.phase, error)
        return self._known

    def _look(self) -> None:
        """One at a time. An answer that nobody waited for counts, too: a slow store may have no other."""
        self._known = stored_phase(self._store)


def _read(item: Item) -> StoredPhase:
    if item.get("phase") not in set(Phase):
        raise NeedsOperator(
            f"the stored phase of the migration is {item.get('phase')!r}, which this version does not know; "
            "run the version that stored it"
        )
    both = item.get("bothSinceMs")
    return StoredPhase(
        Phase(item["phase"]),
        Instant(int(item["sinceMs"])),
        None if both is None else Instant(int(both)),
        int(item["seq"]),
        tuple(item.get("moves", ())),
    )
