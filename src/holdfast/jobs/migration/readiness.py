"""What a command asks of the phase before it does anything."""

from collections.abc import Callable

from holdfast.jobs.migration.layout import UNSTORED
from holdfast.jobs.migration.phases import ORDER, SETTLED_SECONDS, Phase, StoredPhase, WrongJump, step_to, stored_phase
from holdfast.jobs.migration.status import Standing
from holdfast.kernel.errors import NeedsOperator
from holdfast.ports.clock import Clock
from holdfast.ports.objects import Objects
from holdfast.ports.store import Store


def wait_for_both(store: Store, clock: Clock, tell: Callable[[str], None], *, is_dry_run: bool) -> None:
    """Until every instance writes to both: a webhook that went to S3 alone could be passed by, and never come back."""
    stored = stored_phase(store)
    if is_dry_run:
        return
    if stored.phase is Phase.OFF or stored.since is None:
        raise NeedsOperator(
            "the phase is off: webhooks that come while the backfill runs would be missed; "
            "first run: holdfast migrate advance"
        )
    left = SETTLED_SECONDS - clock.now().seconds_since(stored.since)
    if 0 < left <= SETTLED_SECONDS:
        tell(f"waiting {left:.0f} s: until then, an instance may not write to both yet")
        clock.sleep(left)


def check_may_archive(store: Store, objects: Objects) -> None:
    """Whether nobody needs to read the objects any more."""
    phase = stored_phase(store).phase
    if phase is not Phase.DYNAMODB_ONLY:
        raise NeedsOperator(
            f"the lifecycle was not set: the phase is {phase}, and objects in Glacier cannot be read; "
            "it is for dynamodb_only"
        )
    if objects.page(UNSTORED, most=1).entries:
        raise NeedsOperator(
            "the lifecycle was not set: there are webhooks in S3 that the tables lack; "
            "first run: holdfast migrate backfill"
        )


def step(it: Standing, wanted: Phase | None, *, is_forward: bool) -> Phase:
    """The phase to go to; WrongJump, with the reason, if there is none or it is not one step away."""
    here = it.stored.phase
    number = here.number + (1 if is_forward else -1)
    if wanted is None:
        if not 0 <= number < len(ORDER):
            raise WrongJump(f"the phase is {here}: there is none {'after' if is_forward else 'before'} it")
        return ORDER[number]
    step_to(here, wanted)
    if (wanted.number > here.number) is not is_forward:
        command = "back" if is_forward else "advance"
        raise WrongJump(f"from {here} to {wanted} is the other way; run: holdfast migrate {command}")
    return wanted


def notes_of(stored: StoredPhase, wanted: Phase) -> list[str]:
    """What a move means beyond the phase itself."""
    notes = [f"all instances follow within {SETTLED_SECONDS:g} s"]
    was_alone = any(move.get("to") == Phase.DYNAMODB_ONLY for move in stored.moves)
    if wanted is Phase.OFF:
        notes.append("Holdfast writes no objects any more: let GitHub send its webhooks to the older system again")
    if wanted.number < stored.phase.number and (was_alone or stored.phase is Phase.DYNAMODB_ONLY):
        notes.append("webhooks that came in dynamodb_only are in the tables alone; the older system does not see them")
    return notes
