"""Launching: tokens, slots, attempts, and how many machines."""

from collections import defaultdict
from collections.abc import Callable

from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Node
from holdfast.ports.machines import LaunchOrder, Machine
from holdfast.ports.store import Item
from holdfast.simulator import marks
from holdfast.simulator.checkers.base import Checker, Violation
from holdfast.simulator.facts import Facts, bears_taint
from holdfast.simulator.marks import SlotName
from holdfast.simulator.process import Process


class IntentFirst(Checker):
    name = "IntentFirst"
    says = "a machine is launched or, once accepted, terminated only for what was durable before the call"

    def launched(self, by: Process, order: LaunchOrder, machine: Machine, *, is_new: bool) -> None:
        slot = marks.slot_of(order.tags)
        if slot not in self.facts.planned:
            self.fail(by, f"{machine.id} was launched for {slot}, which no plan names")

    def terminated(self, by: Process, machine: InstanceId) -> None:
        found = self.facts.machines[machine]
        is_named = machine in self.facts.targets or machine in self.facts.notices
        if found.accepted is None or not is_named or machine in self.facts.committed:
            return
        if machine not in self.facts.notices:
            self.fail(by, f"{machine} was terminated, and never committed")


class TokenOnce(Checker):
    name = "TokenOnce"
    says = "a token stands for one order and one machine, and an attempt at a slot for one token"

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self._orders: dict[str, LaunchOrder] = {}
        self._tokens: dict[SlotName, str] = {}
        self._machines: dict[tuple[str, str], InstanceId] = {}

    def launched(self, by: Process, order: LaunchOrder, machine: Machine, *, is_new: bool) -> None:
        self._used(by, order)
        if self._machines.setdefault((order.token, order.zone), machine.id) != machine.id:
            self.fail(by, f"{machine.id} is a second machine under its token")

    def refused(self, by: Process, order: LaunchOrder, code: str) -> None:
        self._used(by, order)

    def _used(self, by: Process, order: LaunchOrder) -> None:
        if self._orders.setdefault(order.token, order) != order:
            self.fail(by, f"another order under the same token: {order} instead of {self._orders[order.token]}")
        slot = marks.slot_of(order.tags)
        if slot is not None and self._tokens.setdefault(slot, order.token) != order.token:
            self.fail(by, f"a second token for {slot}")


class AmbiguousRepeats(Checker):
    name = "AmbiguousRepeats"
    says = "the attempt at a slot grows, or is given up, only after EC2 refused it for certain"

    def wrote(self, by: Process, old: Item, new: Item) -> None:
        action = new.get("scaleUpActionId")
        if not action or old.get("scaleUpActionId") != action:
            return
        plans = zip(old.get("scaleUpPlan", ()), new.get("scaleUpPlan", ()), strict=False)
        for number, (before, after) in enumerate(plans):
            self._judge(by, (action, number, before["k"]), before, after)

    def noted(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        if "plan" in old and "plan" in new:
            self._judge(by, (f"{marks.SPOT_ACTION}{instance}", 0, old["plan"]["k"]), old["plan"], new["plan"])

    def _judge(self, by: Process, slot: SlotName, before: Item, after: Item) -> None:
        if after["k"] < before["k"]:
            self.fail(by, f"the attempt at {slot} went back to {after['k']}")
        moved_on = after["k"] != before["k"] or ("x" in after and "x" not in before)
        if moved_on and slot not in self.facts.refused:
            self.fail(by, f"EC2 never refused {slot}, and it was moved on to {after}")


class SlotOne(Checker):
    name = "SlotOne"
    says = "at most one machine is accepted for a slot"

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self._accepted: dict[tuple[str, int], InstanceId] = {}

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        if by is None or old is None or new is None or not bears_taint(old) or bears_taint(new):
            return
        instance = InstanceId(new.labels.get(marks.INSTANCE, ""))
        machine = self.facts.machines.get(instance)
        if machine is None or machine.slot is None or machine.slot[0].startswith(marks.SPOT_ACTION):
            return
        if self._accepted.setdefault(machine.slot[:2], instance) != instance:
            self.fail(by, f"{instance} is the second accepted for slot {machine.slot[:2]}")


class OneRun(Checker):
    name = "OneRun"
    says = "at most one machine runs for a slot, where nobody pauses for longer than a lease lasts"

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self._of_slot: defaultdict[tuple[str, int], list[InstanceId]] = defaultdict(list)
        self.is_on = True

    def launched(self, by: Process, order: LaunchOrder, machine: Machine, *, is_new: bool) -> None:
        slot = marks.slot_of(order.tags)
        if not is_new or slot is None or not self.is_on:
            return
        alive = [other for other in self._of_slot[slot[:2]] if self.facts.machines[other].gone is None]
        self._of_slot[slot[:2]].append(machine.id)
        if alive:
            self.fail(by, f"{machine.id} was launched for slot {slot[:2]}, and {alive[0]} runs for it")


class AdoptedRight(Checker):
    name = "AdoptedRight"
    says = "a slot records only the machine that was launched for that attempt at it"

    def wrote(self, by: Process, old: Item, new: Item) -> None:
        action = new.get("scaleUpActionId")
        for number, slot in enumerate(new.get("scaleUpPlan", ())):
            self._judge(by, (str(action), number, slot["k"]), slot.get("i"))

    def noted(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        plan = new.get("plan")
        if plan:
            self._judge(by, (f"{marks.SPOT_ACTION}{instance}", 0, plan["k"]), plan.get("i"))

    def _judge(self, by: Process, slot: SlotName, instance: InstanceId | None) -> None:
        if instance is None:
            return
        machine = self.facts.machines.get(instance)
        if machine is None or machine.slot != slot:
            self.fail(by, f"{slot} records {instance}, which was launched for {machine.slot if machine else 'nothing'}")


class CleanBeforeClear(Checker):
    name = "CleanBeforeClear"
    says = "when a scale-up ends, each of its machines is accepted or on its way out"

    def wrote(self, by: Process, old: Item, new: Item) -> None:
        if not old.get("scaleUpActionId") or new.get("scaleUpActionId"):
            return
        for instance in old.get("scaleUpInstanceIds", ()):
            machine = self.facts.machines.get(instance)
            if machine is not None and machine.accepted is None and machine.gone is None:
                self.fail(by, f"the scale-up ended, and {instance} is neither accepted nor ended")


class MaxKept(Checker):
    name = "MaxKept"
    says = "machines in service, promised, or drained for a hint are never more than the maximum"

    def wrote(self, by: Process, old: Item, new: Item) -> None:
        if new.get("scaleUpActionId") and not old.get("scaleUpActionId"):
            self._count(by)

    def noted(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        if "plan" in new and "plan" not in old:
            self._count(by)

    def _count(self, by: Process) -> None:
        serving, promised, most = len(self.facts.in_service()), self.facts.promises(), self.numbers.max_workers
        hinted = self.facts.drained_for_hints()
        if serving + promised + hinted > most:
            self.fail(by, f"{serving} in service, {promised} promised, {hinted} drained for hints; at most {most}")


CHECKERS: tuple[type[Checker], ...] = (
    IntentFirst,
    TokenOnce,
    AmbiguousRepeats,
    SlotOne,
    OneRun,
    AdoptedRight,
    CleanBeforeClear,
    MaxKept,
)
