"""The status of the migration, and whether it may move to the next phase: each reason against it in one sentence."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.jobs.migration.backfill_progress import BackfillProgress, last_backfill
from holdfast.jobs.migration.compare import ComparisonResult, last_compare
from holdfast.jobs.migration.counts import CallTotals, call_totals
from holdfast.jobs.migration.differences import DifferenceKind
from holdfast.jobs.migration.layout import UNSTORED
from holdfast.jobs.migration.phases import (
    ORDER,
    SETTLED_SECONDS,
    InvalidMove,
    Phase,
    StoredPhase,
    check_one_step,
    stored_phase,
)
from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.objects import Objects
from holdfast.ports.store import Store

UNSTORED_COUNTED_MOST: Final = 1000
_BACKFILL: Final = "run: holdfast migrate backfill"


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """`unstored` counts webhooks in S3 that the tables lack, up to 1,000."""

    now: Instant
    stored: StoredPhase
    wanted: Phase
    figures: CallTotals
    backfilled: BackfillProgress | None
    compared: ComparisonResult | None
    unstored: int

    @property
    def next(self) -> Phase | None:
        number = self.stored.phase.number + 1
        return ORDER[number] if number < len(ORDER) else None

    def against_next(self) -> list[str]:
        """The reasons against moving to the next phase now."""
        if self.next is None:
            return []
        found = list(_AGAINST[self.next](self)) if self.next in _AGAINST else []
        if not self.stored.is_settled(self.now):
            found.insert(0, f"the last move was less than {SETTLED_SECONDS:g} s ago; not every instance follows it yet")
        return found

    def against_back(self, wanted: Phase) -> list[str]:
        """The reasons against moving back to this phase now."""
        if wanted is not Phase.OFF or not self.unstored:
            return []  # in every other phase, S3 is read as well
        return [f"{_at_least(self.unstored)} webhooks are only in S3 and would be missed; {_BACKFILL}"]


def migration_status(store: Store, objects: Objects, wanted: Phase, now: Instant) -> MigrationStatus:
    stored = stored_phase(store)
    return MigrationStatus(
        now,
        stored,
        wanted,
        call_totals(store, now, stored.seq),
        last_backfill(store),
        last_compare(store),
        len(objects.page(UNSTORED, most=UNSTORED_COUNTED_MOST).entries),
    )


def _against_dual_read(status: MigrationStatus) -> Iterator[str]:
    """The tables are read first, so they must contain everything in S3."""
    both_since, backfilled = status.stored.both_since, status.backfilled
    if status.unstored:
        yield f"{_at_least(status.unstored)} webhooks are in S3 but not in the tables; {_BACKFILL}"
    if backfilled is None or (both_since is not None and backfilled.started and backfilled.started < both_since):
        yield f"no backfill has run since dual_write began; {_BACKFILL}"
        return
    if backfilled.finished is None:
        yield f"the backfill is unfinished: {backfilled.objects} of {backfilled.total} objects; {_BACKFILL}"
        return
    yield from _against_compare(status, backfilled.finished)


def _against_compare(status: MigrationStatus, since: Instant) -> Iterator[str]:
    compared = status.compared
    if compared is None or compared.started < since:
        yield "no comparison has run since the backfill; run: holdfast migrate compare"
    elif compared.share < 1:
        yield f"only a share of {compared.share:g} of the jobs was compared; run: holdfast migrate compare"
    elif compared.lacking:
        yield f"the comparison found {compared.lacking} differences ({_kinds(compared)}); {_remedy(compared)}"


def _kinds(compared: ComparisonResult) -> str:
    lacking = {kind: number for kind, number in compared.kinds.items() if kind != DifferenceKind.ONLY_IN_TABLE}
    return ", ".join(f"{number} {kind}" for kind, number in sorted(lacking.items()))


def _remedy(compared: ComparisonResult) -> str:
    """A backfill adds what is missing. It does not overwrite attributes, and cannot read unusable objects."""
    if any(compared.kinds[kind] for kind in (DifferenceKind.FIELD, DifferenceKind.UNUSABLE)):
        return "holdfast migrate compare lists them; see docs/migration.md for each kind"
    return f"{_BACKFILL}, then compare again"


def _against_dynamodb_only(status: MigrationStatus) -> Iterator[str]:
    """No more objects are written, so no read may need them."""
    yield from _against_dual_read(status)
    if fallbacks := status.figures.fallbacks:
        yield (
            f"{fallbacks} reads since yesterday found a job in S3 but not in the tables; run: holdfast migrate "
            "compare, fix the differences, and check again tomorrow"
        )


_AGAINST: Final = {Phase.DUAL_READ: _against_dual_read, Phase.DYNAMODB_ONLY: _against_dynamodb_only}


def _at_least(number: int) -> str:
    return f"{number} or more" if number >= UNSTORED_COUNTED_MOST else str(number)


def wait_for_dual_write(store: Store, clock: Clock, report: Callable[[str], None], *, is_dry_run: bool) -> None:
    """Wait until every instance writes to both sides: the backfill could miss a webhook that only went to S3."""
    stored = stored_phase(store)
    if is_dry_run:
        return
    if stored.phase is Phase.OFF or stored.since is None:
        raise NeedsOperator(
            "the phase is off: webhooks that arrive during the backfill would be missed; "
            "first run: holdfast migrate advance"
        )
    left = SETTLED_SECONDS - clock.now().seconds_since(stored.since)
    if 0 < left <= SETTLED_SECONDS:
        report(f"waiting {left:.0f} s until every instance writes to both sides")
        clock.sleep(left)


def check_may_archive(store: Store, objects: Objects) -> None:
    """Raise NeedsOperator if the objects may still be read."""
    phase = stored_phase(store).phase
    if phase is not Phase.DYNAMODB_ONLY:
        raise NeedsOperator(
            f"the lifecycle was not set: the phase is {phase}, and objects in Glacier cannot be read; "
            "first move to dynamodb_only"
        )
    if objects.page(UNSTORED, most=1).entries:
        raise NeedsOperator(
            "the lifecycle was not set: S3 has webhooks that the tables lack; first run: holdfast migrate backfill"
        )


def phase_to_move_to(status: MigrationStatus, wanted: Phase | None, *, is_forward: bool) -> Phase:
    """The phase to move to; InvalidMove if there is none, or if it is more than one step away."""
    here = status.stored.phase
    number = here.number + (1 if is_forward else -1)
    if wanted is None:
        if not 0 <= number < len(ORDER):
            raise InvalidMove(f"the phase is {here}, which is the {'last' if is_forward else 'first'}")
        return ORDER[number]
    check_one_step(here, wanted)
    if (wanted.number > here.number) is not is_forward:
        command = "back" if is_forward else "advance"
        raise InvalidMove(f"{here} to {wanted} is the other direction; run: holdfast migrate {command}")
    return wanted


def move_notes(stored: StoredPhase, wanted: Phase) -> list[str]:
    """What the operator should know about a move."""
    notes = [f"all instances follow within {SETTLED_SECONDS:g} s"]
    was_alone = any(move.get("to") == Phase.DYNAMODB_ONLY for move in stored.moves)
    if wanted is Phase.OFF:
        notes.append("Holdfast writes no more objects: point GitHub's webhooks back at the older system")
    if wanted.number < stored.phase.number and (was_alone or stored.phase is Phase.DYNAMODB_ONLY):
        notes.append("webhooks received in dynamodb_only are only in the tables; the older system does not see them")
    return notes
