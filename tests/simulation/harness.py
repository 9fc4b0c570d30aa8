"""A cluster in the simulated world, ticked once a minute."""

from collections.abc import Callable

from holdfast.adapters.memory import memory_store
from holdfast.cluster.act import Hands
from holdfast.cluster.decide import Choices
from holdfast.cluster.observe import Senses
from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import ACTION_TAG, INSTANCE_LABEL, UNVERIFIED_TAINT
from holdfast.cluster.state import ClusterState, read_state
from holdfast.cluster.tick import Cluster, Ticked, tick
from holdfast.kernel.ids import ClusterId
from holdfast.ports.machines import Machine
from holdfast.ports.store import Item, Key, Store
from holdfast.ports.store.tables import STATE
from holdfast.simulator.world import ZONES, Bootstrap, World

TAGS = {"Cluster": "k3s", "Role": "worker"}
BOOTSTRAP = Bootstrap(INSTANCE_LABEL, UNVERIFIED_TAINT, ACTION_TAG)


class Stage:
    """A world, a store, and one cluster on them."""

    def __init__(
        self,
        seed: int = 1,
        *,
        policy: Policy | None = None,
        choices: Choices | None = None,
        store: Store | None = None,
        workers: int = 2,
        world: World | None = None,
    ) -> None:
        self.world = world or World(seed, BOOTSTRAP)
        self.clock = self.world.timeline
        self.store = store or memory_store(self.clock)
        self.policy = policy or Policy()
        self.choices = choices or Choices(instance_types=("t3.medium", "t3a.medium"))
        for number in range(workers):
            self.world.add_worker(ZONES[number % len(ZONES)], TAGS)
        self._ticks = 0

    @property
    def cluster(self) -> Cluster:
        world, subnets = self.world, [subnet.id for subnet in self.world.subnets]
        senses = Senses(self.store, world.ec2, world.k3s, world.prometheus, ClusterId("cluster"), TAGS, subnets)
        hands = Hands(self.store, self.clock, world.ec2, world.k3s, TAGS, "lt-0abc:3", "user data", self.choices)
        return Cluster(senses, hands, self.policy)

    def tick(self, *, seconds: float = 60) -> Ticked:
        self.clock.sleep(seconds)
        self._ticks += 1
        return tick(self.cluster, f"tick{self._ticks}")

    def tick_until(self, condition: Callable[[], bool], *, most: int = 60) -> list[Ticked]:
        ticked: list[Ticked] = []
        while not condition():
            assert len(ticked) < most, f"after {most} ticks: {self.state}"
            ticked.append(self.tick())
        return ticked

    @property
    def item(self) -> Item:
        return self.store.get(STATE, Key("cluster")) or {}

    @property
    def state(self) -> ClusterState:
        return read_state(self.item or None)

    @property
    def alive(self) -> list[Machine]:
        return [machine for machine in self.world.ec2.all_machines() if not machine.is_gone]
