"""What is true in the simulated world, kept up event by event; and who is told of each event.

Taken from effects on the world and on the stored items, never from what the program believes. Nothing here looks at
the whole world at each call.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod
from holdfast.ports.machines import LaunchOrder, Machine, Market
from holdfast.ports.store import Item
from holdfast.simulator import marks
from holdfast.simulator.job_facts import JobFacts
from holdfast.simulator.marks import SlotName
from holdfast.simulator.numbers import Numbers

# A list may be as old as this, so what happened since is not held against who read it.
OLD_LIST_SECONDS = 70.0
_LEAVING = ("CORDONED", "DRAINED", "EXPIRED")
_GOING = ("interruption", "not-ready")  # kinds of notices after which a machine is not counted on


@dataclass
class MachineFacts:
    """One machine: what it was launched for, and what became of it."""

    id: InstanceId
    zone: str
    market: Market
    launched: Instant
    slot: SlotName | None
    is_ours: bool
    accepted: Instant | None = None
    gone: Instant | None = None

    def is_gone_by(self, moment: Instant) -> bool:
        return self.gone is not None and self.gone <= moment


@dataclass
class Notice:
    """A spot item, and since when it is durable."""

    item: Item
    noted: Instant
    leaving: Instant | None = None
    stays: Instant | None = None  # since when it is not leaving any more

    @property
    def is_open(self) -> bool:
        return self.item.get("phase") != "CLOSED"

    @property
    def plan(self) -> Mapping[str, Any] | None:
        return self.item.get("plan")

    @property
    def is_promise(self) -> bool:
        """A machine was promised, and is neither in service nor given up."""
        return self.is_open and self.item.get("replacement") in ("PLANNED", "LAUNCHED")


@dataclass
class Facts:
    """The truth. `now` and `pods_on` ask the world; everything else is kept here."""

    numbers: Numbers
    now: Callable[[], Instant]
    pods_on: Callable[[str], list[Pod]]
    item: Item = field(default_factory=dict)
    notices: dict[InstanceId, Notice] = field(default_factory=dict)
    machines: dict[InstanceId, MachineFacts] = field(default_factory=dict)
    nodes: dict[InstanceId, Node] = field(default_factory=dict)
    cordoned: dict[InstanceId, Instant] = field(default_factory=dict)
    planned: set[SlotName] = field(default_factory=set)
    refused: set[SlotName] = field(default_factory=set)
    targets: set[InstanceId] = field(default_factory=set)
    committed: set[InstanceId] = field(default_factory=set)
    interrupted: set[InstanceId] = field(default_factory=set)  # EC2 gave notice
    holder: int = -1  # the number of the process that took the lease last
    began: Instant | None = None  # the action under way
    api_away_until: Instant | None = None
    paused: Instant | None = None  # since when; None: it is not
    jobs: JobFacts | None = None  # where there is a GitHub

    # What happens

    def wrote(self, by: int, old: Item, new: Item) -> None:
        self.item = new
        if new.get("fence", 0) != old.get("fence", 0):
            self.holder = by
        action, before = marks.action_of(new), marks.action_of(old)
        if action != before:
            self.began = self.now() if action else None
        for number, slot in enumerate(new.get("scaleUpPlan", ())):
            self.planned.add((action, number, slot["k"]))
        self.targets.update(new.get("scaleDownTargetInstanceIds", ()))
        self.committed.update(new.get("scaleDownCommitted", ()))

    def switched(self, new: Item) -> None:
        self.paused = (self.paused or self.now()) if new.get("paused") is True else None

    def noted(self, instance: InstanceId, new: Item) -> None:
        now = self.now()
        notice = self.notices.get(instance)
        if notice is None:
            notice = self.notices[instance] = Notice(new, now)
        notice.item = new
        is_leaving = new.get("phase") in _LEAVING or (notice.is_open and new.get("kind") in _GOING)
        if notice.leaving is not None and not is_leaving:
            notice.stays = now
        notice.leaving = (notice.leaving or now) if is_leaving else None
        if "plan" in new:
            self.planned.add((f"{marks.SPOT_ACTION}{instance}", 0, new["plan"]["k"]))

    def launched(self, order: LaunchOrder, machine: Machine) -> bool:
        """False when the machine is known: the token was used again."""
        if machine.id in self.machines:
            return False
        self.machines[machine.id] = MachineFacts(
            machine.id,
            machine.zone,
            machine.market,
            machine.launched,
            marks.slot_of(order.tags),
            is_ours="Cluster" in order.tags,
        )
        return True

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        name = (new or old).labels.get(marks.INSTANCE) if (new or old) else None  # type: ignore[union-attr]
        if name is None:
            return
        instance = InstanceId(name)
        if new is None:
            self.nodes.pop(instance, None)
            self.cordoned.pop(instance, None)
            return
        self.nodes[instance] = new
        machine = self.machines.get(instance)
        if machine is not None and machine.accepted is None and not bears_taint(new):
            machine.accepted = self.now()
        if new.is_unschedulable:
            self.cordoned.setdefault(instance, self.now())
        else:
            self.cordoned.pop(instance, None)

    # What is asked

    def in_service(self, moment: Instant | None = None, listed: Instant | None = None) -> list[MachineFacts]:
        """Accepted machines that are not leaving, as one could know them at that moment; by a list of machines of then.

        The list alone can be an old one: notices are read from the store.
        """
        known = moment or self.now()
        return [
            machine
            for machine in self.machines.values()
            if machine.is_ours
            and machine.accepted is not None
            and not machine.is_gone_by(listed or known)
            and not self.is_leaving(machine.id, known)
        ]

    def is_leaving(self, instance: InstanceId, moment: Instant) -> bool:
        notice = self.notices.get(instance)
        return notice is not None and notice.leaving is not None and notice.leaving <= moment

    def drained_for_hints(self) -> int:
        """Machines that leave because they may be taken, and work on if they cannot be emptied."""
        return sum(
            1
            for instance, notice in self.notices.items()
            if notice.leaving is not None
            and notice.item.get("kind") not in _GOING
            and self.machines[instance].gone is None
        )

    def promises(self) -> int:
        """Machines that were promised and are not in service yet: by the action under way, and by notices."""
        plan = self.item.get("scaleUpPlan", ())
        slots = sum(1 for slot in plan if "x" not in slot and self._is_due(slot.get("i")))
        notices = (notice.plan for notice in self.notices.values() if notice.is_promise and notice.plan)
        return slots + sum(1 for plan in notices if self._is_due(plan.get("i")))

    def _is_due(self, instance: InstanceId | None) -> bool:
        machine = self.machines.get(instance) if instance else None
        if machine is None:
            return True
        is_leaving = self.is_leaving(machine.id, self.now())
        return machine.accepted is None and machine.gone is None and not is_leaving

    def is_committed(self, instance: InstanceId) -> bool:
        return instance in self.committed


def bears_taint(node: Node) -> bool:
    return any(taint.key == marks.TAINT for taint in node.taints)


def is_work(pod: Pod) -> bool:
    """A pod that a drain must move: not a DaemonSet's, not the kubelet's own, not finished."""
    return not (pod.controller == "DaemonSet" or pod.is_mirror or pod.is_finished)
