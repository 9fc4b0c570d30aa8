"""Carry out the steps of spot notices, without the lease: the notice's item and the node's version guard them."""

from typing import Final, assert_never

from msgspec.structs import replace

from holdfast.cluster import steps
from holdfast.cluster.drain import DrainView, drain_view, staying_words
from holdfast.cluster.lease_holder import UNKNOWN_IS_GONE_SECONDS
from holdfast.cluster.memory import spots_key
from holdfast.cluster.nodes import FOREIGN_CORDON_ANNOTATION, is_cordoned_by_others, naming
from holdfast.cluster.notifications import refused_terminations
from holdfast.cluster.ports import WritePorts
from holdfast.cluster.seen import ACTION_ANNOTATION, SPOT_ANNOTATION, Seen
from holdfast.cluster.spot.notice import (
    CLOSED_KEPT_SECONDS,
    Replacement,
    SpotKind,
    SpotNotice,
    SpotPhase,
    is_same_notice,
    notice_key,
    read_notice,
)
from holdfast.control.steps import NotDone
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.text import cut
from holdfast.ports.kube import Eviction, Kube, Node, NodeChange
from holdfast.ports.machines import MachineError
from holdfast.ports.notify import Notification
from holdfast.ports.store import Condition, Update, UpdateItem, attr, set_all
from holdfast.ports.store.tables import STATE

# The phases in which the node must be cordoned.
_CORDON_PHASES: Final = (SpotPhase.NOTICED, SpotPhase.CORDONED, SpotPhase.DRAINED)


def undo_cordon(kube: Kube, node: Node) -> None:
    """Undo a notice's cordon, unless the node has changed. It stays cordoned if others or a scale-down cordoned it."""
    stays = FOREIGN_CORDON_ANNOTATION in node.annotations or ACTION_ANNOTATION in node.annotations
    annotations = {SPOT_ANNOTATION: None}
    if ACTION_ANNOTATION not in node.annotations:
        annotations[FOREIGN_CORDON_ANNOTATION] = None
    unschedulable = None if stays else False
    kube.change_node(
        node, NodeChange(unschedulable=unschedulable, annotations=annotations, expected_version=node.resource_version)
    )


def _is_cordoned_for(notice: SpotNotice, node: Node) -> bool:
    return node.is_unschedulable and node.annotations.get(SPOT_ANNOTATION) == notice.mark


