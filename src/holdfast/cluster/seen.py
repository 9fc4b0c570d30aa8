"""What one look at the world shows. Everything that `decide` may use is in here, and nothing else."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from holdfast.cluster.spot import Notice
from holdfast.cluster.state import ClusterState
from holdfast.fleet.options import PoolFailure
from holdfast.kernel.ids import ActionId, ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod
from holdfast.ports.machines import Machine, Subnet
from holdfast.ports.readings import Reading, Unknown
from holdfast.ports.signals import PendingPods

PREFIX: Final = "holdfast.dev"
UNVERIFIED_TAINT: Final = f"{PREFIX}/unverified"
FENCE_ANNOTATION: Final = f"{PREFIX}/fence"
ACTION_ANNOTATION: Final = f"{PREFIX}/action"
SPOT_ANNOTATION: Final = f"{PREFIX}/spot"
INSTANCE_LABEL: Final = f"{PREFIX}/instance-id"
ACTION_TAG: Final = f"{PREFIX}/action"
SEQUENCE_TAG: Final = f"{PREFIX}/seq"
SLOT_TAG: Final = f"{PREFIX}/slot"
ATTEMPT_TAG: Final = f"{PREFIX}/attempt"


@dataclass(frozen=True, slots=True)
class Worker:
    """A machine, and the node it became, if it has."""

    machine: Machine
    node: Node | None

    @property
    def id(self) -> InstanceId:
        return self.machine.id

    @property
    def is_accepted(self) -> bool:
        """Joined and taken into service: its node no longer bears the start-up taint."""
        return self.node is not None and not any(taint.key == UNVERIFIED_TAINT for taint in self.node.taints)

    @property
    def is_ready(self) -> bool:
        return self.node is not None and self.node.is_ready


@dataclass(frozen=True, slots=True)
class KubeView:
    """The nodes and pods of one look."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]


@dataclass(frozen=True)
class Seen:
    """The world at one moment, and the state that goes with it."""

    cluster: ClusterId
    now: Instant
    state: ClusterState
    machines: tuple[Machine, ...]
    kube: Reading[KubeView]
    cpu: Reading[float]
    pending: Reading[PendingPods]
    subnets: tuple[Subnet, ...] = ()
    notices: Mapping[InstanceId, Notice] = field(default_factory=dict)  # of spot, not closed
    failures: Mapping[str, PoolFailure] = field(default_factory=dict)
    undrainable: Mapping[InstanceId, Instant] = field(default_factory=dict)
    is_paused: bool = False
    known_gone: frozenset[InstanceId] = (
        frozenset()
    )  # learned while acting: terminated by us, or unknown to EC2 for long

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        """Every machine that is not gone, with its node."""
        nodes = [] if isinstance(self.kube, Unknown) else self.kube.value.nodes
        by_address = {node.internal_ip: node for node in nodes if node.internal_ip}
        alive = (machine for machine in self.machines if machine.id not in self.gone)
        return tuple(Worker(machine, _node_of(machine, by_address)) for machine in alive)

    @cached_property
    def gone(self) -> frozenset[InstanceId]:
        """Machines that are terminated or on their way. One that is merely not listed is not among them."""
        return self.known_gone | {machine.id for machine in self.machines if machine.is_gone}

    @cached_property
    def staying(self) -> tuple[Worker, ...]:
        """The workers that are counted on: not those that spot is about to take."""
        leaving = {notice.instance for notice in self.notices.values() if notice.is_leaving}
        return tuple(worker for worker in self.workers if worker.id not in leaving)

    @cached_property
    def expected(self) -> int:
        """How many workers there are or are promised: replacements that are planned and not yet listed count too."""
        listed = {worker.id for worker in self.workers}
        slots = [notice.slot for notice in self.notices.values() if not notice.replacement.is_settled and notice.slot]
        return len(self.staying) + sum(1 for slot in slots if slot.instance not in listed)

    def with_notice(self, notice: Notice) -> "Seen":
        return replace(self, notices={**self.notices, notice.instance: notice})

    def without_notice(self, instance: InstanceId) -> "Seen":
        return replace(self, notices={name: notice for name, notice in self.notices.items() if name != instance})

    def worker(self, instance: InstanceId) -> Worker | None:
        return next((worker for worker in self.workers if worker.id == instance), None)

    @cached_property
    def fill(self) -> Counter[str]:
        """How many machines each zone has, those that are still joining included."""
        return Counter(worker.machine.zone for worker in self.staying)

    def without_node(self, name: str) -> "Seen":
        if isinstance(self.kube, Unknown):
            return self
        nodes = tuple(node for node in self.kube.value.nodes if node.name != name)
        return replace(self, kube=replace(self.kube, value=replace(self.kube.value, nodes=nodes)))

    def launched_by(self, action: ActionId) -> dict[tuple[int, int], Machine]:
        """The machines of an action that are listed and not gone, by (slot, attempt)."""
        found = {}
        for worker in self.workers:
            tags = worker.machine.tags
            if tags.get(ACTION_TAG) == action:
                found[tag_number(tags.get(SLOT_TAG)), tag_number(tags.get(ATTEMPT_TAG))] = worker.machine
        return found


def _node_of(machine: Machine, by_address: Mapping[str, Node]) -> Node | None:
    """The node with the machine's address, unless it says that it is another machine's.

    Addresses are reused, and the Node object of a dead machine stays: the label that our bootstrap sets tells them
    apart. A node without the label (joined by an older bootstrap) is matched by its address alone.
    """
    node = by_address.get(machine.private_ip or "")
    if node is None or node.labels.get(INSTANCE_LABEL, machine.id) != machine.id:
        return None
    return node


def tag_number(text: str | None) -> int:
    """A number in a tag; -1 for anything else, since tags are anybody's."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else -1
