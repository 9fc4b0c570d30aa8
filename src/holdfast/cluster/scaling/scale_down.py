"""Scale-down: a durable workflow that any process can resume. `MOVES` has its phases.

    DRAINING      one target at a time: cordon, evict, and commit it when its node is empty; a target that is gone
                  without us counts as done. Committed targets are terminated.
    TERMINATING   every target is committed or done
    ABORTING      uncordon every node that we cordoned

COMMIT is final: from then on every process terminates that machine, and none uncordons it. So a machine is terminated
only after its node was empty and cordoned, however late the call is made and by whichever process.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.cluster.drain import DrainRules, drain_view
from holdfast.cluster.nodes import is_cordoned_by_others
from holdfast.cluster.policy import Policy, ZonesKept
from holdfast.cluster.scaling.placement import another_zone_has_several, workers_by_zone
from holdfast.cluster.scaling.scale_up import nothing_under_way
from holdfast.cluster.seen import ACTION_ANNOTATION, Seen, Worker
from holdfast.cluster.state import DownPhase, ScaleDown
from holdfast.cluster.steps import (
    AbortScaleDown,
    ClearScaleDown,
    ClusterStep,
    CommitTarget,
    CompleteScaleDown,
    CordonTarget,
    EvictPods,
    MarkGone,
    Repair,
    TerminateTarget,
    UncordonTarget,
)
from holdfast.control.ledger import Transition
from holdfast.control.workflows import Move
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import some
from holdfast.ports.kube import Node
from holdfast.ports.readings import Unknown
from holdfast.ports.store import Condition, attr, remove_all, set_all

MOVES: Final = (
    Move(None, DownPhase.DRAINING, "the targets are stored"),
    Move(None, DownPhase.TERMINATING, "an older autoscaler ended a scale-down of ours; its commits still count"),
    Move(DownPhase.DRAINING, DownPhase.TERMINATING, "the last open target is committed"),
    Move(DownPhase.DRAINING, DownPhase.ABORTING, "a pod forbids the drain, or it takes too long"),
    Move(DownPhase.DRAINING, None, "complete: the last open target was gone without us"),
    Move(DownPhase.TERMINATING, None, "complete: every target is terminated"),
    Move(DownPhase.ABORTING, None, "cleared: every node is uncordoned"),
)

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
    # An older autoscaler that ended an action of ours did not remove this attribute.
    update += attr("scaleDownDrainStartedEpoch").remove() + attr("actionSeq").plus(1)
    return Transition(f"begin scale-down {action}", update, nothing_under_way() & _nothing_committed())


def carry_on(action: ActionId, committed: tuple[InstanceId, ...], now: Instant) -> Transition:
    """Resume with the machines that an earlier action committed, and no others: a commit is final."""
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
    return Transition(f"resume scale-down {action}", update, nothing_under_way() & still)


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
    """The machine was terminated. The list of ids is written as a whole, so no id is in it twice."""
    completed = [*down.completed, *({instance} - set(down.completed))]
    update = attr("scaleDownCompletedInstanceIds").set_to(completed)
    update += attr("scaleDownCommitted").drop_elements([instance])
    return Transition(f"{instance} is done", update, _is_this(down) & attr("scaleDownCommitted").contains(instance))


def gone(down: ScaleDown, instance: InstanceId) -> Transition:
    """The machine is gone, but not terminated by this action."""
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
        # Check each id, not the count: an older autoscaler may have listed one twice.
        condition &= attr("scaleDownCompletedInstanceIds").contains(target)
    return Transition(f"complete scale-down {down.action}", update, condition)


def _is_this(down: ScaleDown) -> Condition:
    return attr("scaleDownActionId").equals(down.action)


def _nothing_committed() -> Condition:
    return attr("scaleDownCommitted").is_absent()


def _is_in(down: ScaleDown, phase: DownPhase) -> Condition:
    return _is_this(down) & attr("scaleDownPhase").equals(str(phase))


# What comes next


def next_steps(down: ScaleDown, seen: Seen, policy: Policy, rules: DrainRules) -> Iterator[ClusterStep]:
    """The steps that resume the action from its current phase. None: wait and look again."""
    if down.needs_phase:
        because = "an older autoscaler began it and nothing is committed, so the drain starts over"
        yield Repair(attributes=("scaleDownPhase",), because=because)
        return
    for instance in sorted(down.committed):
        yield TerminateTarget(instance=instance, because="its node is drained and cordoned, and it was committed")
    if down.phase is DownPhase.ABORTING:
        yield from _aborting(down, seen)
    elif down.open_targets:
        yield from _draining(down, seen, policy, rules)
    elif not down.committed:
        yield CompleteScaleDown(because=f"{some(len(down.targets), 'target')} terminated")


def _draining(down: ScaleDown, seen: Seen, policy: Policy, rules: DrainRules) -> Iterator[ClusterStep]:
    vanished = [instance for instance in down.open_targets if instance in seen.gone]
    for instance in vanished:
        yield MarkGone(instance=instance, because="it is already gone")
    if vanished:
        return
    worker = seen.worker(down.open_targets[0])
    overdue = _overdue(down, seen, policy)
    if overdue is not None and not down.committed and not _is_drained(down, seen, worker, rules):
        yield AbortScaleDown(because=overdue)
        return
    if isinstance(seen.kube, Unknown):
        return
    needed = reason_to_keep_target(down, seen, policy)
    if needed is not None:
        if not down.committed:
            yield AbortScaleDown(because=needed)
        return
    if worker is None or worker.node is None:
        # Not listed, or without a node, but not known to be gone: nothing to drain yet. The timeout decides.
        return
    yield from _drain_one(down, seen, worker, rules)


def reason_to_keep_target(down: ScaleDown, seen: Seen, policy: Policy) -> str | None:
    """Why the next target must stay after all: a worker that was spare when the action began may be needed now."""
    instance = down.open_targets[0]
    leaving = {instance, *down.committed}
    # A Ready worker may be accepted in this tick. If it is in another zone, the last worker of this zone must stay.
    ready = [worker for worker in seen.staying if worker.id not in leaving and (worker.is_accepted or worker.is_ready)]
    # One that is NotReady runs no pods, and may never run any again.
    others = [worker for worker in ready if worker.is_accepted and worker.is_ready]
    if len(others) < policy.min_workers:
        return f"{instance} is needed: removing it leaves {len(others)}, below the minimum of {policy.min_workers}"
    target = seen.worker(instance)
    if target is None or not ready or target.machine.zone in workers_by_zone(others):
        return None
    zone, left = target.machine.zone, [worker for worker in seen.staying if worker.id not in leaving]
    if policy.zones_kept is ZonesKept.ALWAYS or another_zone_has_several(zone, workers_by_zone(left)):
        return f"{instance} is needed: it is the last worker in {zone}"
    return None


def _is_drained(down: ScaleDown, seen: Seen, worker: Worker | None, rules: DrainRules) -> bool:
    """Whether the node is cordoned and empty. A finished drain is not aborted, however long it took."""
    if isinstance(seen.kube, Unknown) or worker is None or not is_cordoned_by(down, worker.node):
        return False
    return drain_view(seen.pods_of(worker), rules).is_drained


def _drain_one(down: ScaleDown, seen: Seen, worker: Worker, rules: DrainRules) -> Iterator[ClusterStep]:
    view = drain_view(seen.pods_of(worker), rules)
    if view.blocked_by is not None:
        if not down.committed:
            yield AbortScaleDown(because=f"{worker.id} cannot be drained: {view.blocked_by}")
    elif not is_cordoned_by(down, worker.node):
        yield CordonTarget(instance=worker.id, because="it is leaving, so no new pods may be scheduled on it")
    elif view.to_evict:
        pods = tuple(str(pod) for pod in view.to_evict)
        yield EvictPods(instance=worker.id, pods=pods, because=f"{some(len(pods), 'pod')} still on it")
    elif view.is_drained:
        yield CommitTarget(instance=worker.id, because="no pods are left on it")


def _aborting(down: ScaleDown, seen: Seen) -> Iterator[ClusterStep]:
    if isinstance(seen.kube, Unknown):
        return
    staying = [instance for instance in down.open_targets if instance not in seen.gone]
    closed = [instance for instance in staying if _needs_uncordon(down, seen.node_of(instance))]
    for instance in closed:
        yield UncordonTarget(instance=instance, because="the scale-down was aborted")
    if not closed:
        yield ClearScaleDown(because="every node that we cordoned is uncordoned")


def is_cordoned_by(down: ScaleDown, node: Node | None) -> bool:
    """Whether the node is cordoned, and by this action."""
    return node is not None and node.is_unschedulable and node.annotations.get(ACTION_ANNOTATION) == down.action


def _needs_uncordon(down: ScaleDown, node: Node | None) -> bool:
    """An older autoscaler leaves no annotation on a node that it cordons: its targets count as cordoned by it."""
    if is_cordoned_by(down, node):
        return True
    return down.is_legacy and node is not None and is_cordoned_by_others(node)


def _overdue(down: ScaleDown, seen: Seen, policy: Policy) -> str | None:
    if seen.seconds_since(down.started) >= policy.stuck_seconds:
        return f"the scale-down did not complete within {policy.stuck_seconds} s"
    if down.drain_started and seen.seconds_since(down.drain_started) >= policy.drain_seconds:
        return f"{down.open_targets[0]} was not drained within {policy.drain_seconds} s"
    return None
