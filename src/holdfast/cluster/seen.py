"""What one look at the world shows. Everything that `decide` may use is in here, and nothing else."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.cluster.spot import Notice, SpotPhase
from holdfast.cluster.state import ClusterState, Slot
from holdfast.fleet.options import PoolFailure
from holdfast.kernel.ids import ActionId, ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.once import once
from holdfast.ports.kube import Node, Pod
from holdfast.ports.machines import Machine, MachineState, Subnet
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


_STOPPED: Final = (MachineState.STOPPING, MachineState.STOPPED)  # no set: the hash of an enum takes long

# What lies further ahead was written by a clock that had jumped.
FUTURE_SECONDS: Final = 3600


class Worker(Struct, frozen=True):
    """A machine, and the node it became, if it has."""

    machine: Machine
    node: Node | None
    is_ambiguous: bool = False  # several nodes claim to be this machine: nothing is done to it by any of them

    @property
    def id(self) -> InstanceId:
        return self.machine.id

    @property
    def is_accepted(self) -> bool:
        """Joined and taken into service: its node no longer bears the start-up taint."""
        if self.node is None:
            return False
        for taint in self.node.taints:  # noqa: SIM110 -- asked often, and a generator takes twice as long
            if taint.key == UNVERIFIED_TAINT:
                return False
        return True

    @property
    def is_ready(self) -> bool:
        return self.node is not None and self.node.is_ready

    @property
    def spot_mark(self) -> str | None:
        """Which notice its node was closed for."""
        return None if self.node is None else self.node.annotations.get(SPOT_ANNOTATION)


class KubeView(Struct, frozen=True):
    """The nodes and pods of one look."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]


