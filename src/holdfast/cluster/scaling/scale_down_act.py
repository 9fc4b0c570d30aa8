"""Carry out the steps of a scale-down. False: nothing more can be done before another look."""

from holdfast.cluster import steps
from holdfast.cluster.drain import DrainView, drain_view, staying_words
from holdfast.cluster.lease_holder import ClusterLeaseHolder
from holdfast.cluster.scaling import scale_down
from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Eviction, Node
from holdfast.ports.readings import Unknown


def begin_scale_down(holder: ClusterLeaseHolder, step: steps.BeginScaleDown) -> None:
    holder.take(scale_down.begin(holder.action, step.targets, holder.now()))


def carry_on_committed(holder: ClusterLeaseHolder, step: steps.CarryOnCommitted) -> None:
    holder.take(scale_down.carry_on(holder.action, step.instances, holder.now()))


def cordon_target(holder: ClusterLeaseHolder, step: steps.CordonTarget) -> bool:
    down, worker = holder.down(), holder.seen.worker(step.instance)
    if worker is None or worker.node is None:
        return False
    if down.drain_started is None:
        holder.take(scale_down.start_drain(down, holder.now()))
    holder.nodes.cordon(worker.node, step.instance, down.action, was_cordoned_by_action=down.is_legacy)
    # Pods are listed again before any is evicted: one may have been scheduled just before the cordon.
    return False


def evict_pods(holder: ClusterLeaseHolder, step: steps.EvictPods) -> bool:
    worker = holder.seen.worker(step.instance)
    if worker is None or worker.node is None or not holder.nodes.stamp(worker.node, holder.down().action):
        return False
    _evict(holder, step.instance, _drain_view(holder, worker.node))
    return False


def _evict(holder: ClusterLeaseHolder, instance: InstanceId, view: DrainView) -> None:
    """Evict the pods that may be evicted; none if one of them blocks the drain."""
    staying: dict[str, str] = {}
    for pod in () if view.blocked_by else view.to_evict:
        answer = holder.ports.kube.evict(pod)
        if answer.outcome is Eviction.BLOCKED:
            # A disruption budget: the next tick tries again, until the drain times out.
            staying[str(pod)] = answer.reason
        holder.keep_lease()
    for words in staying_words(instance, staying):
        holder.report(words)


def commit_target(holder: ClusterLeaseHolder, step: steps.CommitTarget) -> bool:
    worker = holder.seen.worker(step.instance)
    if worker is None or worker.node is None or not holder.nodes.stamp(worker.node, holder.down().action):
        return False
    # Checked again, now that the node is cordoned under our fence: no pod can be scheduled on it any more.
    if not _drain_view(holder, worker.node).is_drained:
        return False
    holder.take(scale_down.commit(holder.down(), step.instance))
    return True


def terminate_target(holder: ClusterLeaseHolder, step: steps.TerminateTarget) -> bool:
    if not _is_still_drained(holder, step.instance) or not holder.terminate(step.instance):
        return False
    holder.take(scale_down.done(holder.down(), step.instance))
    return True


def _is_still_drained(holder: ClusterLeaseHolder, instance: InstanceId) -> bool:
    """Whether the committed target is still cordoned and empty; if not, it is cordoned and drained once more.

    A Node that was registered anew is open, and may have pods again. Without Kubernetes the commit alone counts.
    """
    worker = holder.seen.worker(instance)
    if isinstance(holder.seen.kube, Unknown) or worker is None:
        return True
    node = holder.ports.kube.node(instance if worker.node is None else worker.node.name)
    if node is None or not node.is_ready:
        return True
    if not node.is_unschedulable:
        holder.nodes.cordon(node, instance, holder.down().action)
    view = _drain_view(holder, node)
    _evict(holder, instance, view)
    return view.is_drained


def mark_gone(holder: ClusterLeaseHolder, step: steps.MarkGone) -> None:
    holder.take(scale_down.gone(holder.down(), step.instance))


def abort_scale_down(holder: ClusterLeaseHolder) -> None:
    down = holder.down()
    for instance in down.open_targets[:1]:
        holder.remember_undrainable(instance, down.action)
    holder.take(scale_down.abort(down))


def uncordon_target(holder: ClusterLeaseHolder, step: steps.UncordonTarget) -> bool:
    node = holder.seen.node_of(step.instance)
    if node is not None:
        holder.nodes.uncordon(node)
    return False  # cleared only after a look that shows it uncordoned


def clear_scale_down(holder: ClusterLeaseHolder) -> None:
    holder.take(scale_down.clear(holder.down()))


def complete_scale_down(holder: ClusterLeaseHolder) -> None:
    holder.take(scale_down.complete(holder.down(), holder.now()))


def _drain_view(holder: ClusterLeaseHolder, node: Node) -> DrainView:
    return drain_view(holder.ports.kube.pods_on(node.name), holder.ports.choices.drain)
