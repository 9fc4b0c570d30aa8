"""Spot: an interrupted machine is replaced once, and handled whatever else is in progress."""

from collections.abc import Callable

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node
from holdfast.ports.store import Item
from holdfast.simulator.checkers.base import Checker, Violation
from holdfast.simulator.proof.facts import Facts, bears_taint
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.world import tag_names

CORDON_SECONDS = 5.0


class SpotOnce(Checker):
    name = "SpotOnce"
    says = "at most one replacement is accepted for an interrupted machine"

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self._accepted: dict[str, InstanceId] = {}

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        if by is None or old is None or new is None or not bears_taint(old) or bears_taint(new):
            return
        instance = InstanceId(new.labels.get(tag_names.INSTANCE, ""))
        machine = self.facts.machines.get(instance)
        if machine is None or machine.slot is None or not machine.slot[0].startswith(tag_names.SPOT_ACTION):
            return
        if self._accepted.setdefault(machine.slot[0], instance) != instance:
            self.fail(by, f"{instance} is the second replacement accepted for {machine.slot[0]}")


class SpotIndependent(Checker):
    name = "SpotIndependent"
    says = "without faults, the handler of an interruption cordons the node within 5 s, whatever else is in progress"

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self._uncordoned: dict[InstanceId, tuple[Process, Instant]] = {}  # by which process, and when

    def notice_written(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        if new.get("phase") == "OPENING" and old.get("phase") != "OPENING":
            self._uncordoned[instance] = (by, self.facts.now())

    def ended(self, by: Process, error: BaseException | None) -> None:
        machine = self.facts.machines.get(InstanceId(by.subject))
        if by.faults or machine is None or machine.gone is not None or self._api_was_unavailable(by):
            return
        notice, node = self.facts.notices.get(machine.id), self.facts.nodes.get(machine.id)
        if node is None or notice is None or notice.item.get("kind") != "interruption" or node.created > by.started:
            return
        if self._was_uncordoned_meanwhile(by, machine.id):
            return
        closed = self.facts.cordoned.get(machine.id)
        if closed is None or closed.seconds_since(by.started) > CORDON_SECONDS:
            self.fail(by, f"{machine.id} is being interrupted and was not cordoned within {CORDON_SECONDS:.0f} s")

    def _was_uncordoned_meanwhile(self, by: Process, machine: InstanceId) -> bool:
        """Another process with a wrong clock may uncordon the node; the handler cannot prevent that."""
        opener, at = self._uncordoned.get(machine, (by, by.started))
        return opener is not by and at >= by.started

    def _api_was_unavailable(self, by: Process) -> bool:
        until = self.facts.api_away_until
        return until is not None and until >= by.started


class RebalanceMild(Checker):
    name = "RebalanceMild"
    says = "a rebalance hint alone terminates nothing; with REBALANCE=replace, only after its replacement is accepted"

    def terminated(self, by: Process, machine: InstanceId) -> None:
        notice = self.facts.notices.get(machine)
        if notice is None or machine in self.facts.interrupted or machine in self.facts.committed:
            return
        if notice.item.get("kind") not in ("rebalance", "interruption"):
            return  # not terminated because of EC2
        if self.facts.machines[machine].accepted is None:
            return
        if self.numbers.rebalance != "replace" or notice.item.get("replacement") != "ACCEPTED":
            self.fail(
                by, f"{machine} was terminated because of a hint: {notice.item.get('replacement', 'no replacement')}"
            )


CHECKERS: tuple[type[Checker], ...] = (SpotOnce, SpotIndependent, RebalanceMild)
