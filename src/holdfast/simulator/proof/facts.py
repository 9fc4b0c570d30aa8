"""What is true in the simulated world, updated event by event.

It comes from effects on the world and on the stored items, never from what the program believes. Nothing here scans the
whole world at each call.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod
from holdfast.ports.machines import LaunchOrder, Machine, Market
from holdfast.ports.store import Item
from holdfast.simulator.proof.github.job_facts import JobFacts
from holdfast.simulator.proof.numbers import Numbers
from holdfast.simulator.world import tag_names
from holdfast.simulator.world.tag_names import SlotName

WRONG_CLOCK_SECONDS = 150.0
# A list may be this old, so a process is not blamed for missing what happened since.
OLD_LIST_SECONDS = 125.0  # a daemon's watch may miss changes for two minutes before its lists count as unknown
_LEAVING = ("CORDONED", "DRAINED", "EXPIRED")
_GOING = ("interruption", "not-ready")  # kinds of notices after which a machine no longer counts


@dataclass
class MachineFacts:
    """One machine: what it was launched for, and when it was accepted and ended."""

    id: InstanceId
    zone: str
    market: Market
    launched: Instant
    slot: SlotName | None
    is_ours: bool
    accepted: Instant | None = None
    gone: Instant | None = None
    is_late: bool = False  # launched by a process that had lost its lease

    def is_gone_by(self, moment: Instant) -> bool:
        return self.gone is not None and self.gone <= moment


@dataclass
class NoticeFacts:
    """A stored spot notice, and since when it is stored."""

    item: Item
    stored: Instant
    leaving: Instant | None = None
    stays: Instant | None = None  # since when it is no longer leaving
    closed: Instant | None = None

    @property
    def is_open(self) -> bool:
        return self.item.get("phase") != "CLOSED"

    @property
    def plan(self) -> Mapping[str, Any] | None:
        return self.item.get("plan")

    @property
    def is_promise(self) -> bool:
        """A replacement was promised, and is neither in service nor abandoned."""
        return self.is_open and self.item.get("replacement") in ("PLANNED", "LAUNCHED")

    def has_named(self, since: Instant) -> bool:
        """Whether it lets its node be cordoned and drained, or did so after `since`."""
        if self.leaving is not None or (self.stays is not None and self.stays >= since):
            return True
        # The node of a hint is cordoned just before that phase is stored.
        is_over = self.closed is not None and self.closed < since
        return self.item.get("replacement") == "ACCEPTED" and not is_over


@dataclass
class Facts:
    """The truth. What is callable queries the world; everything else is stored here."""

    numbers: Numbers
    now: Callable[[], Instant]
    pods_on: Callable[[str | None], list[Pod]]  # None: all pods
    cpu: Callable[[], float | None] = lambda: None
    has_budget: Callable[[Pod], bool] = lambda _: False  # whether a disruption budget can delay its eviction
    zones: Callable[[], Collection[str]] = tuple  # those with free addresses
    secrets: Callable[[], Collection[tuple[str, str]]] = tuple
    item: Item = field(default_factory=dict)
    notices: dict[InstanceId, NoticeFacts] = field(default_factory=dict)
    machines: dict[InstanceId, MachineFacts] = field(default_factory=dict)
    nodes: dict[InstanceId, Node] = field(default_factory=dict)
    cordoned: dict[InstanceId, Instant] = field(default_factory=dict)
    planned: set[SlotName] = field(default_factory=set)
    refused: set[SlotName] = field(default_factory=set)
    targets: dict[InstanceId, Instant | None] = field(default_factory=dict)  # until when; None: now
    undrained: dict[InstanceId, Instant] = field(default_factory=dict)  # whose drain was aborted, and when
    refused_in: dict[str, Instant] = field(default_factory=dict)  # EC2's last refusal in each zone
    committed: set[InstanceId] = field(default_factory=set)
    interrupted: set[InstanceId] = field(default_factory=set)  # EC2 gave notice
    strangers: set[InstanceId] = field(default_factory=set)  # machines of another cluster
    opened_by_people: set[InstanceId] = field(default_factory=set)  # nodes that a person uncordoned
    marked: set[InstanceId] = field(default_factory=set)  # tagged as accepted
    holder: int = -1  # the number of the process that last acquired the lease
    began: Instant | None = None  # start of the current action
    api_away_until: Instant | None = None
    unlisted_seconds: float = 0.0  # EC2 may not list a new machine for so long
    lists_wrong_until: Instant | None = None  # EC2's lists omit machines, or lag
    full_until: dict[str, Instant] = field(default_factory=dict)  # zones whose subnets are full
    paused: Instant | None = None  # since when, or None
    healed: Instant | None = None  # since when the world has no faults
    progressed: Instant | None = None  # when a machine last came into service, or an action last completed
    cordoned_by_people: set[InstanceId] = field(default_factory=set)
    jobs: JobFacts | None = None  # None in a run without GitHub

    # Updates

    def is_held_by_a_wrong_clock(self) -> bool:
        """A lease lasts 90 s: one that ends later was taken by a process whose clock is ahead."""
        until = self.item.get("lockUntilEpoch", 0) if self.item.get("lockOwner") else 0
        return bool(until - self.now().epoch_seconds > WRONG_CLOCK_SECONDS)

    def were_lists_wrong(self, looked: Instant) -> bool:
        return self.lists_wrong_until is not None and looked <= self.lists_wrong_until

    def lists_are_wrong_for(self, seconds: float) -> None:
        until = self.now().plus(seconds)
        if self.lists_wrong_until is None or self.lists_wrong_until < until:
            self.lists_wrong_until = until

    def cluster_written(self, by: int, old: Item, new: Item) -> None:
        self.item = new
        if new.get("fence", 0) != old.get("fence", 0):
            self.holder = by
        action, before = tag_names.action_of(new), tag_names.action_of(old)
        if action != before:
            self.began = self.now() if action else None
        for number, slot in enumerate(new.get("scaleUpPlan", ())):
            self.planned.add((action, number, slot["k"]))
        if new.get("lastScaleEpoch", 0) != old.get("lastScaleEpoch", 0):
            self.progressed = self.now()
        self._targets_changed(old, new)
        self.committed.update(new.get("scaleDownCommitted", ()))

    def _targets_changed(self, old: Item, new: Item) -> None:
        before, after = old.get("scaleDownTargetInstanceIds", ()), new.get("scaleDownTargetInstanceIds", ())
        if before != after:
            self.targets.update(dict.fromkeys(set(before) - set(after), self.now()))
            self.targets.update(dict.fromkeys(after))
        if new.get("scaleDownPhase") == "ABORTING" != old.get("scaleDownPhase"):
            self.undrained.update(dict.fromkeys(after, self.now()))

    def pause_written(self, new: Item) -> None:
        self.paused = (self.paused or self.now()) if new.get("paused") is True else None

    def notice_written(self, instance: InstanceId, new: Item) -> None:
        now = self.now()
        notice = self.notices.get(instance)
        if notice is None:
            notice = self.notices[instance] = NoticeFacts(new, now)
        notice.item = new
        notice.closed = None if notice.is_open else notice.closed or now
        is_leaving = new.get("phase") in _LEAVING or (notice.is_open and new.get("kind") in _GOING)
        if notice.leaving is not None and not is_leaving:
            notice.stays = now
        notice.leaving = (notice.leaving or now) if is_leaving else None
        if "plan" in new:
            self.planned.add((f"{tag_names.SPOT_ACTION}{instance}", 0, new["plan"]["k"]))

    def launched(self, order: LaunchOrder, machine: Machine, by: int | None = None) -> bool:
        """False when the machine is already known: the launch token was used again."""
        if machine.id in self.machines:
            return False
        self.machines[machine.id] = MachineFacts(
            machine.id,
            machine.zone,
            machine.market,
            machine.launched,
            tag_names.slot_of(order.tags),
            is_ours="Cluster" in order.tags,
            is_late=by is not None and by != self.holder,
        )
        return True

    def node_changed(self, old: Node | None, new: Node | None, *, is_by_world: bool = True) -> None:
        name = (new or old).labels.get(tag_names.INSTANCE) if (new or old) else None  # type: ignore[union-attr]
        if name is None or (new or old).name != name:  # type: ignore[union-attr]
            return  # a node that only claims to be the machine's: our bootstrap names it like the machine
        instance = InstanceId(name)
        if new is None:
            self.nodes.pop(instance, None)
            self.cordoned.pop(instance, None)
            self.cordoned_by_people.discard(instance)
            return
        self.nodes[instance] = new
        machine = self.machines.get(instance)
        if machine is not None and machine.accepted is None and not bears_taint(new):
            machine.accepted = self.progressed = self.now()
        self._cordon_changed(instance, old, new, is_by_world=is_by_world)

    def _cordon_changed(self, instance: InstanceId, old: Node | None, new: Node, *, is_by_world: bool) -> None:
        if is_by_world and new.is_unschedulable and not (old is not None and old.is_unschedulable):
            self.cordoned_by_people.add(instance)
        if is_by_world and not new.is_unschedulable:
            self.cordoned_by_people.discard(instance)
        if new.is_unschedulable:
            self.cordoned.setdefault(instance, self.now())
        else:
            self.cordoned.pop(instance, None)

    # Queries

    def is_target(self, instance: InstanceId, since: Instant | None = None) -> bool:
        """Whether the scale-down under way names it, or one did after `since`."""
        if instance not in self.targets:
            return False
        until = self.targets[instance]
        return until is None or (since is not None and until >= since)

    def running(self) -> list[MachineFacts]:
        """Our machines that EC2 bills, in service or not."""
        return [machine for machine in self.machines.values() if machine.is_ours and machine.gone is None]

    def in_service(self, moment: Instant | None = None, listed: Instant | None = None) -> list[MachineFacts]:
        """Accepted machines that are not leaving, as a process could know them at `moment`.

        `listed` is the time of its list of machines, which can be stale; notices are read from the store.
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
        """Machines that leave because of a rebalance hint; they stay if they cannot be drained."""
        return sum(
            1
            for instance, notice in self.notices.items()
            if notice.leaving is not None
            and notice.item.get("kind") not in _GOING
            and self.machines[instance].gone is None
        )

    def promises(self) -> int:
        """Machines promised by the current action and by notices that are not in service yet."""
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


def bears_taint(node: Node) -> bool:
    return any(taint.key == tag_names.TAINT for taint in node.taints)


def is_work(pod: Pod) -> bool:
    """Whether a drain must move the pod: not a DaemonSet's, not a mirror pod, not finished."""
    return not (pod.controller == "DaemonSet" or pod.is_mirror or pod.is_finished)
