"""The simulated world put together: machines that boot become nodes, and nodes carry pods."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Taint
from holdfast.ports.machines import LaunchOrder, Machine, Subnet
from holdfast.ports.readings import Known, Reading, Unknown
from holdfast.ports.signals import PendingPods
from holdfast.simulator.ec2 import Ec2Habits, SimulatedEc2
from holdfast.simulator.k3s import SimulatedK3s
from holdfast.simulator.timeline import Timeline

DAWN = Instant.from_iso("2026-01-15T08:00:00Z")
ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What the user data of our machines does when they boot, as far as the world cares."""

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
        self.joins = True  # switched off: machines boot and never become nodes
        self._bootstrap = bootstrap
        self._join_seconds = join_seconds
        self.ec2.on_running = self._machine_runs
        self.ec2.on_gone = self._machine_ends

    def add_worker(self, zone: str, tags: Mapping[str, str], market: str = "on-demand") -> Machine:
        """A worker that has been there all along: joined and accepted."""
        from holdfast.ports.machines import Market

        order = LaunchOrder(
            f"early-{len(self.ec2.launches)}", "lt-0:1", "t3.medium", Market(market), f"subnet-{zone}", zone, tags, ""
        )
        machine = self.ec2.launch(order)
        self.timeline.sleep(1)
        self.k3s.join(machine.id, machine.id, machine.private_ip or "", {self._bootstrap.label: machine.id})
        return machine

    def _machine_ends(self, machine: Machine) -> None:
        self.k3s.lose(machine.id)

    def _machine_runs(self, machine: Machine, order: LaunchOrder) -> None:
        if order.token.startswith("early-") or not self.joins:
            return
        self.timeline.after(self.chance.uniform(*self._join_seconds), partial(self._join, machine, order))

    def _join(self, machine: Machine, order: LaunchOrder) -> None:
        current = next(m for m in self.ec2.all_machines() if m.id == machine.id)
        if current.is_gone:
            return
        action = order.tags.get(self._bootstrap.action_tag)
        # An older autoscaler's bootstrap knows nothing of a start-up taint.
        taints = () if action is None else (Taint(self._bootstrap.taint, action, "NoSchedule"),)
        self.k3s.join(machine.id, machine.id, machine.private_ip or "", {self._bootstrap.label: machine.id}, taints)


class SimulatedPrometheus:
    """Implements `holdfast.ports.signals.Signals`, from the cluster's own truth."""

    def __init__(self, timeline: Timeline, k3s: SimulatedK3s) -> None:
        self._timeline = timeline
        self._k3s = k3s
        self.is_away = False

    def cpu(self) -> Reading[float]:
        value = self._k3s.cpu()
        if self.is_away or value is None:
            return Unknown("Prometheus does not answer" if self.is_away else "no node reports its CPU")
        return Known(value, self._timeline.now())

    def pending_pods(self) -> Reading[PendingPods]:
        if self.is_away:
            return Unknown("Prometheus does not answer")
        now = self._timeline.now()
        waiting = [pod.created for pod in self._k3s.pods() if pod.node is None]
        oldest = max((now.seconds_since(created) for created in waiting), default=0.0)
        return Known(PendingPods(len(waiting), oldest), now)

    def ready_addresses(self) -> Reading[frozenset[str]]:
        if self.is_away:
            return Unknown("Prometheus does not answer")
        ready = (node.internal_ip for node in self._k3s.nodes() if node.is_ready)
        return Known(frozenset(address for address in ready if address), self._timeline.now())
