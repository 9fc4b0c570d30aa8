"""A cluster in the simulated world, ticked once a minute."""

from collections.abc import Callable

from holdfast.adapters.memory import memory_store
from holdfast.cluster.plan import TickResult
from holdfast.cluster.policy import Choices, Policy
from holdfast.cluster.ports import ReadPorts, WritePorts
from holdfast.cluster.seen import ACTION_TAG, INSTANCE_LABEL, UNVERIFIED_TAINT
from holdfast.cluster.state import ClusterState, read_state
from holdfast.cluster.tick import Cluster, tick
from holdfast.kernel.errors import Retryable
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.machines import Machine, Machines
from holdfast.ports.store import Item, Key, Store
from holdfast.ports.store.tables import STATE
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.ec2 import SimulatedEc2
from holdfast.simulator.world.world import DAWN, ZONES, Bootstrap, World
from tests.call_gate import CallGate

TAGS = {"Cluster": "k3s", "Role": "worker"}
BOOTSTRAP = Bootstrap(INSTANCE_LABEL, UNVERIFIED_TAINT, ACTION_TAG)


class Stage:
    """A world, a store, and one cluster in them."""

    def __init__(
        self,
        seed: int = 1,
        *,
        policy: Policy | None = None,
        choices: Choices | None = None,
        workers: int = 2,
        open_store: Callable[[Clock], Store] = memory_store,
        start: Instant = DAWN,
        open_machines: Callable[[SimulatedEc2], Machines] = lambda ec2: ec2,
        name: str = "cluster",
    ) -> None:
        self.name = ClusterId(name)
        self.world = World(seed, BOOTSTRAP, start=start)
        self.clock = self.world.timeline
        self.store = open_store(self.clock)
        self.machines = open_machines(self.world.ec2)
        self.policy = policy or Policy()
        self.choices = choices or Choices(instance_types=("t3.medium", "t3a.medium"))
        for number in range(workers):
            self.world.add_worker(ZONES[number % len(ZONES)], TAGS)
        self._ticks = 0
        self.gate: CallGate | None = None

    def cluster(self, gate: CallGate | None = None) -> Cluster:
        """The cluster as a process sees it, all its ports behind the gate."""
        gate = gate or CallGate(lambda _call, _moment: None)
        store, ec2 = gate.wrapped(self.store, "store"), gate.wrapped(self.machines, "machines")
        k3s, prometheus = gate.wrapped(self.world.k3s, "kube"), gate.wrapped(self.world.prometheus, "signals")
        subnets = [subnet.id for subnet in self.world.subnets]
        reads = ReadPorts(store, ec2, k3s, prometheus, self.name, TAGS, subnets)
        writes = WritePorts(store, self.clock, ec2, k3s, TAGS, "lt-0abc:3", "user data", self.choices)
        return Cluster(reads, writes, self.policy)

    def tick(self, *, seconds: float = 60, gate: CallGate | None = None) -> TickResult | None:
        """One invocation; None when it was killed, or had to stand by."""
        self.clock.sleep(seconds)
        self._ticks += 1
        try:
            return tick(self.cluster(gate or self.gate), f"tick{self._ticks}")
        except (Killed, Retryable):
            if self.gate is not None:
                self.gate.is_dead = False  # the next invocation is another process
            return None

    def tick_until(self, condition: Callable[[], bool], *, most: int = 60, seconds: float = 60) -> list[TickResult]:
        ticked: list[TickResult | None] = []
        while not condition():
            assert len(ticked) < most, f"after {most} ticks: {self.state}"
            ticked.append(self.tick(seconds=seconds))
        return [one for one in ticked if one is not None]

    @property
    def item(self) -> Item:
        return self.store.get(STATE, Key(self.name)) or {}

    @property
    def state(self) -> ClusterState:
        return read_state(self.item or None)

    @property
    def open_notices(self) -> frozenset[str]:
        return frozenset((self.store.get(STATE, Key(f"{self.name}#spots")) or {}).get("open", ()))

    @property
    def alive(self) -> list[Machine]:
        return [machine for machine in self.world.ec2.all_machines() if not machine.is_gone]


StageMaker = Callable[..., Stage]
