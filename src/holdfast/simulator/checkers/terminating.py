"""Terminating machines: which ones, and in what state."""

from collections import Counter

from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Node
from holdfast.ports.store import Item
from holdfast.simulator.checkers.base import Checker
from holdfast.simulator.proof.facts import OLD_LIST_SECONDS, MachineFacts, is_work
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.world import tag_names

SPOT_DRAIN_SECONDS = 110


class AcceptedKept(Checker):
    name = "AcceptedKept"
    says = "a machine in service is terminated only while a scale-down or an open spot notice names it"

    def terminated(self, by: Process, machine: InstanceId) -> None:
        found = self.facts.machines[machine]
        if found.accepted is not None and not is_named_now(self, machine):
            self.fail(by, f"{machine} was terminated, in service since {found.accepted.iso()}")


class StrangersKept(Checker):
    name = "StrangersKept"
    says = "a machine of another cluster is neither terminated nor replaced"

    def stranger_touched(self, by: Process, machine: InstanceId, what: str) -> None:
        self.fail(by, f"{machine} of another cluster was {what}")


class CollectorSafe(Checker):
    name = "CollectorSafe"
    says = "a machine that a slot is waiting for is not terminated"

    def terminated(self, by: Process, machine: InstanceId) -> None:
        found = self.facts.machines[machine]
        if found.accepted is not None or found.slot is None or machine in self.facts.notices:
            return
        action, number, attempt = found.slot
        if action.startswith(tag_names.SPOT_ACTION):
            self._judge_replacement(by, found, InstanceId(action.removeprefix(tag_names.SPOT_ACTION)), attempt)
            return
        item = self.facts.item
        if item.get("scaleUpActionId") != action or item.get("scaleUpPhase") == "CLEANUP":
            return
        slot = item["scaleUpPlan"][number]
        if slot["k"] == attempt and slot.get("i", machine) == machine and "x" not in slot:
            self.fail(by, f"{machine} was terminated while slot {number} of {action} waits for it")

    def _judge_replacement(self, by: Process, found: MachineFacts, instance: InstanceId, attempt: int) -> None:
        notice = self.facts.notices.get(instance)
        if notice is None or not notice.is_promise or notice.plan is None or notice.plan["k"] != attempt:
            return
        planned = notice.item.get("plannedEpoch", 0)
        now = self.facts.now().plus(by.offset_seconds).epoch_seconds
        if now < planned + self.numbers.join_timeout_seconds and notice.plan.get("i", found.id) == found.id:
            self.fail(by, f"{found.id} was terminated while the replacement of {instance} waits for it")


class SafeTerminate(Checker):
    name = "SafeTerminate"
    says = "a machine that is terminated, in service or not, runs no work; a committed one is cordoned under our fence"

    def terminated(self, by: Process, machine: InstanceId) -> None:
        node = self.facts.nodes.get(machine)
        if node is not None and not node.is_ready:
            return
        if machine in self.facts.opened_by_people and machine in self.facts.committed:
            return  # a person uncordoned it after the commit, which is final
        is_closed = node is None or (node.is_unschedulable and tag_names.FENCE in node.annotations)
        if machine in self.facts.committed and not is_closed:
            self.fail(by, f"{machine} was terminated while its node was not cordoned")
        if self._is_interrupted_anyway(machine):
            return
        # Whether it was ever in service or not, and even if its Node object was deleted: pods are pods.
        pods = [str(pod) for pod in self.facts.pods_on(node.name if node else machine) if is_work(pod)]
        if pods:
            self.fail(by, f"{machine} was terminated with {len(pods)} pods on it: {', '.join(pods[:3])}")

    def _is_interrupted_anyway(self, machine: InstanceId) -> bool:
        notice = self.facts.notices.get(machine)
        if notice is None or notice.item.get("kind") != "interruption":
            return False
        left = notice.item.get("noticeEpoch", 0) + SPOT_DRAIN_SECONDS - self.facts.now().epoch_seconds
        return notice.item.get("phase") == "EXPIRED" or left <= 0


class CommitIrrevocable(Checker):
    name = "CommitIrrevocable"
    says = "a committed machine is never uncordoned, and stays committed until it is completed"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        before, after = old.get("scaleDownCommitted", frozenset()), new.get("scaleDownCommitted", frozenset())
        lost = set(before) - set(after) - set(new.get("scaleDownCompletedInstanceIds", ()))
        if lost:
            self.fail(by, f"{sorted(lost)} are no longer committed")

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        if by is None or old is None or new is None or not old.is_unschedulable or new.is_unschedulable:
            return
        instance = InstanceId(new.labels.get(tag_names.INSTANCE, ""))
        if instance in self.facts.committed:
            self.fail(by, f"{instance} was uncordoned after it was committed")


class MinKept(Checker):
    name = "MinKept"
    says = "a scale-down never leaves fewer machines in service than the minimum"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        for instance in newly_committed(old, new):
            left = [m for m in known_in_service(self, by) if m.id not in self.facts.committed]
            if len(left) < self.numbers.min_workers:
                found = f"{instance} was committed, which leaves {len(left)}; the minimum is {self.numbers.min_workers}"
                self.fail(by, found)


class AzKept(Checker):
    name = "AzKept"
    says = (
        "a scale-down never removes a zone's last machine while other zones have some; "
        "with ZONES_KEPT=prefer, while another zone has several"
    )

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        for instance in newly_committed(old, new):
            left = [m for m in known_in_service(self, by) if m.id not in self.facts.committed]
            zone = self.facts.machines[instance].zone
            zones = Counter(machine.zone for machine in left)
            most_allowed = 1 if self.numbers.zones_kept == "prefer" else 0
            if zone not in zones and max(zones.values(), default=0) > most_allowed:
                self.fail(by, f"{instance} was committed, the last machine in {zone}")


def is_named_now(checker: Checker, machine: InstanceId) -> bool:
    """Whether a scale-down or a notice names it. A commit is final, so it counts however long ago it was made."""
    facts = checker.facts
    notice = facts.notices.get(machine)
    return facts.is_target(machine) or machine in facts.committed or (notice is not None and notice.is_open)


def newly_committed(old: Item, new: Item) -> list[InstanceId]:
    return sorted(set(new.get("scaleDownCommitted", ())) - set(old.get("scaleDownCommitted", ())))


def known_in_service(checker: Checker, by: Process) -> list[MachineFacts]:
    """What a process could know at its last read, which may have used a stale list."""
    return checker.facts.in_service(by.looked, by.looked.plus(-OLD_LIST_SECONDS) if by.saw_old_list else None)


CHECKERS: tuple[type[Checker], ...] = (
    AcceptedKept,
    StrangersKept,
    CollectorSafe,
    SafeTerminate,
    CommitIrrevocable,
    MinKept,
    AzKept,
)
