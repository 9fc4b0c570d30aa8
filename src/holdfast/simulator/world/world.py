"""The simulated world put together: machines that boot become nodes, and nodes carry pods."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from zlib import crc32

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Resources, Taint
from holdfast.ports.machines import ACCEPTED_TAG, LaunchOrder, Machine, Market, Subnet
from holdfast.ports.readings import Known, Reading, Unknown
from holdfast.ports.signals import PendingPods
from holdfast.simulator.world.chance import drawn
from holdfast.simulator.world.ec2 import Ec2Habits, SimulatedEc2
from holdfast.simulator.world.k3s import SimulatedK3s
from holdfast.simulator.world.timeline import Timeline

DAWN = Instant.from_iso("2026-01-15T08:00:00Z")
_STRANGER = "stranger-"
# What nodes of these types give to pods: a part of the machine is the kubelet's and the system's.
ALLOCATABLE: Final = {
    "t3.medium": Resources(1_900, 3_400 * 1024**2),
    "t3a.medium": Resources(1_900, 3_400 * 1024**2),
    "m7i.xlarge": Resources(3_900, 14_800 * 1024**2),
}
ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
# Every K3s node registers with it, until the cloud controller has initialised the node.
UNINITIALISED = Taint("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule")
INITIALISED_SECONDS_MOST = 10.0
AGENT_SECONDS = 10.0  # from the boot to the agent's first request


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The label, taint and tag that the user data of our machines sets up."""

    label: str
    taint: str
    action_tag: str


class World:
    """EC2, K3s and Prometheus over one timeline and one seed."""

    def __init__(
        self,
        seed: int,
        bootstrap: Bootstrap,
        *,
        zones: Sequence[str] = ZONES,
        pods_per_node: int = 10,
        habits: Ec2Habits | None = None,
        join_seconds: tuple[float, float] = (30.0, 60.0),
        start: Instant = DAWN,
    ) -> None:
        self.chance = random.Random(seed)  # noqa: S311 -- a simulation wants chance that can be repeated
        self.timeline = Timeline(start)
        self.subnets = [Subnet(f"subnet-{zone}", zone, 200) for zone in zones]
        self.ec2 = SimulatedEc2(self.timeline, self.chance, self.subnets, habits)
        self.k3s = SimulatedK3s(self.timeline, self.chance, pods_per_node)
        self.prometheus = SimulatedPrometheus(self.timeline, self.k3s)
        self.joins = True  # False: machines boot and never become nodes
        self.initialises = True  # False: the cloud controller is away, and new nodes keep its taint
        self._bootstrap = bootstrap
        self._join_seconds = join_seconds
        self.ec2.on_running = self._machine_runs
        self.ec2.on_gone = self._machine_ends

    def add_worker(
        self, zone: str, tags: Mapping[str, str], market: str = "on-demand", *, is_marked: bool = True
    ) -> Machine:
        """Add a worker that has joined and is accepted already; one of an older version is not marked so."""
        order = LaunchOrder(
            f"early-{len(self.ec2.launches)}", "lt-0:1", "t3.medium", Market(market), f"subnet-{zone}", zone, tags, ""
        )
        machine = self.ec2.launch(order)
        if is_marked:
            self.ec2.tag_now(machine.id, {ACCEPTED_TAG: "early"})
        self.timeline.sleep(1)
        self._join_node(machine)
        return machine

    def add_stranger(self, zone: str, tags: Mapping[str, str]) -> Machine:
        """Launch a spot machine of another cluster in our subnets; it joins that cluster, not this one."""
        token = f"{_STRANGER}{len(self.ec2.launches)}"
        order = LaunchOrder(token, "lt-9:1", "t3.medium", Market.SPOT, f"subnet-{zone}", zone, tags, "")
        return self.ec2.add(order)

    def register_anew(self, machine: InstanceId, absent_seconds: float = 0.0) -> None:
        """The Node of a machine is deleted, and its agent registers it again, with the start-up taint of our bootstrap.

        Its pods run on. The same happens to every node after a snapshot is restored that is older than the nodes.
        """
        node = self.k3s.unregister(machine)
        if node is None:
            return
        if absent_seconds:
            self.timeline.after(absent_seconds, partial(self._register, machine, node))
        else:
            self._register(machine, node)

    def _register(self, machine: InstanceId, node: Node) -> None:
        if not self._current(machine).is_gone and not self.k3s.is_registered(machine):
            self.k3s.register_anew(node, (Taint(self._bootstrap.taint, "true", "NoSchedule"),))

    def _current(self, machine: InstanceId) -> Machine:
        return next(m for m in self.ec2.all_machines() if m.id == machine)

    def _machine_ends(self, machine: Machine) -> None:
        self.k3s.lose(machine.id)

    def _machine_runs(self, machine: Machine, order: LaunchOrder) -> None:
        if order.token.startswith(("early-", _STRANGER)):
            return
        self.timeline.after(AGENT_SECONDS, partial(self._agent_starts, machine))
        if not self.joins:
            return
        self.timeline.after(self.chance.uniform(*self._join_seconds), partial(self._join, machine, order))

    def _agent_starts(self, machine: Machine) -> None:
        if not self._current(machine.id).is_gone:
            self.k3s.start_agent(machine.id)

    def _join(self, machine: Machine, order: LaunchOrder) -> None:
        if self._current(machine.id).is_gone:
            return
        action = order.tags.get(self._bootstrap.action_tag)
        # The bootstrap of an older autoscaler sets no start-up taint.
        taints = () if action is None else (Taint(self._bootstrap.taint, action, "NoSchedule"),)
        self._join_node(machine, (*taints, UNINITIALISED))
        # Drawn by name, and not in turn: other draws stay as they are.
        seconds = INITIALISED_SECONDS_MOST * drawn(0, crc32(machine.id.encode()))
        self.timeline.after(seconds, partial(self._initialise, machine.id))

    def _initialise(self, name: str) -> None:
        if self.initialises:
            self.k3s.remove_taint(name, UNINITIALISED.key)

    def _join_node(self, machine: Machine, taints: tuple[Taint, ...] = ()) -> None:
        labels, allocatable = {self._bootstrap.label: machine.id}, ALLOCATABLE.get(machine.instance_type)
        self.k3s.join(machine.id, machine.id, machine.private_ip or "", labels, taints, allocatable)


