"""Repair what an older autoscaler, or a clock that jumped, left in the item.

    found                                             what follows
    the flag without an action                        the flag is cleared
    a scale-up without a plan                         its machines are those that it recorded or launched since it
                                                      began (`adoptable`); they are verified as usual
    a plan without an action                          an older autoscaler ended our scale-up: resume with the machines
                                                      that it launched, or remove the plan if there are none
    an older autoscaler's scale-up with our plan      the plan is removed; the sweeper collects its machines
    TERMINATING or no phase, and nothing committed    the drain starts over
    commits without an action                         an older autoscaler ended our scale-down: finish it
    a time more than an hour in the future            a clock had jumped: the time is set to now

Any other inconsistency stops all ticks (`StateDamaged`) until an operator has looked.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.cluster.seen import ACTION_TAG, FUTURE_SECONDS, Seen
from holdfast.cluster.state import ClusterState, DownPhase, ScaleUp
from holdfast.cluster.steps import CarryOnCommitted, CarryOnPlan, ClusterStep, Repair
from holdfast.control.ledger import Transition
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Machine
from holdfast.ports.store import Condition, Update, attr, remove_all, set_all

_FLAG: Final = "scalingInProgress"
_PHASE: Final = "scaleDownPhase"
_PLAN: Final = ("scaleUpPlan", "scaleUpPhase", "scaleUpPhaseEpoch", "templateRef")


def future_time_steps(seen: Seen) -> Iterator[ClusterStep]:
    """Repair times in the future, which would block scaling until then. Done even while an action is under way."""
    ahead = _times_in_the_future(seen.state, seen.now)
    if ahead:
        later = max(moment.seconds_since(seen.now) for moment in ahead.values()) / 3600
        because = f"{', '.join(ahead)}: {later:.1f} h in the future because a clock had jumped; set to now"
        yield Repair(attributes=tuple(ahead), because=because)


def leftover_steps(seen: Seen) -> Iterator[ClusterStep]:
    """Clear what interrupted actions left behind, before anything new begins."""
    state = seen.state
    if state.up is not None and state.up.is_littered:
        because = "the plan belongs to an earlier action, which an older autoscaler ended"
        yield Repair(attributes=_PLAN, because=because)
    elif state.is_acting:
        return
    elif state.is_flagged:
        yield Repair(attributes=(_FLAG,), because="the flag is set, but no action is under way")
    elif state.left_committed:
        committed = tuple(sorted(state.left_committed))
        yield CarryOnCommitted(
            instances=committed, because="they were committed before an older autoscaler ended the scale-down"
        )
    elif state.left_plan:
        yield CarryOnPlan(
            instances=state.left_plan, because="they were launched before an older autoscaler ended the scale-up"
        )
    elif state.left_plan is not None:
        yield Repair(attributes=_PLAN, because="the plan belongs to no action and launched nothing")


def adoptable(up: ScaleUp, seen: Seen) -> list[Machine]:
    """Untagged machines that were launched after an older autoscaler's scale-up began, the oldest first.

    It records ids only after its last launch. At most as many as it requested are its own; if it stored no number, all.
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
    """The write of a `Repair`, conditional on the values that were read."""
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
    ahead = _times_in_the_future(state, now)
    condition: Condition = attr("fence").exists()
    for name in attributes:
        condition &= attr(name).equals(ahead[name].epoch_seconds)
    return set_all(dict.fromkeys(attributes, now.epoch_seconds)), condition


def _times_in_the_future(state: ClusterState, now: Instant) -> dict[str, Instant]:
    times = {
        "lastScaleEpoch": state.last_scale,
        "upBackoffUntilEpoch": state.up_backoff_until,
        "bumpAfterEpoch": state.bump_after,
    }
    return {name: moment for name, moment in times.items() if moment.seconds_since(now) > FUTURE_SECONDS}
