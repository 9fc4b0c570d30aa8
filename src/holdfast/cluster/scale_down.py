"""Scale-down: a durable machine that any process can carry on.

    phase         what happens                                        leads to
    (none)        BEGIN: the targets are stored                       DRAINING
    DRAINING      one target at a time: cordon, evict, and when the   COMMIT, when it is drained
                  node is empty COMMIT it; a target that vanished     ABORTING, when a pod forbids it, a drain
                  by itself is marked as done                         takes too long, or the action does
    (committed)   terminate it, then DONE                             TERMINATING, when none is left to drain
    TERMINATING   as above, nothing else is left                      COMPLETE, when all are done
    ABORTING      every node we cordoned is uncordoned                CLEAR

COMMIT cannot be taken back: from then on every process terminates that machine, and none uncordons it. So a machine
is terminated only when its node was empty and closed, however late the call comes, and whoever makes it.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.cluster.drain import DrainRules, drain_view
from holdfast.cluster.ledger import Transition
from holdfast.cluster.nodes import is_cordoned_by_others
from holdfast.cluster.policy import Policy
from holdfast.cluster.scale_up import nothing_under_way
from holdfast.cluster.seen import ACTION_ANNOTATION, Seen, Worker
from holdfast.cluster.state import DownPhase, ScaleDown
from holdfast.cluster.steps import (
    AbortScaleDown,
    ClearScaleDown,
    CommitTarget,
    CompleteScaleDown,
    CordonTarget,
    EvictPods,
    MarkGone,
    Repair,
    Step,
    TerminateTarget,
    UncordonTarget,
)
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import some
from holdfast.ports.readings import Unknown
from holdfast.ports.store import Condition, attr, remove_all, set_all

ATTRIBUTES: Final = (
    "scaleDownActionId",
    "scaleDownStartedEpoch",
    "scaleDownPhase",
    "scaleDownTargetInstanceIds",
    "scaleDownCompletedInstanceIds",
    "scaleDownCommitted",
    "scaleDownDrainStartedEpoch",
)


# Transitions


def begin(action: ActionId, targets: tuple[InstanceId, ...], now: Instant) -> Transition:
    update = set_all(
        {
            "scalingInProgress": True,
            "scaleDownActionId": action,
            "scaleDownStartedEpoch": now.epoch_seconds,
            "scaleDownPhase": str(DownPhase.DRAINING),
            "scaleDownTargetInstanceIds": list(targets),
            "scaleDownCompletedInstanceIds": [],
        }
    )
    # An older autoscaler that ended an action of ours knew nothing of this one.
    update += attr("scaleDownDrainStartedEpoch").remove() + attr("actionSeq").plus(1)
    return Transition(f"begin scale-down {action}", update, nothing_under_way() & _nothing_committed())


def carry_on(action: ActionId, committed: tuple[InstanceId, ...], now: Instant) -> Transition:
    """Begin again with what an earlier action had committed, and nothing else: that cannot be taken back."""
    values = {
        "scalingInProgress": True,
        "scaleDownActionId": action,
        "scaleDownStartedEpoch": now.epoch_seconds,
        "scaleDownPhase": str(DownPhase.TERMINATING),
        "scaleDownTargetInstanceIds": list(committed),
        "scaleDownCompletedInstanceIds": [],
    }
    update = set_all(values) + attr("scaleDownDrainStartedEpoch").remove() + attr("actionSeq").plus(1)
    still = attr("scaleDownCommitted").equals(frozenset(committed))
    return Transition(f"carry on scale-down {action}", update, nothing_under_way() & still)


def start_drain(down: ScaleDown, now: Instant) -> Transition:
    update = attr("scaleDownDrainStartedEpoch").set_to(now.epoch_seconds)
    return Transition("start the drain", update, _is_in(down, DownPhase.DRAINING))


def commit(down: ScaleDown, instance: InstanceId) -> Transition:
    """The point of no return for one machine. The last one also ends the draining."""
    update = attr("scaleDownCommitted").add_elements([instance]) + attr("scaleDownDrainStartedEpoch").remove()
    if down.open_targets == (instance,):
        update += attr("scaleDownPhase").set_to(str(DownPhase.TERMINATING))
    condition = (
        _is_in(down, DownPhase.DRAINING)
        & attr("scaleDownTargetInstanceIds").contains(instance)
        & ~attr("scaleDownCompletedInstanceIds").contains(instance)
    )
    return Transition(f"commit {instance}", update, condition)


def done(down: ScaleDown, instance: InstanceId) -> Transition:
    """It was terminated. The list is written whole: no id is ever in it twice."""
    completed = [*down.completed, *({instance} - set(down.completed))]
    update = attr("scaleDownCompletedInstanceIds").set_to(completed)
    update += attr("scaleDownCommitted").drop_elements([instance])
    return Transition(f"{instance} is done", update, _is_this(down) & attr("scaleDownCommitted").contains(instance))


def gone(down: ScaleDown, instance: InstanceId) -> Transition:
    """It vanished without us."""
    completed = [*down.completed, *({instance} - set(down.completed))]
    update = attr("scaleDownCompletedInstanceIds").set_to(completed) + attr("scaleDownDrainStartedEpoch").remove()
    condition = _is_this(down) & ~attr("scaleDownCommitted").contains(instance)
    return Transition(f"{instance} is gone", update, condition)


def abort(down: ScaleDown) -> Transition:
    condition = _is_in(down, DownPhase.DRAINING) & _nothing_committed()
    return Transition("abort scale-down", attr("scaleDownPhase").set_to(str(DownPhase.ABORTING)), condition)


def clear(down: ScaleDown) -> Transition:
    condition = _is_in(down, DownPhase.ABORTING) & _nothing_committed()
    update = attr("scalingInProgress").set_to(False) + remove_all(*ATTRIBUTES)
    return Transition(f"clear scale-down {down.action}", update, condition)


def complete(down: ScaleDown, now: Instant) -> Transition:
    """The cooldown starts here, and nowhere else."""
    update = set_all({"scalingInProgress": False, "lastScaleEpoch": now.epoch_seconds}) + remove_all(*ATTRIBUTES)
    condition = _is_this(down) & _nothing_committed()
    condition &= attr("scaleDownTargetInstanceIds").has_size(len(down.targets))
    for target in down.targets:
        # Each by name, not by their number: an older autoscaler may have put one in twice.
        condition &= attr("scaleDownCompletedInstanceIds").contains(target)
    return Transition(f"complete scale-down {down.action}", update, condition)


def _is_this(down: ScaleDown) -> Condition:
    return attr("scaleDownActionId").equals(down.action)


def _nothing_committed() -> Condition:
    return attr("scaleDownCommitted").is_absent()


def _is_in(down: ScaleDown, phase: DownPhase) -> Condition:
    return _is_this(down) & attr("scaleDownPhase").equals(str(phase))


# What comes next


def next_steps(down: ScaleDown, seen: Seen, policy: Policy, rules: DrainRules) -> Iterator[Step]:
    """What carries the action on, from whatever point it was left at. None: wait, and look again."""
    if down.needs_phase:
        because = "an older autoscaler began it: nothing is committed, so it is drained from the beginning"
        yield Repair(attributes=("scaleDownPhase",), because=because)
        return
    for instance in sorted(down.committed):
        yield TerminateTarget(instance=instance, because="its node is drained and closed, and it was committed")
    if down.phase is DownPhase.ABORTING:
        yield from _aborting(down, seen)
    elif down.open_targets:
        yield from _draining(down, seen, policy, rules)
    elif not down.committed:
        yield CompleteScaleDown(because=f"{some(len(down.targets), 'target')} terminated")


def _draining(down: ScaleDown, seen: Seen, policy: Policy, rules: DrainRules) -> Iterator[Step]:
    vanished = [instance for instance in down.open_targets if instance in seen.gone]
    for instance in vanished:
        yield MarkGone(instance=instance, because="it is gone, without us")
    if vanished:
        return
    worker = seen.worker(down.open_targets[0])
    overdue = _overdue(down, seen, policy)
    if overdue is not None and not down.committed and not _is_drained(down, seen, worker, rules):
        yield AbortScaleDown(because=overdue)
        return
    if isinstance(seen.kube, Unknown):
        return
    needed = why_needed(down, seen, policy)
    if needed is not None:
        if not down.committed:
            yield AbortScaleDown(because=needed)
        return
    if worker is None or worker.node is None:
        # Not listed, or without a node, yet not known to be gone: nothing to drain, and nothing proven. Time decides.
        return
    yield from _drain_one(down, seen, worker, rules)


def why_needed(down: ScaleDown, seen: Seen, policy: Policy) -> str | None:
    """Why the next target must stay after all: what was spare when the action began may have been taken since."""
    instance = down.open_targets[0]
    leaving = {instance, *down.committed}
    # One that is Ready may be accepted in this very tick: then other zones have some, and the target has to stay.
    ready = [worker for worker in seen.staying if worker.id not in leaving and (worker.is_accepted or worker.is_ready)]
    others = [worker for worker in ready if worker.is_accepted]
    if len(others) < policy.min_workers:
        return f"{instance} is needed: {len(others)} would be left, and the minimum is {policy.min_workers}"
    target, zones = seen.worker(instance), {worker.machine.zone for worker in others}
    if target is not None and ready and target.machine.zone not in zones:
        return f"{instance} is needed: it is the last in {target.machine.zone}"
    return None


def _is_drained(down: ScaleDown, seen: Seen, worker: Worker | None, rules: DrainRules) -> bool:
    """Closed and empty: what is done is not given up, however long it took."""
    if isinstance(seen.kube, Unknown) or worker is None or not is_closed_by(down, worker):
        return False
    return drain_view(seen.pods_of(worker), rules).is_drained


def _drain_one(down: ScaleDown, seen: Seen, worker: Worker, rules: DrainRules) -> Iterator[Step]:
    view = drain_view(seen.pods_of(worker), rules)
    if view.blocked_by is not None:
        if not down.committed:
            yield AbortScaleDown(because=f"{worker.id} cannot be drained: {view.blocked_by}")
    elif not is_closed_by(down, worker):
        yield CordonTarget(instance=worker.id, because="it is to leave, and no pod may come to it any more")
    elif view.to_evict:
        pods = tuple(str(pod) for pod in view.to_evict)
        yield EvictPods(instance=worker.id, pods=pods, because=f"{some(len(pods), 'pod')} still on it")
    elif view.is_drained:
        yield CommitTarget(instance=worker.id, because="no pod is left on it")


def _aborting(down: ScaleDown, seen: Seen) -> Iterator[Step]:
    if isinstance(seen.kube, Unknown):
        return
    closed = [worker for worker in map(seen.worker, down.open_targets) if worker and _is_to_be_opened(down, worker)]
    for worker in closed:
        yield UncordonTarget(instance=worker.id, because="the scale-down was given up")
    if not closed:
        yield ClearScaleDown(because="everything we cordoned is uncordoned again")


def is_closed_by(down: ScaleDown, worker: Worker) -> bool:
    """Whether the node is cordoned, and by this action."""
    node = worker.node
    return node is not None and node.is_unschedulable and node.annotations.get(ACTION_ANNOTATION) == down.action


def _is_to_be_opened(down: ScaleDown, worker: Worker) -> bool:
    """An older autoscaler leaves no mark on a node that it cordons: its own targets are taken to be closed by it."""
    if is_closed_by(down, worker):
        return True
    return down.is_legacy and worker.node is not None and is_cordoned_by_others(worker.node)


def _overdue(down: ScaleDown, seen: Seen, policy: Policy) -> str | None:
    if seen.seconds_since(down.started) >= policy.stuck_seconds:
        return f"the scale-down has lasted {policy.stuck_seconds} s"
    if down.drain_started and seen.seconds_since(down.drain_started) >= policy.drain_seconds:
        return f"{down.open_targets[0]} was not drained within {policy.drain_seconds} s"
    return None