class Seen(Struct, frozen=True, dict=True):
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
    undrainable: Mapping[InstanceId, PoolFailure] = field(default_factory=dict)
    is_paused: bool = False
    # What Prometheus says of the nodes while Kubernetes does not answer. It is told, and nothing is done by it:
    # to accept a node, or to close one, takes Kubernetes itself.
    ready_elsewhere: Reading[frozenset[str]] | None = None
    known_gone: frozenset[InstanceId] = (
        frozenset()
    )  # learned while acting: terminated by us, or unknown to EC2 for long

    @once
    def workers(self) -> tuple[Worker, ...]:
        """Every machine that is not gone, with its node."""
        claims: dict[str, list[Node]] = {}
        for node in () if isinstance(self.kube, Unknown) else self.kube.value.nodes:
            if node.internal_ip:
                claims.setdefault(node.internal_ip, []).append(node)
        gone = self.gone
        alive = [machine for machine in self.machines if machine.id not in gone]
        return tuple([_worker_of(machine, claims.get(machine.private_ip or "", ())) for machine in alive])

    @once
    def gone(self) -> frozenset[InstanceId]:
        """Machines that are terminated or on their way. One that is merely not listed is not among them."""
        return self.known_gone | {machine.id for machine in self.machines if machine.is_gone}

    @once
    def staying(self) -> tuple[Worker, ...]:
        """The workers that are counted on: not those that spot is about to take, nor those that somebody stopped."""
        leaving = {notice.instance for notice in self.notices.values() if notice.is_leaving}
        machines = ((worker, worker.machine) for worker in self.workers)
        return tuple([w for w, machine in machines if machine.id not in leaving and machine.state not in _STOPPED])

    @once
    def unlisted(self) -> int:
        """Nodes of ours that are Ready, and whose machines EC2 did not list: a list that misses them is no proof."""
        nodes = () if isinstance(self.kube, Unknown) else self.kube.value.nodes
        known = {machine.id for machine in self.machines} | self.gone | {slot.instance for slot in self._promised}
        labels = (node.labels.get(INSTANCE_LABEL) for node in nodes if node.is_ready)
        return sum(1 for label in labels if label is not None and label not in known)

    @once
    def expected(self) -> int:
        """How many workers there are or are promised, those included that take the place of a machine that leaves."""
        unplanned = [notice for notice in self._replaced if notice.slot is None and notice.is_leaving]
        return len(self.staying) + len(self._promised) + len(unplanned) + self.unlisted

    @once
    def most_expected(self) -> int:
        """What is held to the maximum: those expected, and those that leave for a hint and may yet stay."""
        leaving = {notice.instance for notice in self.notices.values() if notice.may_stay}
        return self.expected + sum(1 for worker in self.workers if worker.id in leaving) if leaving else self.expected

    @once
    def _promised(self) -> tuple[Slot, ...]:
        """The slots, of the scale-up and of replacements, whose machines are yet to come or yet to be listed."""
        known = {worker.id for worker in self.workers} | self.gone
        slots = (*(self.state.up.slots if self.state.up else ()), *(notice.slot for notice in self._replaced))
        return tuple(slot for slot in slots if slot and slot.exhausted is None and slot.instance not in known)

    @once
    def _replaced(self) -> list[Notice]:
        """The notices whose replacements are neither in service nor given up."""
        open_ones = (notice for notice in self.notices.values() if notice.phase is not SpotPhase.CLOSED)
        return [notice for notice in open_ones if not notice.replacement.is_settled]

    def is_undrainable(self, instance: InstanceId) -> bool:
        """Whether it was tried in vain, not long ago, to drain or replace it."""
        failure = self.undrainable.get(instance)
        return failure is not None and self.now < failure.until

    def seconds_since(self, started: Instant) -> float:
        """How long ago; for ever, if it is said to have been far in the future."""
        seconds = self.now.seconds_since(started)
        return inf if seconds < -FUTURE_SECONDS else seconds

    def with_notice(self, notice: Notice) -> "Seen":
        return replace(self, notices={**self.notices, notice.instance: notice})

    def without_notice(self, instance: InstanceId) -> "Seen":
        return replace(self, notices={name: notice for name, notice in self.notices.items() if name != instance})

    def worker(self, instance: InstanceId) -> Worker | None:
        return next((worker for worker in self.workers if worker.id == instance), None)

    def pods_of(self, worker: Worker) -> Sequence[Pod]:
        """The pods on the worker's node, as far as Kubernetes can be seen."""
        return () if worker.node is None else self._pods_by_node.get(worker.node.name, ())

    @once
    def _pods_by_node(self) -> Mapping[str, Sequence[Pod]]:
        """Sorted once: thousands of workers may be asked about, one after the other."""
        by_node: dict[str, list[Pod]] = {}
        for pod in () if isinstance(self.kube, Unknown) else self.kube.value.pods:
            if pod.node is not None:
                by_node.setdefault(pod.node, []).append(pod)
        return by_node

    @once
    def fill(self) -> Counter[str]:
        """How many machines each zone has, those included that are still joining or not even listed."""
        return Counter(worker.machine.zone for worker in self.staying) + Counter(slot.zone for slot in self._promised)

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


def _worker_of(machine: Machine, claims: Sequence[Node]) -> Worker:
    """The machine with its node, among those that have its address.

    Addresses are reused, and the Node object of a dead machine stays; and a node says of itself whose it is. So the one
    that bears our bootstrap's label and name comes first: no other kubelet can take that name. A node without the label
    (joined by an older bootstrap) is matched by its address alone, if that leaves no doubt.
    """
    if len(claims) == 1 and claims[0].labels.get(INSTANCE_LABEL) == machine.id:
        return Worker(machine, claims[0])  # as nearly always
    ours = [node for node in claims if node.labels.get(INSTANCE_LABEL) == machine.id]
    candidates = [node for node in ours if node.name == machine.id] or ours
    if not candidates:
        unlabelled = [node for node in claims if INSTANCE_LABEL not in node.labels]
        candidates = [node for node in unlabelled if node.is_ready] or unlabelled
    if len(candidates) == 1:
        return Worker(machine, candidates[0])
    return Worker(machine, None, is_ambiguous=bool(candidates))


def tag_number(text: str | None) -> int:
    """A number in a tag; -1 for anything else, since tags are anybody's."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else -1
