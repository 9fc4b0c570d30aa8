"""Ending machines: which may go, and in what state."""

from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Node
from holdfast.ports.store import Item
from holdfast.simulator import marks
from holdfast.simulator.checkers.base import Checker
from holdfast.simulator.facts import OLD_LIST_SECONDS, MachineFacts, is_work
from holdfast.simulator.process import Process

SPOT_DRAIN_SECONDS = 110


class AcceptedKept(Checker):
    name = "AcceptedKept"
    says = "a machine in service is terminated only if a scale-down or a spot notice names it"

    def terminated(self, by: Process, machine: InstanceId) -> None:
        found = self.facts.machines[machine]
        if found.accepted is None or machine in self.facts.targets or machine in self.facts.notices:
            return
        self.fail(by, f"{machine} was in service since {found.accepted.iso()}")


class CollectorSafe(Checker):
    name = "CollectorSafe"
    says = "a machine that a slot waits for is not terminated"

    def terminated(self, by: Process, machine: InstanceId) -> None:
        found = self.facts.machines[machine]
        if found.accepted is not None or found.slot is None or machine in self.facts.notices:
            return
        action, number, attempt = found.slot
        if action.startswith(marks.SPOT_ACTION):
            self._judge_replacement(by, found, InstanceId(action.removeprefix(marks.SPOT_ACTION)), attempt)
            return
        item = self.facts.item
        if item.get("scaleUpActionId") != action or item.get("scaleUpPhase") == "CLEANUP":
            return
        slot = item["scaleUpPlan"][number]
        if slot["k"] == attempt and slot.get("i", machine) == machine and "x" not in slot:
            self.fail(by, f"{machine} was terminated, and slot {number} of {action} waits for it")

    def _judge_replacement(self, by: Process, found: MachineFacts, instance: InstanceId, attempt: int) -> None:
        notice = self.facts.notices.get(instance)
        if notice is None or not notice.is_promise or notice.plan is None or notice.plan["k"] != attempt:
            return
        planned = notice.item.get("plannedEpoch", 0)
        now = self.facts.now().plus(by.offset_seconds).epoch_seconds
        if now < planned + self.numbers.join_timeout_seconds and notice.plan.get("i", found.id) == found.id:
            self.fail(by, f"{found.id} was terminated, and the replacement of {instance} waits for it")


class SafeTerminate(Checker):
    name = "SafeTerminate"
    says = "a machine that is terminated is cordoned under our fence and carries no work"

    def terminated(self, by: Process, machine: InstanceId) -> None:
        node = self.facts.nodes.get(machine)
        found = self.facts.machines[machine]
        if node is None or not node.is_ready or found.accepted is None:
            return
        if machine in self.facts.committed and (not node.is_unschedulable or marks.FENCE not in node.annotations):
            self.fail(by, f"{machine} was terminated, and its node was open")
        if self._is_taken_anyway(machine):
            return
        pods = [str(pod) for pod in self.facts.pods_on(node.name) if is_work(pod)]
        if pods:
            self.fail(by, f"{machine} was terminated with {len(pods)} pods on it: {', '.join(pods[:3])}")

    def _is_taken_anyway(self, machine: InstanceId) -> bool:
        notice = self.facts.notices.get(machine)
        if notice is None or notice.item.get("kind") != "interruption":
            return False
        left = notice.item.get("noticeEpoch", 0) + SPOT_DRAIN_SECONDS - self.facts.now().epoch_seconds
        return notice.item.get("phase") == "EXPIRED" or left <= 0


class CommitIrrevocable(Checker):
    name = "CommitIrrevocable"
    says = "a machine that was committed is never opened again, and leaves the committed ones only as completed"

    def wrote(self, by: Process, old: Item, new: Item) -> None:
        before, after = old.get("scaleDownCommitted", frozenset()), new.get("scaleDownCommitted", frozenset())
        lost = set(before) - set(after) - set(new.get("scaleDownCompletedInstanceIds", ()))
        if lost:
            self.fail(by, f"{sorted(lost)} were committed, and are forgotten")

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        if by is None or old is None or new is None or not old.is_unschedulable or new.is_unschedulable:
            return
        instance = InstanceId(new.labels.get(marks.INSTANCE, ""))
        if instance in self.facts.committed:
            self.fail(by, f"{instance} was committed, and is open again")


class MinKept(Checker):
    name = "MinKept"
    says = "a scale-down never leaves fewer machines in service than the minimum"

    def wrote(self, by: Process, old: Item, new: Item) -> None:
        for instance in newly_committed(old, new):
            left = [m for m in known_in_service(self, by) if m.id not in self.facts.committed]
            if len(left) < self.numbers.min_workers:
                found = f"{instance} goes, and {len(left)} are left; the minimum is {self.numbers.min_workers}"
                self.fail(by, found)


class AzKept(Checker):
    name = "AzKept"
    says = "a scale-down never takes a zone's last machine while other zones have some"

    def wrote(self, by: Process, old: Item, new: Item) -> None:
        for instance in newly_committed(old, new):
            left = [m for m in known_in_service(self, by) if m.id not in self.facts.committed]
            zone = self.facts.machines[instance].zone
            if left and all(machine.zone != zone for machine in left):
                self.fail(by, f"{instance} was the last in {zone}")


def newly_committed(old: Item, new: Item) -> list[InstanceId]:
    return sorted(set(new.get("scaleDownCommitted", ())) - set(old.get("scaleDownCommitted", ())))


def known_in_service(checker: Checker, by: Process) -> list[MachineFacts]:
    """What a process could know at its last look, be it by an old list of machines."""
    return checker.facts.in_service(by.looked, by.looked.plus(-OLD_LIST_SECONDS) if by.saw_old_list else None)


CHECKERS: tuple[type[Checker], ...] = (
    AcceptedKept,
    CollectorSafe,
    SafeTerminate,
    CommitIrrevocable,
    MinKept,
    AzKept,
)
