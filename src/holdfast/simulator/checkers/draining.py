"""Draining: which nodes may be closed, and which pods may be asked to leave."""

from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Node, Pod
from holdfast.ports.store import Item
from holdfast.simulator import marks
from holdfast.simulator.checkers.base import Checker
from holdfast.simulator.checkers.terminating import newly_committed
from holdfast.simulator.facts import bears_taint
from holdfast.simulator.process import Process


class PlanFirst(Checker):
    name = "PlanFirst"
    says = "a node is closed or emptied only if a stored plan or a spot notice names it"

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        if by is None or old is None or new is None or old.is_unschedulable or not new.is_unschedulable:
            return
        if not bears_taint(old):
            self._judge(by, new.labels.get(marks.INSTANCE, ""), "closed")

    def evicted(self, by: Process, pod: Pod) -> None:
        notice = self.facts.notices.get(InstanceId(pod.node or ""))
        # Kubernetes knows no fence: an eviction that was on its way moves a pod of a node that is open again.
        if notice is None or notice.stays is None or notice.stays < by.looked:
            self._judge(by, pod.node or "", "emptied")

    def _judge(self, by: Process, name: str, what: str) -> None:
        instance = InstanceId(name)
        notice = self.facts.notices.get(instance)
        if instance in self.facts.targets or (notice is not None and notice.leaving is not None):
            return
        if notice is None or notice.item.get("replacement") != "ACCEPTED":
            self.fail(by, f"{instance} was {what}, and nothing names it")


class CriticalStops(Checker):
    name = "CriticalStops"
    says = "a pod that must stay is never evicted, and a scale-down neither empties nor commits its node"

    def evicted(self, by: Process, pod: Pod) -> None:
        if must_stay(pod):
            self.fail(by, f"{pod} was evicted")
        instance = InstanceId(pod.node or "")
        if instance in self.facts.item.get("scaleDownTargetInstanceIds", ()) and instance not in self.facts.notices:
            self._judge(by, instance, "is being emptied")

    def wrote(self, by: Process, old: Item, new: Item) -> None:
        for instance in newly_committed(old, new):
            self._judge(by, instance, "was committed")

    def _judge(self, by: Process, instance: InstanceId, what: str) -> None:
        node = self.facts.nodes.get(instance)
        staying = [str(pod) for pod in self.facts.pods_on(node.name) if must_stay(pod)] if node else []
        if staying:
            self.fail(by, f"{instance} {what}, and {staying[0]} is on it")


class NoLeakedCordon(Checker):
    name = "NoLeakedCordon"
    says = "in the end no node is closed by us that no action and no spot notice names"

    def healed(self) -> None:
        for instance, node in self.facts.nodes.items():
            machine = self.facts.machines.get(instance)
            if machine is None or machine.gone is not None or not node.is_unschedulable:
                continue
            notice = self.facts.notices.get(instance)
            named = instance in self.facts.item.get("scaleDownTargetInstanceIds", ())
            if not named and not (notice is not None and notice.is_open) and not bears_taint(node):
                self.fail(None, f"{instance} is closed: {dict(node.annotations)}")


def must_stay(pod: Pod) -> bool:
    return pod.priority_class in marks.CRITICAL or (pod.namespace == "kube-system" and pod.controller != "DaemonSet")


CHECKERS: tuple[type[Checker], ...] = (PlanFirst, CriticalStops, NoLeakedCordon)
