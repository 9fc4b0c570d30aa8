"""Carry out repairs, and the steps of the sweeper."""

from holdfast.cluster import steps
from holdfast.cluster.drain import has_work
from holdfast.cluster.lease_holder import ClusterLeaseHolder
from holdfast.cluster.seen import SPOT_ANNOTATION
from holdfast.cluster.spot.notice import CLOSED_KEPT_SECONDS, SpotKind, SpotPhase, notice_key, read_notice, store_notice
from holdfast.cluster.spot.notice_handler import undo_cordon
from holdfast.cluster.sweeping import legacy, lost_state, passwords
from holdfast.cluster.sweeping.sweep import LEFT_CLOSED_SECONDS, is_left_over
from holdfast.control.steps import NotDone
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item
from holdfast.ports.store.tables import STATE


def repair(holder: ClusterLeaseHolder, step: steps.Repair) -> None:
    if set(step.attributes) <= set(lost_state.COUNTERS):
        holder.report(step.because)
        holder.raise_counters(lost_state.raised_counters(holder.seen))
    else:
        holder.take(legacy.repair(holder.seen.state, step.attributes, holder.seen.now))


def collect_machine(holder: ClusterLeaseHolder, step: steps.CollectMachine) -> bool:
    if not holder.condemn(step.instance, holder.action):
        raise NotDone(f"{step.instance} came into service or has pods, and is kept")
    return holder.terminate(step.instance)


def accept_again(holder: ClusterLeaseHolder, step: steps.AcceptAgain) -> None:
    worker = holder.seen.worker(step.instance)
    if worker is None or worker.node is None:
        return
    # Without the tag only its pods show that it was in service, and the list of pods may be old.
    if not worker.was_accepted and not has_work(holder.ports.kube.pods_on(worker.node.name)):
        raise NotDone(f"{step.instance} has no pods any more")
    accepted = holder.accept(worker, worker.node, holder.action)  # also changes what is seen of the machine
    holder.seen = holder.seen.with_node(accepted)


def mark_accepted(holder: ClusterLeaseHolder, step: steps.MarkAccepted) -> None:
    if not holder.mark_accepted(step.instance, holder.action):
        raise NotDone(f"{step.instance} could not be tagged; it is tried again later")


def remove_node(holder: ClusterLeaseHolder, step: steps.RemoveNode) -> None:
    kube = holder.ports.kube
    node = kube.node(step.node)
    # Judged again: an older bootstrap names a node by its address, which another machine may have by now.
    if node is not None and is_left_over(holder.seen, node):
        # K3s rejects a node of the same name with another password, and EC2 reuses addresses and therefore names.
        # The secret first: while the node exists, another process can still finish the removal.
        kube.delete_secret(passwords.NAMESPACE, passwords.password_name(step.node))
        kube.delete_node(node)
        if step.node in passwords.ended(holder.seen):
            holder.take(passwords.deleted(holder.seen, (InstanceId(step.node),)))
    holder.seen = holder.seen.without_node(step.node)


def delete_passwords(holder: ClusterLeaseHolder, step: steps.DeletePasswords) -> None:
    kube = holder.ports.kube
    # Read each node again: one that exists after all is removed as a node, together with its secret.
    nodeless = tuple(name for name in step.nodes if kube.node(name) is None)
    for name in nodeless:
        kube.delete_secret(passwords.NAMESPACE, passwords.password_name(name))
    if nodeless:
        holder.take(passwords.deleted(holder.seen, nodeless))


def open_left_closed(holder: ClusterLeaseHolder, step: steps.OpenLeftClosed) -> None:
    worker = holder.seen.worker(step.instance)
    if worker is not None and worker.node is not None:
        holder.nodes.uncordon(worker.node)


def open_left_marked(holder: ClusterLeaseHolder, step: steps.OpenLeftMarked) -> None:
    worker = holder.seen.worker(step.instance)
    node = holder.ports.kube.node(worker.node.name) if worker is not None and worker.node is not None else None
    # Read the node first: a later notice puts its own mark on it, and then our change is refused.
    item = holder.ports.store.get(STATE, notice_key(step.instance))
    if item is not None and not _is_long_over(item, holder.now()):
        raise NotDone(f"the notice of {step.instance} is still open, or was closed only recently")
    if node is not None and SPOT_ANNOTATION in node.annotations:
        undo_cordon(holder.ports.kube, node)


def replace_not_ready(holder: ClusterLeaseHolder, step: steps.ReplaceNotReady) -> None:
    store, cluster = holder.ports.store, holder.seen.cluster
    if not store_notice(store, cluster, step.instance, SpotKind.NOT_READY, holder.now()):
        # A recent attempt failed.
        holder.remember_undrainable(step.instance)
    item = store.get(STATE, notice_key(step.instance))
    if item is not None:
        holder.seen = holder.seen.with_notice(read_notice(item))


def _is_long_over(item: Item, now: Instant) -> bool:
    """Closed an hour ago, or closed because the machine stays: a terminated one may be listed until then."""
    if read_notice(item).phase is not SpotPhase.CLOSED:
        return False
    closed_epoch = item.get("expiresAt", 0) - CLOSED_KEPT_SECONDS
    return bool(item.get("stays", False)) or now.epoch_seconds - closed_epoch >= LEFT_CLOSED_SECONDS
