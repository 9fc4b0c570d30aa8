"""Carry notices on. What is urgent needs no lease: it is guarded by the notice's own item and the node's version."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

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
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.kube import Eviction, Kube, Node, NodeChange
from holdfast.ports.machines import MachineError
from holdfast.ports.notify import Notice
from holdfast.ports.store import Condition, Key, Store, Update, attr, remove_all, set_all
from holdfast.ports.store.tables import STATE

CLOSED_KEPT_SECONDS: Final = 86_400
# What is told again within so long of the first time is the same; a node is not replaced in vain again and again.
AGAIN_SECONDS: Final = {SpotKind.INTERRUPTION: 300, SpotKind.REBALANCE: 300, SpotKind.NOT_READY: 3600}


# Phases in which the node is to be closed.
_CLOSING: Final = (SpotPhase.NOTICED, SpotPhase.CORDONED, SpotPhase.DRAINED)


def notice_key(instance: InstanceId) -> Key:
    return Key(f"spot#{instance}")


def note(store: Store, cluster: ClusterId, instance: InstanceId, kind: SpotKind, now: Instant) -> bool:
    """Store what is known of a machine; False when that is known already. An interruption replaces what is milder."""
    # The list of open ones first: a notice that is in it and does not exist yet is found; one that exists and is not
    # in it would be forgotten.
    store.update(STATE, spots_key(cluster), attr("open").add_elements([instance]))
    update = set_all({"kind": str(kind), "phase": str(SpotPhase.NOTICED), "noticeEpoch": now.epoch_seconds})
    is_new: Condition = attr("pk").is_absent()
    is_mild = attr("kind").differs_from(str(SpotKind.INTERRUPTION)) & attr("phase").equals(str(SpotPhase.NOTICED))
    is_staying = attr("phase").equals(str(SpotPhase.OPENING))
    may_follow = is_new | is_mild | is_staying if kind is SpotKind.INTERRUPTION else is_new
    try:
        store.update(STATE, notice_key(instance), update, may_follow)
    except WriteConflict as conflict:
        return _note_again(store, cluster, instance, kind, now, conflict)
    return True


def _note_again(
    store: Store, cluster: ClusterId, instance: InstanceId, kind: SpotKind, now: Instant, conflict: WriteConflict
) -> bool:
    """There is a notice. One that is closed says nothing of what comes later.

    Nor does an interruption that was closed because the machine stays, even just now: a wrong clock may have done so.
    """
    found = conflict.item
    if found is None or found.get("phase") != SpotPhase.CLOSED:
        return False
    is_as_grave = found.get("kind") in (kind, SpotKind.INTERRUPTION)
    is_over = is_as_grave and not (kind is SpotKind.INTERRUPTION and found.get("stays", False))
    if is_over and now.epoch_seconds < found.get("noticeEpoch", 0) + AGAIN_SECONDS[kind]:
        store.update(STATE, spots_key(cluster), attr("open").drop_elements([instance]))
        return False
    earlier = read_notice(found)
    values = {"kind": str(kind), "phase": str(SpotPhase.NOTICED), "noticeEpoch": now.epoch_seconds}
    update = remove_all("expiresAt", "cordonedEpoch", "lastError", "stays")
    if earlier.replacement is not Replacement.ACCEPTED:  # else it has its replacement, and gets no other
        # Tokens are never used again: the next replacement begins where the attempts of the last one ended.
        values["firstAttempt"] = earlier.slot.attempt + 1 if earlier.slot else earlier.first_attempt
        update += remove_all("replacement", "plan", "plannedEpoch", "launchedEpoch", "templateRef")
    same = attr("phase").equals(str(SpotPhase.CLOSED)) & attr("noticeEpoch").equals(found["noticeEpoch"])
    try:
        store.update(STATE, notice_key(instance), set_all(values) + update, same)
    except WriteConflict:
        return False
    return True


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
        closed = attr("phase").equals(str(SpotPhase.CLOSED))
        self._hands.store.update(STATE, notice_key(instance), update, same | closed)
        # The list last: until then the notice is found again, and closing twice does no harm.
        self._hands.store.update(STATE, spots_key(self.seen.cluster), attr("open").drop_elements([instance]))
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
