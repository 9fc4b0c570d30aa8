"""Draining: which nodes may be cordoned, and which pods evicted."""

from collections.abc import Callable, Iterator

from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Node, Pod
from holdfast.ports.store import Item
from holdfast.simulator.checkers.base import Checker, Lasting, Violation
from holdfast.simulator.checkers.terminating import newly_committed
from holdfast.simulator.proof.facts import Facts, bears_taint
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.world import tag_names

# The sweeper waits for an hour: the node of a machine that was just terminated looks the same.
NO_OWNER_SECONDS = 4200


class PlanFirst(Checker):
    name = "PlanFirst"
    says = "a node is cordoned or drained only if a stored plan or a spot notice names it"

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        if by is None or old is None or new is None or old.is_unschedulable or not new.is_unschedulable:
            return
        if not bears_taint(old):
            self._judge(by, new.labels.get(tag_names.INSTANCE, ""), "cordoned")

    def evicted(self, by: Process, pod: Pod) -> None:
        self._judge(by, pod.node or "", "drained")

    def _judge(self, by: Process, name: str, what: str) -> None:
        """Kubernetes has no fence: what a plan named at the process's last look may be named no more."""
        instance = InstanceId(name)
        notice = self.facts.notices.get(instance)
        if not self.facts.is_target(instance, by.looked) and not (notice is not None and notice.has_named(by.looked)):
            self.fail(by, f"{instance} was {what}, but no plan or notice names it")


class CriticalStops(Checker):
    name = "CriticalStops"
    says = "a critical pod is never evicted, and a scale-down neither drains nor commits its node"

    def evicted(self, by: Process, pod: Pod) -> None:
        if is_critical(pod):
            self.fail(by, f"{pod} was evicted")
        instance = InstanceId(pod.node or "")
        if instance in self.facts.item.get("scaleDownTargetInstanceIds", ()) and instance not in self.facts.notices:
            self._judge(by, instance, "is being drained")

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        for instance in newly_committed(old, new):
            self._judge(by, instance, "was committed")

    def _judge(self, by: Process, instance: InstanceId, what: str) -> None:
        node = self.facts.nodes.get(instance)
        staying = [str(pod) for pod in self.facts.pods_on(node.name) if is_critical(pod)] if node else []
        if staying:
            self.fail(by, f"{instance} {what} while {staying[0]} runs on it")


class NoLeakedCordon(Checker):
    name = "NoLeakedCordon"
    says = (
        "a scale-down that ends leaves no cordon of its own; after the world has healed, a node that we cordoned and "
        "that no action or notice names is uncordoned within 70 minutes"
    )

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self._without_owner = Lasting()

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        action = old.get("scaleDownActionId")
        if not action or new.get("scaleDownActionId") or by.saw_old_list:
            return
        for instance in old.get("scaleDownTargetInstanceIds", ()):
            node, since = self.facts.nodes.get(instance), self.facts.cordoned.get(instance)
            if node is None or since is None or since > by.looked or not self._is_alive(instance):
                continue
            if node.annotations.get(tag_names.ACTION) == action:
                self.fail(by, f"{instance} is still cordoned by {action}, which has ended")

    def minute_passed(self) -> None:
        now = self.facts.now()
        for instance, since in self._without_owner.since(self._found(), now).items():
            if now.seconds_since(since) > NO_OWNER_SECONDS:
                annotations = dict(self.facts.nodes[instance].annotations)
                self.fail(None, f"{instance} has been cordoned without an owner since {since.iso()}: {annotations}")

    def _found(self) -> Iterator[InstanceId]:
        for instance in self.facts.cordoned:
            node = self.facts.nodes[instance]
            if bears_taint(node) or not self._is_alive(instance) or instance in self.facts.cordoned_by_people:
                continue
            notice = self.facts.notices.get(instance)
            if not self.facts.is_target(instance) and not (notice is not None and notice.is_open):
                yield instance

    def _is_alive(self, instance: InstanceId) -> bool:
        machine = self.facts.machines.get(instance)
        return machine is not None and machine.gone is None


class PersonsCordonKept(Checker):
    name = "PersonsCordonKept"
    says = "a node that a person cordoned is uncordoned only by a person"

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        if by is None or old is None or new is None or not old.is_unschedulable or new.is_unschedulable:
            return
        instance = InstanceId(new.labels.get(tag_names.INSTANCE, ""))
        if instance in self.facts.cordoned_by_people:
            self.fail(by, f"{instance} was uncordoned, but a person had cordoned it")


def is_critical(pod: Pod) -> bool:
    return pod.priority_class in tag_names.CRITICAL or (
        pod.namespace == "kube-system" and pod.controller != "DaemonSet"
    )


CHECKERS: tuple[type[Checker], ...] = (PlanFirst, CriticalStops, NoLeakedCordon, PersonsCordonKept)
