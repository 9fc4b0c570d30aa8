"""Carry notices on. What is urgent needs no lease: it is guarded by the notice's own item and the node's version."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from holdfast.cluster import steps
from holdfast.cluster.alarms import refused_terminations
from holdfast.cluster.drain import DrainView, drain_view
from holdfast.cluster.hands import Hands, NotDone
from holdfast.cluster.holder import UNKNOWN_IS_GONE_SECONDS
from holdfast.cluster.memory import spots_key
from holdfast.cluster.nodes import FOREIGN_CORDON_ANNOTATION, is_cordoned_by_others
from holdfast.cluster.seen import ACTION_ANNOTATION, SPOT_ANNOTATION, Seen
from holdfast.cluster.spot import Notice as SpotNotice
from holdfast.cluster.spot import Replacement, SpotKind, SpotPhase, read_notice
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.kernel.errors import StoreUnavailable, WriteConflict
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.kube import Eviction, Kube, Node, NodeChange
from holdfast.ports.machines import MachineError
from holdfast.ports.notify import Notice
from holdfast.ports.store import (
    CheckItem,
    Condition,
    Item,
    Key,
    Store,
    Update,
    UpdateItem,
    attr,
    remove_all,
    set_all,
)
from holdfast.ports.store.tables import STATE

CLOSED_KEPT_SECONDS: Final = 86_400
# What is told again within so long of the first time is the same; a node is not replaced in vain again and again.
AGAIN_SECONDS: Final = {SpotKind.INTERRUPTION: 300, SpotKind.REBALANCE: 300, SpotKind.NOT_READY: 3600}
NOTE_TRIES_MOST: Final = 5

# Phases in which the node is to be closed.
_CLOSING: Final = (SpotPhase.NOTICED, SpotPhase.CORDONED, SpotPhase.DRAINED)


def notice_key(instance: InstanceId) -> Key:
    return Key(f"spot#{instance}")


def note(store: Store, cluster: ClusterId, instance: InstanceId, kind: SpotKind, now: Instant) -> bool:
    """Store what is known of a machine; False when that is known already. An interruption replaces what is milder.

    A notice that is not closed is always among the open ones: it is noted in one write with the list, and taken off
    the list only in one with a look that it is closed.
    """
    values: dict[str, Any] = {"kind": str(kind), "phase": str(SpotPhase.NOTICED), "noticeEpoch": now.epoch_seconds}
    update = set_all(values)
    same: Condition = attr("pk").is_absent()
    listed = UpdateItem(STATE, spots_key(cluster), attr("open").add_elements([instance]))
    for _ in range(NOTE_TRIES_MOST):
        try:
            store.transact([listed, UpdateItem(STATE, notice_key(instance), update, same)])
        except WriteConflict as conflict:
            found = conflict.item
            if found is None or _says_as_much(found, kind, now):
                _drop_closed(store, cluster, instance, found)
                return False
            update, same = _following(found, values), _as_found(found)
        else:
            return True
    # Whoever sent it sends it again; what is noted meanwhile is not lost, either.
    raise StoreUnavailable(f"spot notice of {instance}: others change it at the same time; it is told again")


def _says_as_much(found: Item, kind: SpotKind, now: Instant) -> bool:
    """Whether the notice that is there leaves nothing to note. One that is closed says nothing of what comes later.

    Nor does an interruption that was closed because the machine stays, even just now: a wrong clock may have done so.
    """
    is_interruption = kind is SpotKind.INTERRUPTION
    phase = found.get("phase")
    if phase != SpotPhase.CLOSED:
        is_milder = found.get("kind") != SpotKind.INTERRUPTION and phase in (SpotPhase.NOTICED, SpotPhase.CORDONED)
        return not (is_interruption and (is_milder or phase == SpotPhase.OPENING))
    is_as_grave = found.get("kind") in (kind, SpotKind.INTERRUPTION)
    is_over = is_as_grave and not (is_interruption and found.get("stays", False))
    return is_over and now.epoch_seconds < found.get("noticeEpoch", 0) + AGAIN_SECONDS[kind]


def _following(found: Item, values: Mapping[str, Any]) -> Update:
    """The notice anew. Never of the same second as the one before: its mark on the node would be the same."""
    earlier = read_notice(found)
    anew = {**values, "noticeEpoch": max(values["noticeEpoch"], earlier.noticed.epoch_seconds + 1)}
    update = remove_all("expiresAt", "cordonedEpoch", "lastError", "stays")
    # What is not closed keeps its replacement; what is, if it came into service.
    if earlier.phase is SpotPhase.CLOSED and earlier.replacement is not Replacement.ACCEPTED:
        # Tokens are never used again: the next replacement begins where the attempts of the last one ended.
        anew["firstAttempt"] = earlier.slot.attempt + 1 if earlier.slot else earlier.first_attempt
        update += remove_all("replacement", "plan", "plannedEpoch", "launchedEpoch", "templateRef")
    return set_all(anew) + update


def _as_found(found: Item) -> Condition:
    """Nobody has carried it on, or noted another one, since."""
    notice = read_notice(found)
    same = attr("phase").equals(str(notice.phase)) & attr("kind").equals(str(notice.kind))
    return same & _is_the_same(notice)


def _drop_closed(store: Store, cluster: ClusterId, instance: InstanceId, found: Item | None) -> None:
    """Take it off the list of open ones, where whoever closed it died before that."""
    if found is not None and found.get("phase") == SpotPhase.CLOSED:
        dropped = UpdateItem(STATE, spots_key(cluster), attr("open").drop_elements([instance]))
        with suppress(WriteConflict):  # it is noted anew, just now
            store.transact([CheckItem(STATE, notice_key(instance), _as_found(found)), dropped])


def undo_cordon(kube: Kube, node: Node) -> None:
    """Open what was closed for a notice, if it is as it was read. What others or a scale-down closed stays closed."""
    stays = FOREIGN_CORDON_ANNOTATION in node.annotations or ACTION_ANNOTATION in node.annotations
    annotations = {SPOT_ANNOTATION: None}
    if ACTION_ANNOTATION not in node.annotations:
        annotations[FOREIGN_CORDON_ANNOTATION] = None
    unschedulable = None if stays else False
    kube.change_node(
        node, NodeChange(unschedulable=unschedulable, annotations=annotations, expected_version=node.resource_version)
    )


def _is_closed_for(notice: SpotNotice, node: Node) -> bool:
    return node.is_unschedulable and node.annotations.get(SPOT_ANNOTATION) == notice.mark


def _is_the_same(notice: SpotNotice) -> Condition:
    """The same machine may be given notice of again."""
    return attr("noticeEpoch").equals(notice.noticed.epoch_seconds)


class SpotHand:
    """Carries out the steps that need no lease. `seen` follows what it does; `told` is what became of it.

    `alarms` are what a person is to be told at once.
    """

    def __init__(self, hands: Hands, seen: Seen) -> None:
        self._hands = hands
        self.seen = seen
        self.told: list[str] = []
        self.alarms: list[Notice] = []

    def carry_out(self, step: steps.Step) -> None:
        doing: Callable[[Any], None] = getattr(self, f"_{step.kind}")
        doing(step)

    def _cordon_interrupted(self, step: steps.CordonInterrupted) -> None:
        notice = self.seen.notices[step.instance]
        node = self._node(step.instance)
        if node is not None and not _is_closed_for(notice, node):
            # After the node, and before it is changed by its version: who is late must not close it for what is over.
            self._check_not_over(notice)
            foreign = "true" if is_cordoned_by_others(node) else None
            change = NodeChange(
                unschedulable=True,
                annotations={SPOT_ANNOTATION: notice.mark, FOREIGN_CORDON_ANNOTATION: foreign},
                expected_version=node.resource_version,
            )
            self._hands.kube.change_node(node, change)
        now = self._hands.clock.now().epoch_seconds
        update = set_all({"phase": str(SpotPhase.CORDONED), "cordonedEpoch": now})
        self._write(step.instance, update, attr("phase").equals(str(SpotPhase.NOTICED)) & _is_the_same(notice))
        if self._phase(step.instance) in (SpotPhase.OPENING, SpotPhase.CLOSED):
            self._uncordon(notice)  # it was given back, just now, by somebody else

    def _check_not_over(self, notice: SpotNotice) -> None:
        item = self._hands.store.get(STATE, notice_key(notice.instance))
        current = read_notice(item) if item is not None else None
        if current is None or current.noticed != notice.noticed or current.phase not in _CLOSING:
            raise NotDone(f"the notice of {notice.instance} was carried on, or is over; the next tick looks again")

    def _open_interrupted(self, step: steps.OpenInterrupted) -> None:
        # Stored before the node is opened: who finds it empty at this moment can then not store that it is drained.
        if self._phase(step.instance) is not SpotPhase.OPENING:
            self._enter(step.instance, self._phase(step.instance), SpotPhase.OPENING)
        if self._phase(step.instance) is SpotPhase.OPENING:
            self._uncordon(self.seen.notices[step.instance])
            self._close(step.instance)

    def _phase(self, instance: InstanceId) -> SpotPhase:
        return self.seen.notices[instance].phase

    def _uncordon(self, notice: SpotNotice) -> None:
        """Undo the cordon of this notice. That of a later one stays, and what is left of an earlier one is swept."""
        node = self._node(notice.instance)
        if node is not None and node.annotations.get(SPOT_ANNOTATION) == notice.mark:
            undo_cordon(self._hands.kube, node)

    def _evict_interrupted(self, step: steps.EvictInterrupted) -> None:
        worker = self.seen.worker(step.instance)
        if worker is None or worker.node is None:
            return
        # What must not be evicted stays until EC2 takes the machine; everything else gets its chance to leave.
        for pod in self._pods(worker.node.name).to_evict:
            answer = self._hands.kube.evict(pod)
            if answer.outcome is Eviction.BLOCKED:
                self.told.append(cut(f"pod {pod} stays on {step.instance} for now: {answer.reason}", 500))

    def _enter_spot_phase(self, step: steps.EnterSpotPhase) -> None:
        if step.phase == SpotPhase.DRAINED and not self._is_drained(step.instance):
            return
        self._enter(step.instance, SpotPhase.CORDONED, SpotPhase(step.phase))

    def _is_drained(self, instance: InstanceId) -> bool:
        """Looked at once more, now that the node is closed: lists may be old."""
        node = self._node(instance)
        return node is not None and self._is_empty(self.seen.notices[instance], node)

    def _is_empty(self, notice: SpotNotice, node: Node) -> bool:
        """Closed for this notice, and without a pod that is to be moved."""
        if not _is_closed_for(notice, node):
            return False
        view = self._pods(node.name)
        return view.is_drained or (view.is_left_to_die and not node.is_ready)

    def _node(self, instance: InstanceId) -> Node | None:
        worker = self.seen.worker(instance)
        return self._hands.kube.node(worker.node.name) if worker is not None and worker.node is not None else None

    def _pods(self, node: str) -> DrainView:
        return drain_view(self._hands.kube.pods_on(node), self._hands.choices.drain)

    def _terminate_interrupted(self, step: steps.TerminateInterrupted) -> None:
        notice = self.seen.notices[step.instance]
        if notice.kind is not SpotKind.INTERRUPTION:
            node = self._node(step.instance)
            if node is not None and not self._is_empty(notice, node):
                raise NotDone(f"{step.instance} is open, or pods have come to it")
        try:
            self._hands.machines.terminate(step.instance)
        except MachineError as error:
            if not self._is_forgotten(step.instance, error):
                self.alarms.extend(refused_terminations(step.instance, error))
                raise NotDone(cut(f"{step.instance} could not be terminated: {error}", 500)) from error
            if notice.replacement.is_settled:
                self._close(step.instance)
        self.seen = replace(self.seen, known_gone=self.seen.known_gone | {step.instance})

    def _is_forgotten(self, instance: InstanceId, error: MachineError) -> bool:
        """EC2 lists a machine for an hour after its end, and a replacement may take longer than that to be settled."""
        is_old = self.seen.now.seconds_since(self.seen.notices[instance].noticed) >= UNKNOWN_IS_GONE_SECONDS
        return is_old and ruling_on(error.code).verdict is Ec2Verdict.UNKNOWN_MACHINE

    def _close_notice(self, step: steps.CloseNotice) -> None:
        self._close(step.instance)

    def _close(self, instance: InstanceId) -> None:
        noticed = self.seen.notices[instance]
        update = set_all({"phase": str(SpotPhase.CLOSED), "expiresAt": self._expiry()})
        if noticed.phase is SpotPhase.OPENING:
            update += attr("stays").set_to(True)
        # Not one that meanwhile became an interruption, or was planned a replacement, nor another one.
        same = attr("phase").equals(str(noticed.phase)) & attr("kind").equals(str(noticed.kind)) & _is_the_same(noticed)
        replacement = attr("replacement")
        is_open = noticed.replacement is Replacement.OPEN
        same &= replacement.is_absent() if is_open else replacement.equals(str(noticed.replacement))
        closed = attr("phase").equals(str(SpotPhase.CLOSED)) & _is_the_same(noticed)
        # In one write: a notice that comes in between would be taken off the list, and never be found again.
        dropped = UpdateItem(STATE, spots_key(self.seen.cluster), attr("open").drop_elements([instance]))
        self._hands.store.transact([UpdateItem(STATE, notice_key(instance), update, same | closed), dropped])
        self.seen = self.seen.without_notice(instance)

    def _enter(self, instance: InstanceId, before: SpotPhase, after: SpotPhase) -> None:
        """Only of the notice that was read: the same machine may have been given notice of again since."""
        same = _is_the_same(self.seen.notices[instance])
        self._write(instance, attr("phase").set_to(str(after)), attr("phase").equals(str(before)) & same)

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
