"""What an older autoscaler left in the item, and what clocks that jumped did: told, repaired, carried on.

    found                                                   what follows
    the flag, and no action                                 the flag is cleared
    a scale-up without a plan                               its machines are those it recorded, or launched since it
                                                            began; they are verified as ever (`adoptable`)
    a plan without an action                                an older one ended a scale-up of ours: carried on with
                                                            what it had launched; with nothing launched it is removed
    another's scale-up over a plan of ours                  the plan is removed; what it launched is collected
    TERMINATING or no phase, and nothing committed          drained from the beginning
    commits without an action                               an older one ended a scale-down of ours: finished
    a time that is more than an hour in the future          a clock had jumped: it is now

Anything else that is odd stops everything (`StateDamaged`), and a person looks at it.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.cluster.ledger import Transition
from holdfast.cluster.seen import ACTION_TAG, FUTURE_SECONDS, Seen
from holdfast.cluster.state import ClusterState, DownPhase, ScaleUp
from holdfast.cluster.steps import CarryOnCommitted, CarryOnPlan, Repair, Step
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Machine
from holdfast.ports.store import Condition, Update, attr, remove_all, set_all

_FLAG: Final = "scalingInProgress"
_PHASE: Final = "scaleDownPhase"
_PLAN: Final = ("scaleUpPlan", "scaleUpPhase", "scaleUpPhaseEpoch", "templateRef")


def clock_steps(seen: Seen) -> Iterator[Step]:
    """Times from the future would hold everything back until they come. Repaired whatever else is under way."""
    ahead = _from_the_future(seen.state, seen.now)
    if ahead:
        later = max(moment.seconds_since(seen.now) for moment in ahead.values()) / 3600
        because = f"{', '.join(ahead)}: {later:.1f} h in the future, by a clock that had jumped; it is now instead"
        yield Repair(attributes=tuple(ahead), because=because)


def left_steps(seen: Seen) -> Iterator[Step]:
    """What is left of actions that ended halfway. Nothing new is begun before it is cleared."""
    state = seen.state
    if state.up is not None and state.up.is_littered:
        because = "the plan is of an earlier action, which an older autoscaler ended"
        yield Repair(attributes=_PLAN, because=because)
    elif state.is_acting:
        return
    elif state.is_flagged:
        yield Repair(attributes=(_FLAG,), because="the flag is set, and no action is under way")
    elif state.left_committed:
        committed = tuple(sorted(state.left_committed))
        yield CarryOnCommitted(instances=committed, because="they were committed when an older autoscaler ended it")
    elif state.left_plan:
        yield CarryOnPlan(instances=state.left_plan, because="they were launched when an older autoscaler ended it")
    elif state.left_plan is not None:
        yield Repair(attributes=_PLAN, because="the plan belongs to no action, and launched nothing")


def adoptable(up: ScaleUp, seen: Seen) -> list[Machine]:
    """Machines with our tags and no action's that came after an older autoscaler's scale-up began, the oldest first.

    It records its ids only after all launches. As many as it asked for are its; where it did not say, all are.
    """
    if up.slots or up.is_littered:
        return []
    known = set(up.instances)
    machines = [
        w.machine for w in seen.workers if ACTION_TAG not in w.machine.tags and w.machine.launched >= up.started
    ]
    new = sorted((m for m in machines if m.id not in known), key=lambda m: (m.launched, m.id))
    return new[: max(0, up.requested - len(known))] if up.requested else new


def repair(state: ClusterState, attributes: tuple[str, ...], now: Instant) -> Transition:
    """The write behind a `Repair`: only if what is repaired is still as it was seen."""
    update, condition = _repair(state, attributes, now)
    return Transition(f"repair {', '.join(attributes)}", update, condition)


def _repair(state: ClusterState, attributes: tuple[str, ...], now: Instant) -> tuple[Update, Condition]:
    nothing = attr("scaleUpActionId").is_absent() & attr("scaleDownActionId").is_absent()
    if attributes == (_FLAG,):
        return attr(_FLAG).set_to(False), nothing & attr(_FLAG).equals(True)
    if attributes == (_PHASE,) and state.down is not None:
        same = attr("scaleDownActionId").equals(state.down.action) & attr("scaleDownCommitted").is_absent()
        return attr(_PHASE).set_to(str(DownPhase.DRAINING)), same
    if attributes == _PLAN:
        whose: Condition = attr("scaleUpActionId").equals(state.up.action) if state.up else nothing
        return remove_all(*_PLAN), whose & attr("scaleUpPlan").exists()
    ahead = _from_the_future(state, now)
    condition: Condition = attr("fence").exists()
    for name in attributes:
        condition &= attr(name).equals(ahead[name].epoch_seconds)
    return set_all(dict.fromkeys(attributes, now.epoch_seconds)), condition


def _from_the_future(state: ClusterState, now: Instant) -> dict[str, Instant]:
    times = {
        "lastScaleEpoch": state.last_scale,
        "upBackoffUntilEpoch": state.up_backoff_until,
        "bumpAfterEpoch": state.bump_after,
    }
    return {name: moment for name, moment in times.items() if moment.seconds_since(now) > FUTURE_SECONDS}
