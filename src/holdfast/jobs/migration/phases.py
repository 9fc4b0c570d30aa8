"""The phase of the migration, stored in one item for all instances.

    phase           a webhook is written to                        a job is read from
    off             the tables; S3 is not used                     the tables
    dual_write      S3, then the tables; a failure there is noted  S3, completed from the tables
    dual_read       S3, then the tables; both must succeed         the tables, or S3 if they lack the job
    dynamodb_only   the tables; runner-config.json is unchanged    the tables

A move is one step, forward or back. An instance that cannot read the phase keeps the last one it knew.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import Final

from holdfast.jobs.migration.store_timeout import StoreTimeout
from holdfast.kernel.errors import BadRequest, HoldfastError, NeedsOperator, Retryable, WriteConflict
from holdfast.kernel.ids import nonce
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.store import Item, Key, Store, Value, attr
from holdfast.ports.store.tables import STATE

KEY: Final = Key("migration#phase")
PHASE_CACHE_SECONDS: Final = 5.0
PHASE_TIMEOUT_SECONDS: Final = 1.0  # of a webhook's ten; after that, the last known phase is used
COMMAND_TIMEOUT_SECONDS: Final = 10.0  # for commands and queries, where no webhook waits
# After this time every instance follows a move: each reads the phase every PHASE_CACHE_SECONDS, and a webhook takes
# less than 10 s.
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
    Phase.DUAL_READ: "the tables would be read before they are filled, and jobs that are only in S3 would be missed",
    Phase.DYNAMODB_ONLY: "it must first be shown that reads find every job in the tables",
    Phase.DUAL_WRITE: "some instances would not write objects yet while others rely on them",
    Phase.OFF: "some instances would still read or write objects while others do not",
}


class InvalidMove(BadRequest):
    """A move of more than one step, or to the current phase."""


@dataclass(frozen=True, slots=True)
class StoredPhase:
    """`since` None: nothing is stored, and the phase is off. `both_since`: when writing to both sides began."""

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


def check_one_step(stored: Phase, wanted: Phase) -> None:
    """Raise InvalidMove, with the reason, unless the move is one step."""
    if wanted is stored:
        raise InvalidMove(f"the phase is already {stored}")
    steps = wanted.number - stored.number
    if abs(steps) != 1:
        between = ORDER[stored.number + (1 if steps > 0 else -1)]
        raise InvalidMove(f"{stored} to {wanted} is more than one step: {_WHY_NOT[wanted]}; first move to {between}")


def move(store: Store, known: StoredPhase, wanted: Phase, now: Instant, by: str) -> StoredPhase:
    """Move one step from the known phase. `Retryable` if it was moved meanwhile: then nothing is changed."""
    check_one_step(known.phase, wanted)
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
        if conflict.item is None or conflict.item.get("moveId") != mark:  # else our own write, whose response was lost
            raise Retryable("the phase was just moved by someone else; run: holdfast migrate status") from conflict
    return _read(item)


def begin(store: Store, wanted: Phase, now: Instant, by: str) -> StoredPhase:
    """At the start of an instance: the stored phase; if none is stored, the one in JOBS_MIGRATION."""
    stored = stored_phase(store)
    if stored.since is not None:
        if stored.phase is not wanted:
            _log.warning(
                "JOBS_MIGRATION=%s is ignored: the stored phase is %s; "
                "to move it, run: holdfast migrate advance, or: holdfast migrate back",
                wanted,
                stored.phase,
            )
        return stored
    if wanted is Phase.OFF:
        return stored
    try:
        return move(store, stored, wanted, now, by)
    except InvalidMove as error:
        raise NeedsOperator(f"JOBS_MIGRATION={wanted} cannot be the first phase: {error}") from error
    except Retryable:
        return stored_phase(store)  # another instance began at the same time


class PhaseWatch:
    """The current phase, at most a few seconds old while the store responds."""

    def __init__(
        self, store: Store, clock: Clock, begun: StoredPhase, timeout_seconds: float = PHASE_TIMEOUT_SECONDS
    ) -> None:
        self._store = store
        self._with_timeout = StoreTimeout(timeout_seconds, 1, "phase")
        self._clock = clock
        self._known = begun
        self._until = 0.0
        self._lock = Lock()

    def now(self) -> StoredPhase:
        seconds = self._clock.monotonic_seconds()
        with self._lock:
            if seconds < self._until:
                return self._known
            self._until = seconds + PHASE_CACHE_SECONDS  # other threads use the cached phase meanwhile
        try:
            self._with_timeout(self._refresh)
        except HoldfastError as error:
            _log.warning("could not read the phase of the migration, using %s: %s", self._known.phase, error)
        return self._known

    def _refresh(self) -> None:
        """One at a time. A response after the timeout is used as well: a slow store may give no other."""
        self._known = stored_phase(self._store)


def _read(item: Item) -> StoredPhase:
    if item.get("phase") not in set(Phase):
        raise NeedsOperator(
            f"the stored phase of the migration is {item.get('phase')!r}, which this version does not support; "
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
