"""Carry notices on. What is urgent needs no lease: it is guarded by the notice's own item and the node's version."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from holdfast.cluster import steps
from holdfast.cluster.drain import drain_view
from holdfast.cluster.hands import Hands
from holdfast.cluster.memory import spots_key
from holdfast.cluster.seen import SPOT_ANNOTATION, Seen
from holdfast.cluster.spot import SpotKind, SpotPhase, read_notice
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import NodeChange
from holdfast.ports.store import Condition, Key, Store, Update, attr, set_all
from holdfast.ports.store.tables import STATE

CLOSED_KEPT_SECONDS: Final = 86_400


def notice_key(instance: InstanceId) -> Key:
    return Key(f"spot#{instance}")


def note(store: Store, cluster: ClusterId, instance: InstanceId, kind: SpotKind, now: Instant) -> bool:
    """Store what EC2 told; False when it is known already. An interruption replaces a hint, never the reverse."""
    # The list of open ones first: a notice that is in it and does not exist yet is found; one that exists and is not
    # in it would be forgotten.
    store.update(STATE, spots_key(cluster), attr("open").add_elements([instance]))
    update = set_all({"kind": str(kind), "phase": str(SpotPhase.NOTICED), "noticeEpoch": now.epoch_seconds})
    unknown = attr("pk").is_absent()
    is_hint = attr("kind").equals(str(SpotKind.REBALANCE)) & attr("phase").equals(str(SpotPhase.NOTICED))
    condition: Condition = unknown | is_hint if kind is SpotKind.INTERRUPTION else unknown
    try:
        store.update(STATE, notice_key(instance), update, condition)
    except WriteConflict:
        return False
    return True


class SpotHand:
    """Carries out the steps that need no lease. `seen` follows what it does."""

    def __init__(self, hands: Hands, seen: Seen) -> None:
        self._hands = hands
        self.seen = seen

    def carry_out(self, step: steps.Step) -> None:
        doing: Callable[[Any], None] = getattr(self, f"_{step.kind}")
        doing(step)

    def _cordon_interrupted(self, step: steps.CordonInterrupted) -> None:
        worker = self.seen.worker(step.instance)
        if worker is not None and worker.node is not None:
            node = self._hands.kube.node(worker.node.name)
            if node is not None and not (node.is_unschedulable and SPOT_ANNOTATION in node.annotations):
                change = NodeChange(
                    unschedulable=True,
                    annotations={SPOT_ANNOTATION: step.instance},
                    expected_version=node.resource_version,
                )
                self._hands.kube.change_node(node, change)
        self._enter(step.instance, SpotPhase.NOTICED, SpotPhase.CORDONED)

    def _evict_interrupted(self, step: steps.EvictInterrupted) -> None:
        worker = self.seen.worker(step.instance)
        if worker is not None and worker.node is not None:
            # What must not be evicted stays until EC2 takes the machine; everything else gets its chance to leave.
            for pod in drain_view(self._hands.kube.pods_on(worker.node.name), self._hands.choices.drain).to_evict:
                self._hands.kube.evict(pod)

    def _enter_spot_phase(self, step: steps.EnterSpotPhase) -> None:
        self._enter(step.instance, SpotPhase.CORDONED, SpotPhase(step.phase))

    def _terminate_interrupted(self, step: steps.TerminateInterrupted) -> None:
        self._hands.machines.terminate(step.instance)
        self.seen = replace(self.seen, known_gone=self.seen.known_gone | {step.instance})

    def _close_notice(self, step: steps.CloseNotice) -> None:
        update = set_all({"phase": str(SpotPhase.CLOSED), "expiresAt": self._expiry()})
        self._hands.store.update(STATE, notice_key(step.instance), update, attr("pk").exists())
        # The list last: until then the notice is found again, and closing twice does no harm.
        self._hands.store.update(STATE, spots_key(self.seen.cluster), attr("open").drop_elements([step.instance]))
        self.seen = self.seen.without_notice(step.instance)

    def _enter(self, instance: InstanceId, before: SpotPhase, after: SpotPhase) -> None:
        self._write(instance, attr("phase").set_to(str(after)), attr("phase").equals(str(before)))

    def _write(self, instance: InstanceId, update: Update, condition: Condition) -> None:
        try:
            new = self._hands.store.update(STATE, notice_key(instance), update, condition).new
        except WriteConflict as conflict:
            if conflict.item is None:
                raise
            new = conflict.item  # somebody else has carried it on: so much the better
        self.seen = self.seen.with_notice(read_notice(new))

    def _expiry(self) -> int:
        return self._hands.clock.now().plus(CLOSED_KEPT_SECONDS).epoch_seconds
