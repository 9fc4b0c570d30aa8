"""Launching: tokens, slots, attempts, and how many machines."""

from collections import Counter, defaultdict
from collections.abc import Callable

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node
from holdfast.ports.machines import LaunchOrder, Machine
from holdfast.ports.store import Item
from holdfast.simulator.checkers.base import Checker, Violation
from holdfast.simulator.checkers.terminating import is_named_now
from holdfast.simulator.proof.facts import Facts, bears_taint
from holdfast.simulator.proof.faults import FaultKind
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.world import tag_names
from holdfast.simulator.world.tag_names import SlotName

UNLISTED_SECONDS = 100  # the simulated EC2 lists a machine by then
CLOCK_OFF_SECONDS = 60
REFUSAL_KEPT_SECONDS = 3700  # a pool without capacity is left out for up to an hour


class IntentFirst(Checker):
    name = "IntentFirst"
    says = "a machine is launched, or terminated once accepted, only if that intent was stored before the call"

    def launched(self, by: Process, order: LaunchOrder, machine: Machine, *, is_new: bool) -> None:
        slot = tag_names.slot_of(order.tags)
        if slot not in self.facts.planned:
            self.fail(by, f"{machine.id} was launched for {slot}, which is in no stored plan")

    def terminated(self, by: Process, machine: InstanceId) -> None:
        found, notice = self.facts.machines[machine], self.facts.notices.get(machine)
        if found.accepted is None or not is_named_now(self, machine) or machine in self.facts.committed:
            return
        if notice is None or notice.item.get("phase") != "DRAINED":
            self.fail(by, f"{machine} was terminated without being committed")


class TokenOnce(Checker):
    name = "TokenOnce"
    says = "a token belongs to one order and one machine, and an attempt at a slot to one token"

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self._orders: dict[str, LaunchOrder] = {}
        self._tokens: dict[SlotName, str] = {}
        self._machines: dict[tuple[str, str], InstanceId] = {}

    def launched(self, by: Process, order: LaunchOrder, machine: Machine, *, is_new: bool) -> None:
        self._used(by, order)
        if self._machines.setdefault((order.token, order.zone), machine.id) != machine.id:
            self.fail(by, f"{machine.id} is a second machine with its token")

    def launch_refused(self, by: Process, order: LaunchOrder, code: str) -> None:
        self._used(by, order)

    def _used(self, by: Process, order: LaunchOrder) -> None:
        if self._orders.setdefault(order.token, order) != order:
            self.fail(by, f"another order with the same token: {order} instead of {self._orders[order.token]}")
        slot = tag_names.slot_of(order.tags)
        if slot is not None and self._tokens.setdefault(slot, order.token) != order.token:
            self.fail(by, f"a second token for {slot}")


