"""Carry out the steps of a scale-down."""

from holdfast.cluster import scale_down, steps
from holdfast.cluster.drain import DrainView, drain_view
from holdfast.cluster.holder import Holder
from holdfast.ports.kube import Eviction, Node


class ScaleDownHand:
    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def begin_scale_down(self, step: steps.BeginScaleDown) -> None:
        holder = self._holder
        holder.take(scale_down.begin(holder.action, step.targets, holder.now()))

    def carry_on_committed(self, step: steps.CarryOnCommitted) -> None:
        holder = self._holder
        holder.take(scale_down.carry_on(holder.action, step.instances, holder.now()))

    def cordon_target(self, step: steps.CordonTarget) -> bool:
        holder, down = self._holder, self._holder.down()
        worker = holder.seen.worker(step.instance)
        if worker is None or worker.node is None:
            return False
        if down.drain_started is None:
            holder.take(scale_down.start_drain(down, holder.now()))
        holder.nodes.close(worker.node, down.action, is_found_closed_by_it=down.is_legacy)
        # Pods are listed anew before any is evicted: one may have come just before the node was closed.
        return False

    def evict_pods(self, step: steps.EvictPods) -> bool:
        holder = self._holder
        worker = holder.seen.worker(step.instance)
        if worker is None or worker.node is None or not holder.nodes.stamp(worker.node, holder.down().action):
            return False
        view = self._view(worker.node)
        if view.blocked_by is None:
            for pod in view.to_evict:
                answer = holder.hands.kube.evict(pod)
                if answer.outcome is Eviction.BLOCKED:
                    # A disruption budget: the next tick asks again, until the drain's time is over.
                    holder.tell(f"pod {pod} stays on {step.instance} for now: {answer.reason}")
                holder.hold_on()
        return False

    def commit_target(self, step: steps.CommitTarget) -> bool:
        holder = self._holder
        worker = holder.seen.worker(step.instance)
        if worker is None or worker.node is None or not holder.nodes.stamp(worker.node, holder.down().action):
            return False
        # Looked at once more, now that the node is closed under our fence: nothing can come to it any more.
        if not self._view(worker.node).is_drained:
            return False
        holder.take(scale_down.commit(holder.down(), step.instance))
        return True

    def terminate_target(self, step: steps.TerminateTarget) -> bool:
        if not self._holder.terminate(step.instance):
            return False
        self._holder.take(scale_down.done(self._holder.down(), step.instance))
        return True

    def mark_gone(self, step: steps.MarkGone) -> None:
        self._holder.take(scale_down.gone(self._holder.down(), step.instance))

    def abort_scale_down(self, _: steps.AbortScaleDown) -> None:
        holder, down = self._holder, self._holder.down()
        for instance in down.open_targets[:1]:
            holder.remember_undrainable(instance)
        holder.take(scale_down.abort(down))

    def uncordon_target(self, step: steps.UncordonTarget) -> bool:
        worker = self._holder.seen.worker(step.instance)
        if worker is not None and worker.node is not None:
            self._holder.nodes.open_again(worker.node)
        return False  # cleared only after a look that shows it open

    def clear_scale_down(self, _: steps.ClearScaleDown) -> None:
        self._holder.take(scale_down.clear(self._holder.down()))

    def complete_scale_down(self, _: steps.CompleteScaleDown) -> None:
        self._holder.take(scale_down.complete(self._holder.down(), self._holder.now()))

    def _view(self, node: Node) -> DrainView:
        return drain_view(self._holder.hands.kube.pods_on(node.name), self._holder.hands.choices.drain)
