"""Spot: what EC2 takes is replaced once, and handled whatever else is under way."""

from collections.abc import Callable

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node
from holdfast.ports.store import Item
from holdfast.simulator import marks
from holdfast.simulator.checkers.base import Checker, Violation
from holdfast.simulator.facts import Facts, bears_taint
from holdfast.simulator.process import Process

CORDON_SECONDS = 5.0


class SpotOnce(Checker):
    name = "SpotOnce"
    says = "at most one replacement is accepted for a machine that EC2 takes"

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self._accepted: dict[str, InstanceId] = {}

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        if by is None or old is None or new is None or not bears_taint(old) or bears_taint(new):
            return
        instance = InstanceId(new.labels.get(marks.INSTANCE, ""))
        machine = self.facts.machines.get(instance)
        if machine is None or machine.slot is None or not machine.slot[0].startswith(marks.SPOT_ACTION):
            return
        if self._accepted.setdefault(machine.slot[0], instance) != instance:
            self.fail(by, f"{instance} is the second replacement accepted for {machine.slot[0]}")


class SpotIndependent(Checker):
    name = "SpotIndependent"
    says = "an undisturbed handler of an interruption has closed the node within 5 s, whatever else is under way"

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self._opened: dict[InstanceId, tuple[Process, Instant]] = {}  # by whom: it is believed to stay

    def noted(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        if new.get("phase") == "OPENING" and old.get("phase") != "OPENING":
            self._opened[instance] = (by, self.facts.now())

    def ended(self, by: Process, error: BaseException | None) -> None:
        machine = self.facts.machines.get(InstanceId(by.subject))
        if by.faults or machine is None or machine.gone is not None or self._api_was_away(by):
            return
        notice, node = self.facts.notices.get(machine.id), self.facts.nodes.get(machine.id)
        if node is None or notice is None or notice.item.get("kind") != "interruption" or node.created > by.started:
            return
        if self._was_opened_meanwhile(by, machine.id):
            return
        closed = self.facts.cordoned.get(machine.id)
        if closed is None or closed.seconds_since(by.started) > CORDON_SECONDS:
            self.fail(by, f"{machine.id} is to be taken, and was not closed within {CORDON_SECONDS:.0f} s")

    def _was_opened_meanwhile(self, by: Process, machine: InstanceId) -> bool:
        """By another process, whose clock is wrong. Nothing that a handler does can keep it from that."""
        opener, at = self._opened.get(machine, (by, by.started))
        return opener is not by and at >= by.started

    def _api_was_away(self, by: Process) -> bool:
        until = self.facts.api_away_until
        return until is not None and until >= by.started


class RebalanceMild(Checker):
    name = "RebalanceMild"
    says = "a rebalance hint alone terminates nothing; asked to replace, only after the replacement is accepted"

    def terminated(self, by: Process, machine: InstanceId) -> None:
        notice = self.facts.notices.get(machine)
        if notice is None or machine in self.facts.interrupted or machine in self.facts.committed:
            return
        if notice.item.get("kind") not in ("rebalance", "interruption"):
            return  # not for anything that EC2 said
        if self.facts.machines[machine].accepted is None:
            return
        if self.numbers.rebalance != "replace" or notice.item.get("replacement") != "ACCEPTED":
            self.fail(by, f"{machine} was terminated for a hint: {notice.item.get('replacement', 'no replacement')}")


CHECKERS: tuple[type[Checker], ...] = (SpotOnce, SpotIndependent, RebalanceMild)