class AmbiguousRepeats(Checker):
    name = "AmbiguousRepeats"
    says = "a slot moves to its next attempt, or is abandoned, only after EC2 definitely refused the last attempt"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        action = new.get("scaleUpActionId")
        if not action or old.get("scaleUpActionId") != action:
            return
        plans = zip(old.get("scaleUpPlan", ()), new.get("scaleUpPlan", ()), strict=False)
        for number, (before, after) in enumerate(plans):
            self._judge(by, (action, number, before["k"]), before, after)

    def notice_written(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        if "plan" in old and "plan" in new:
            self._judge(by, (f"{tag_names.SPOT_ACTION}{instance}", 0, old["plan"]["k"]), old["plan"], new["plan"])

    def _judge(self, by: Process, slot: SlotName, before: Item, after: Item) -> None:
        if after["k"] < before["k"]:
            self.fail(by, f"the attempt at {slot} went back to {after['k']}")
        moved_on = after["k"] != before["k"] or ("x" in after and "x" not in before)
        if moved_on and slot not in self.facts.refused:
            self.fail(by, f"EC2 never refused {slot}, but it moved on to {after}")


class SlotOne(Checker):
    name = "SlotOne"
    says = "at most one machine is accepted for a slot"

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self._accepted: dict[tuple[str, int], InstanceId] = {}

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        if by is None or old is None or new is None or not bears_taint(old) or bears_taint(new):
            return
        instance = InstanceId(new.labels.get(tag_names.INSTANCE, ""))
        machine = self.facts.machines.get(instance)
        if machine is None or machine.slot is None or machine.slot[0].startswith(tag_names.SPOT_ACTION):
            return
        if self._accepted.setdefault(machine.slot[:2], instance) != instance:
            self.fail(by, f"{instance} is the second machine accepted for slot {machine.slot[:2]}")


class PreparedFirst(Checker):
    name = "PreparedFirst"
    says = "a node is accepted only after the start-up taints of other programs are gone"

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        if by is None or old is None or new is None or not bears_taint(old) or bears_taint(new):
            return
        left = [taint.key for taint in new.taints if taint.key in tag_names.START_UP_TAINTS]
        if left:
            self.fail(by, f"{new.name} is accepted with the taint {left[0]}")


class OneRun(Checker):
    name = "OneRun"
    off_with = frozenset({FaultKind.PAUSE, FaultKind.JUMP})
    says = "at most one machine runs for a slot, unless a process pauses for longer than a lease lasts"

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self._of_slot: defaultdict[tuple[str, int], list[InstanceId]] = defaultdict(list)

    def launched(self, by: Process, order: LaunchOrder, machine: Machine, *, is_new: bool) -> None:
        slot = tag_names.slot_of(order.tags)
        if not is_new or slot is None:
            return
        alive = [other for other in self._of_slot[slot[:2]] if self.facts.machines[other].gone is None]
        self._of_slot[slot[:2]].append(machine.id)
        if alive:
            self.fail(by, f"{machine.id} was launched for slot {slot[:2]} while {alive[0]} runs for it")


class AdoptedRight(Checker):
    name = "AdoptedRight"
    says = "a slot records only the machine that was launched for its current attempt"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        action = new.get("scaleUpActionId")
        for number, slot in enumerate(new.get("scaleUpPlan", ())):
            self._judge(by, (str(action), number, slot["k"]), slot.get("i"))

    def notice_written(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        plan = new.get("plan")
        if plan:
            self._judge(by, (f"{tag_names.SPOT_ACTION}{instance}", 0, plan["k"]), plan.get("i"))

    def _judge(self, by: Process, slot: SlotName, instance: InstanceId | None) -> None:
        if instance is None:
            return
        machine = self.facts.machines.get(instance)
        if machine is None or machine.slot != slot:
            self.fail(by, f"{slot} records {instance}, which was launched for {machine.slot if machine else 'nothing'}")


class CleanBeforeClear(Checker):
    name = "CleanBeforeClear"
    says = "when a scale-up ends, each of its machines is accepted, or tagged as accepted, or shutting down"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        if not old.get("scaleUpActionId") or new.get("scaleUpActionId"):
            return
        for instance in old.get("scaleUpInstanceIds", ()):
            machine = self.facts.machines.get(instance)
            if instance in self.facts.marked:
                continue  # the process was killed before it removed the start-up taint; AcceptedServes watches it
            if machine is not None and machine.accepted is None and machine.gone is None:
                self.fail(by, f"the scale-up ended, but {instance} is neither accepted nor shutting down")


class MaxKept(Checker):
    name = "MaxKept"
    says = "machines in service, promised, or drained for a hint never exceed the maximum"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        if new.get("scaleUpActionId") and not old.get("scaleUpActionId"):
            self._count(by)

    def notice_written(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        if "plan" in new and "plan" not in old:
            self._count(by)

    def _count(self, by: Process) -> None:
        serving, promised, most = len(self.facts.in_service()), self.facts.promises(), self.numbers.max_workers
        hinted = self.facts.drained_for_hints()
        if serving + promised + hinted > most:
            self.fail(by, f"{serving} in service, {promised} promised, {hinted} drained for hints; at most {most}")


class MaxRunning(Checker):
    name = "MaxRunning"
    off_with = frozenset({FaultKind.PAUSE})
    says = (
        "when a machine is launched, no more run than the maximum, plus those that EC2 takes or that are NotReady, "
        "plus those launched by a process that had lost its lease; a clock that is wrong by minutes is excused"
    )

    def launched(self, by: Process, order: LaunchOrder, machine: Machine, *, is_new: bool) -> None:
        # By such a clock EC2 seems to have forgotten a machine that it does not list yet. The sweeper collects it.
        if not is_new or abs(by.offset_seconds) > CLOCK_OFF_SECONDS:
            return
        running = [found for found in self.facts.running() if not found.is_late and not self._is_lost(found.id)]
        if len(running) > self.numbers.max_workers:
            self.fail(by, f"{len(running)} machines run; at most {self.numbers.max_workers}")

    def _is_lost(self, machine: InstanceId) -> bool:
        node = self.facts.nodes.get(machine)
        return machine in self.facts.interrupted or (node is not None and not node.is_ready)


class ZonesEven(Checker):
    name = "ZonesEven"
    off_with = frozenset({FaultKind.PAUSE, FaultKind.STALE_READ, FaultKind.DIES_AT_BIRTH})
    says = "a machine is planned in a zone that has the fewest, unless EC2 refused a launch in the emptier ones"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        if new.get("scaleUpActionId") and not old.get("scaleUpActionId"):
            self._judge(by, [slot["z"] for slot in new.get("scaleUpPlan", ())])

    def notice_written(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        if "plan" in new and "plan" not in old:
            self._judge(by, [new["plan"]["z"]], replaced=instance)

    def _judge(self, by: Process, planned: list[str], replaced: InstanceId | None = None) -> None:
        """`replaced` may count or not: a machine that EC2 only may take still runs."""
        looked = by.looked
        machines = [machine for machine in self.facts.machines.values() if machine.is_ours]
        # A process is not blamed for what its lists did not show.
        if by.saw_old_list or self.facts.were_lists_wrong(looked):
            return
        unlisted_seconds = max(UNLISTED_SECONDS, self.facts.unlisted_seconds)
        if any(looked.seconds_since(machine.launched) < unlisted_seconds for machine in machines):
            return
        alive = [machine for machine in machines if machine.id != replaced and not machine.is_gone_by(looked)]
        fill = Counter(machine.zone for machine in alive if not self.facts.is_leaving(machine.id, looked))
        held = self.facts.machines[replaced].zone if replaced in self.facts.machines else None
        for zone in planned:
            others = [other for other in self.facts.zones() if not self._is_closed(other, looked)]
            fewest = min((fill[other] + (other == held) for other in others), default=fill[zone])
            if fill[zone] > fewest:
                self.fail(by, f"a machine was planned in {zone}, which has {fill[zone]}; another zone has {fewest}")
            fill[zone] += 1

    def _is_closed(self, zone: str, looked: Instant) -> bool:
        """Whether its subnet was full at the look, or EC2 refused a launch there."""
        last, full_until = self.facts.refused_in.get(zone), self.facts.full_until.get(zone)
        if full_until is not None and looked <= full_until:
            return True
        return last is not None and self.facts.now().seconds_since(last) < REFUSAL_KEPT_SECONDS


CHECKERS: tuple[type[Checker], ...] = (
    IntentFirst,
    TokenOnce,
    AmbiguousRepeats,
    SlotOne,
    PreparedFirst,
    OneRun,
    AdoptedRight,
    CleanBeforeClear,
    MaxKept,
    MaxRunning,
    ZonesEven,
)