class SimulatedPrometheus:
    """Implements `holdfast.ports.signals.Signals`: no call raises.

    It stands by itself: while the API server is away, the node exporters still report the CPU, and kube-state-metrics
    reports nodes and pods as it last saw them. With `is_cache_lost` it has been restarted since then, and reports none.
    """

    def __init__(self, timeline: Timeline, k3s: SimulatedK3s) -> None:
        self._timeline = timeline
        self._k3s = k3s
        self.is_away = False
        self.is_cache_lost = False

    def cpu(self) -> Reading[float]:
        value = self._k3s.cpu()
        if self.is_away or value is None:
            return Unknown("Prometheus does not answer" if self.is_away else "no node reports its CPU")
        return Known(value, self._timeline.now())

    def pending_pods(self) -> Reading[PendingPods]:
        missing = self._missing()
        if missing:
            return Unknown(missing)
        now = self._timeline.now()
        _, pods = self._k3s.watched()
        waiting = [pod.created for pod in pods if pod.node is None]
        oldest = max((now.seconds_since(created) for created in waiting), default=0.0)
        return Known(PendingPods(len(waiting), oldest), now)

    def ready_addresses(self) -> Reading[frozenset[str]]:
        missing = self._missing()
        if missing:
            return Unknown(missing)
        nodes, _ = self._k3s.watched()
        ready = (node.internal_ip for node in nodes if node.is_ready)
        return Known(frozenset(address for address in ready if address), self._timeline.now())

    def _missing(self) -> str:
        """Why kube-state-metrics' readings are missing; "" if they are not."""
        if self.is_away:
            return "Prometheus does not answer"
        return "no data from kube-state-metrics" if self.is_cache_lost and self._k3s.is_away else ""
