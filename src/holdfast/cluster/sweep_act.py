"""Carry out repairs, and the steps of the sweeper."""

from holdfast.cluster import ahead, legacy, steps
from holdfast.cluster.hands import NotDone
from holdfast.cluster.holder import Holder
from holdfast.cluster.seen import SPOT_ANNOTATION
from holdfast.cluster.spot import SpotKind, SpotPhase, read_notice
from holdfast.cluster.spot_act import CLOSED_KEPT_SECONDS, note, notice_key, undo_cordon
from holdfast.cluster.sweep import LEFT_CLOSED_SECONDS
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item
from holdfast.ports.store.tables import STATE


class SweepHand:
    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def repair(self, step: steps.Repair) -> None:
        holder = self._holder
        if set(step.attributes) <= set(ahead.COUNTERS):
            holder.tell(step.because)
            holder.raise_counters(ahead.raised(holder.seen))
        else:
            holder.take(legacy.repair(holder.seen.state, step.attributes, holder.seen.now))

    def collect_machine(self, step: steps.CollectMachine) -> bool:
        holder = self._holder
        if not holder.close_unaccepted(step.instance, holder.action):
            return True  # accepted meanwhile, and kept
        return holder.terminate(step.instance)

    def remove_node(self, step: steps.RemoveNode) -> None:
        kube = self._holder.hands.kube
        node = kube.node(step.node)
        if node is not None and not node.is_ready:
            # K3s refuses a node of the same name with another password, and EC2 uses addresses, so names, again.
            # The secret first: while the node is there, whoever comes next knows that it is to go.
            kube.delete_secret("kube-system", f"{step.node}.node-password.k3s")
            kube.delete_node(node)
        self._holder.seen = self._holder.seen.without_node(step.node)

    def open_left_closed(self, step: steps.OpenLeftClosed) -> None:
        worker = self._holder.seen.worker(step.instance)
        if worker is not None and worker.node is not None:
            self._holder.nodes.open_again(worker.node)

    def open_left_marked(self, step: steps.OpenLeftMarked) -> None:
        holder = self._holder
        worker = holder.seen.worker(step.instance)
        node = holder.hands.kube.node(worker.node.name) if worker is not None and worker.node is not None else None
        # The node first: a notice that comes after this read puts its own mark on it, and then our change is refused.
        item = holder.hands.store.get(STATE, notice_key(step.instance))
        if item is not None and not _is_long_over(item, holder.now()):
            raise NotDone(f"the notice of {step.instance} is not over, or not for long")
        if node is not None and SPOT_ANNOTATION in node.annotations:
            undo_cordon(holder.hands.kube, node)

    def replace_not_ready(self, step: steps.ReplaceNotReady) -> None:
        holder = self._holder
        store, cluster = holder.hands.store, holder.seen.cluster
        if not note(store, cluster, step.instance, SpotKind.NOT_READY, holder.now()):
            # It was tried, in vain, not long ago.
            holder.remember_undrainable(step.instance)
        item = store.get(STATE, notice_key(step.instance))
        if item is not None:
            holder.seen = holder.seen.with_notice(read_notice(item))


def _is_long_over(item: Item, now: Instant) -> bool:
    """Closed, and an hour ago, unless the machine was to stay: until then one that was terminated may look alive."""
    if read_notice(item).phase is not SpotPhase.CLOSED:
        return False
    closed_epoch = item.get("expiresAt", 0) - CLOSED_KEPT_SECONDS
    return bool(item.get("stays", False)) or now.epoch_seconds - closed_epoch >= LEFT_CLOSED_SECONDS