class NoticeHandler:
    """Carries out the steps of notices, and keeps `seen` up to date.

    `reports` are results of steps, for the log; `notifications` go to operators at once.
    """

    def __init__(self, ports: WritePorts, seen: Seen) -> None:
        self._ports = ports
        self.seen = seen
        self.reports: list[str] = []
        self.notifications: list[Notification] = []

    def carry_out(self, step: steps.SpotStep) -> None:
        match step:
            case steps.CordonInterrupted():
                self._cordon(step)
            case steps.EvictInterrupted():
                self._evict(step)
            case steps.EnterSpotPhase():
                self._enter_phase(step)
            case steps.TerminateInterrupted():
                self._terminate(step)
            case steps.OpenInterrupted():
                self._open(step)
            case steps.CloseNotice():
                self._close(step.instance)
            case _:
                assert_never(step)

    def _cordon(self, step: steps.CordonInterrupted) -> None:
        notice = self.seen.notices[step.instance]
        node = self._node(step.instance)
        if node is not None and not _is_cordoned_for(notice, node):
            # After reading the node, and before changing it by version: an old notice must not cordon it.
            self._check_not_over(notice)
            foreign = "true" if is_cordoned_by_others(node) else None
            marks = {SPOT_ANNOTATION: notice.mark, FOREIGN_CORDON_ANNOTATION: foreign, **naming(step.instance, node)}
            change = NodeChange(unschedulable=True, annotations=marks, expected_version=node.resource_version)
            self._ports.kube.change_node(node, change)
        now = self._ports.clock.now().epoch_seconds
        update = set_all({"phase": str(SpotPhase.CORDONED), "cordonedEpoch": now})
        self._write(step.instance, update, attr("phase").equals(str(SpotPhase.NOTICED)) & is_same_notice(notice))
        if self._phase(step.instance) in (SpotPhase.OPENING, SpotPhase.CLOSED):
            self._uncordon(notice)  # another process has just uncordoned it

    def _check_not_over(self, notice: SpotNotice) -> None:
        item = self._ports.store.get(STATE, notice_key(notice.instance))
        current = read_notice(item) if item is not None else None
        if current is None or current.noticed != notice.noticed or current.phase not in _CORDON_PHASES:
            raise NotDone(f"the notice of {notice.instance} has changed; the next tick looks again")

    def _open(self, step: steps.OpenInterrupted) -> None:
        # Stored before the uncordon: a process that finds the node empty at this moment can no longer store DRAINED.
        if self._phase(step.instance) is not SpotPhase.OPENING:
            self._enter(step.instance, self._phase(step.instance), SpotPhase.OPENING)
        if self._phase(step.instance) is SpotPhase.OPENING:
            self._uncordon(self.seen.notices[step.instance])
            self._close(step.instance)

    def _phase(self, instance: InstanceId) -> SpotPhase:
        return self.seen.notices[instance].phase

    def _uncordon(self, notice: SpotNotice) -> None:
        """Undo the cordon of this notice. A later notice's cordon stays, and the sweeper undoes an earlier one's."""
        node = self._node(notice.instance)
        if node is not None and node.annotations.get(SPOT_ANNOTATION) == notice.mark:
            undo_cordon(self._ports.kube, node)

    def _evict(self, step: steps.EvictInterrupted) -> None:
        worker = self.seen.worker(step.instance)
        if worker is None or worker.node is None:
            return
        # Pods that must not be evicted stay until EC2 reclaims the machine; all others are evicted.
        staying: dict[str, str] = {}
        for pod in self._pods(worker.node.name).to_evict:
            answer = self._ports.kube.evict(pod)
            if answer.outcome is Eviction.BLOCKED:
                staying[str(pod)] = answer.reason
        self.reports += [cut(words, 500) for words in staying_words(step.instance, staying)]

    def _enter_phase(self, step: steps.EnterSpotPhase) -> None:
        if step.phase == SpotPhase.DRAINED and not self._is_drained(step.instance):
            return
        self._enter(step.instance, SpotPhase.CORDONED, SpotPhase(step.phase))

    def _is_drained(self, instance: InstanceId) -> bool:
        """Read again now that the node is cordoned: the lists may be old."""
        node = self._node(instance)
        return node is not None and self._is_empty(self.seen.notices[instance], node)

    def _is_empty(self, notice: SpotNotice, node: Node) -> bool:
        """Whether the node is cordoned for this notice and has no pods left to evict."""
        if not _is_cordoned_for(notice, node):
            return False
        view = self._pods(node.name)
        return view.is_drained or (view.is_left_to_die and not node.is_ready)

    def _node(self, instance: InstanceId) -> Node | None:
        worker = self.seen.worker(instance)
        return self._ports.kube.node(worker.node.name) if worker is not None and worker.node is not None else None

    def _pods(self, node: str) -> DrainView:
        return drain_view(self._ports.kube.pods_on(node), self._ports.choices.drain)

    def _terminate(self, step: steps.TerminateInterrupted) -> None:
        notice = self.seen.notices[step.instance]
        if notice.kind is not SpotKind.INTERRUPTION:
            node = self._node(step.instance)
            if node is not None and not self._is_empty(notice, node):
                raise NotDone(f"{step.instance} is not cordoned, or has new pods")
        try:
            self._ports.machines.terminate(step.instance)
        except MachineError as error:
            if not self._is_forgotten(step.instance, error):
                self.notifications.extend(refused_terminations(step.instance, error))
                raise NotDone(cut(f"{step.instance} could not be terminated: {error}", 500)) from error
            if notice.replacement.is_settled:
                self._close(step.instance)
        self.seen = replace(self.seen, known_gone=self.seen.known_gone | {step.instance})

    def _is_forgotten(self, instance: InstanceId, error: MachineError) -> bool:
        """EC2 lists a terminated machine for an hour, and its replacement may take longer than that to settle."""
        is_old = self.seen.now.seconds_since(self.seen.notices[instance].noticed) >= UNKNOWN_IS_GONE_SECONDS
        return is_old and ruling_on(error.code).verdict is Ec2Verdict.UNKNOWN_MACHINE

    def _close(self, instance: InstanceId) -> None:
        noticed = self.seen.notices[instance]
        update = set_all({"phase": str(SpotPhase.CLOSED), "expiresAt": self._expiry()})
        if noticed.phase is SpotPhase.OPENING:
            update += attr("stays").set_to(True)
        # Only if it has not become an interruption, got a replacement, or been repeated since.
        same = (
            attr("phase").equals(str(noticed.phase)) & attr("kind").equals(str(noticed.kind)) & is_same_notice(noticed)
        )
        replacement = attr("replacement")
        is_open = noticed.replacement is Replacement.OPEN
        same &= replacement.is_absent() if is_open else replacement.equals(str(noticed.replacement))
        closed = attr("phase").equals(str(SpotPhase.CLOSED)) & is_same_notice(noticed)
        # In one transaction: otherwise a notice stored in between would leave the list and never be found.
        dropped = UpdateItem(STATE, spots_key(self.seen.cluster), attr("open").drop_elements([instance]))
        self._ports.store.transact([UpdateItem(STATE, notice_key(instance), update, same | closed), dropped])
        self.seen = self.seen.without_notice(instance)

    def _enter(self, instance: InstanceId, before: SpotPhase, after: SpotPhase) -> None:
        """Only for the notice that was read: the machine may have a later one by now."""
        same = is_same_notice(self.seen.notices[instance])
        self._write(instance, attr("phase").set_to(str(after)), attr("phase").equals(str(before)) & same)

    def _write(self, instance: InstanceId, update: Update, condition: Condition) -> None:
        try:
            new = self._ports.store.update(STATE, notice_key(instance), update, condition).new
        except WriteConflict as conflict:
            if conflict.item is None:
                raise
            new = conflict.item  # another process has advanced it
        self.seen = self.seen.with_notice(read_notice(new))

    def _expiry(self) -> int:
        return self._ports.clock.now().plus(CLOSED_KEPT_SECONDS).epoch_seconds
