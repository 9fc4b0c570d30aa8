"""What a tick observes: everything that `decide` may use, and nothing else."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.cluster.drain import has_work
from holdfast.cluster.impossible_pods import ImpossiblePod
from holdfast.cluster.spot.notice import SpotNotice, SpotPhase
from holdfast.cluster.state import ClusterState
from holdfast.fleet.options import PoolFailure
from holdfast.fleet.slots import Slot
from holdfast.kernel.cached_property import cached_property
from holdfast.kernel.ids import ActionId, ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod
from holdfast.ports.machines import ACCEPTED_TAG, Machine, MachineState, Subnet
from holdfast.ports.readings import Reading, Unknown
from holdfast.ports.signals import PendingPods

PREFIX: Final = "holdfast.dev"
UNVERIFIED_TAINT: Final = f"{PREFIX}/unverified"
FENCE_ANNOTATION: Final = f"{PREFIX}/fence"
ACTION_ANNOTATION: Final = f"{PREFIX}/action"
SPOT_ANNOTATION: Final = f"{PREFIX}/spot"
CONDEMNED_ANNOTATION: Final = f"{PREFIX}/condemned"
INSTANCE_LABEL: Final = f"{PREFIX}/instance-id"
MACHINE_ANNOTATION: Final = f"{PREFIX}/machine"  # of a node that joined without our label, written with our cordon
ACTION_TAG: Final = f"{PREFIX}/action"
SEQUENCE_TAG: Final = f"{PREFIX}/seq"
SLOT_TAG: Final = f"{PREFIX}/slot"
ATTEMPT_TAG: Final = f"{PREFIX}/attempt"


STOPPED: Final = (MachineState.STOPPING, MachineState.STOPPED)  # no set: the hash of an enum takes long

# A time further ahead was written by a clock that had jumped.
FUTURE_SECONDS: Final = 3600
LAUNCH_SKEW_SECONDS: Final = 60  # by how much EC2's clock and the API server's may differ
# The unlisted machine of a node that has been NotReady for this long counts as gone: EC2 lists a terminated machine for
# an hour, so one that it no longer lists has been NotReady for longer. A list that omits a running one proves nothing.
NODE_DEAD_SECONDS: Final = 3900


class Worker(Struct, frozen=True):
    """A machine and its node, if it has joined."""

    machine: Machine
    node: Node | None
    is_ambiguous: bool = False  # several nodes claim to be this machine, so none of them counts

    @property
    def id(self) -> InstanceId:
        return self.machine.id

    @property
    def is_accepted(self) -> bool:
        """Joined and taken into service: its node no longer has the start-up taint."""
        if self.node is None:
            return False
        for taint in self.node.taints:  # noqa: SIM110 -- called often, and a generator takes twice as long
            if taint.key == UNVERIFIED_TAINT:
                return False
        return True

    @property
    def is_marked(self) -> bool:
        """Its machine bears the tag that is written before it is taken into service. The tag outlives the Node."""
        return is_marked(self.machine)

    @property
    def is_condemned(self) -> bool:
        """A lease holder found it unaccepted, and cordoned it under its start-up taint to terminate it.

        That excludes an acceptance, so a tag that a slow process writes later does not count.
        """
        return self.node is not None and CONDEMNED_ANNOTATION in self.node.annotations and not self.is_accepted

    @property
    def was_accepted(self) -> bool:
        """In service now, or before its Node was registered anew with the start-up taint."""
        return self.is_accepted or (self.is_marked and not self.is_condemned)

    @property
    def is_ready(self) -> bool:
        return self.node is not None and self.node.is_ready

    @property
    def spot_mark(self) -> str | None:
        """The mark of the notice that its node was cordoned for."""
        return None if self.node is None else self.node.annotations.get(SPOT_ANNOTATION)


class KubeView(Struct, frozen=True):
    """The nodes and pods, listed at one moment."""

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
    pending: Reading[PendingPods]  # without the impossible ones
    impossible: tuple[ImpossiblePod, ...] = ()  # unschedulable, and no machine could hold them
    subnets: tuple[Subnet, ...] = ()
    notices: Mapping[InstanceId, SpotNotice] = field(default_factory=dict)  # of spot, not closed
    failures: Mapping[str, PoolFailure] = field(default_factory=dict)
    undrainable: Mapping[InstanceId, PoolFailure] = field(default_factory=dict)
    marks_refused: PoolFailure | None = None  # EC2 refuses the tag of accepted machines
    marks_written: int = 0  # tags written by this tick
    is_paused: bool = False
    # The Ready nodes according to Prometheus while Kubernetes does not respond. Shown, but not acted on: accepting or
    # cordoning a node needs Kubernetes itself.
    ready_elsewhere: Reading[frozenset[str]] | None = None
    known_gone: frozenset[InstanceId] = frozenset()  # learned while acting: terminated by us, or forgotten by EC2

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        """Every machine that is not gone, with its node."""
        claims: dict[str, list[Node]] = {}
        for node in () if isinstance(self.kube, Unknown) else self.kube.value.nodes:
            if node.internal_ip:
                claims.setdefault(node.internal_ip, []).append(node)
        gone = self.gone
        alive = [machine for machine in self.machines if machine.id not in gone]
        return tuple([_worker_of(machine, claims.get(machine.private_ip or "", ())) for machine in alive])

    @cached_property
    def gone(self) -> frozenset[InstanceId]:
        """Machines that are terminated or shutting down. A machine that is only missing from the list is not gone."""
        return self.known_gone | {machine.id for machine in self.machines if machine.is_gone}

    @cached_property
    def staying(self) -> tuple[Worker, ...]:
        """The workers that count: not those that are leaving after a notice, nor those that a person stopped."""
        leaving = {notice.instance for notice in self.notices.values() if notice.is_leaving}
        machines = ((worker, worker.machine) for worker in self.workers)
        return tuple([w for w, machine in machines if machine.id not in leaving and machine.state not in STOPPED])

    @cached_property
    def unlisted(self) -> int:
        """The number of our nodes whose machines EC2 did not list: an incomplete list proves nothing."""
        nodes = () if isinstance(self.kube, Unknown) else self.kube.value.nodes
        known = {machine.id for machine in self.machines} | self.gone | {slot.instance for slot in self._promised}
        labels = (node.labels.get(INSTANCE_LABEL) for node in nodes if not self.is_dead(node))
        return sum(1 for label in labels if label is not None and label not in known)

    def is_of_a_worker(self, node: Node) -> bool:
        """Whether the node belongs to a machine that is not gone, whatever is written on it."""
        return any(worker.node is not None and worker.node.uid == node.uid for worker in self.workers)

    def is_dead(self, node: Node) -> bool:
        """Whether the node's machine, if EC2 does not list it, counts as gone."""
        if node.is_ready:
            return False
        return node.ready_changed is None or self.now.seconds_since(node.ready_changed) >= NODE_DEAD_SECONDS

    @cached_property
    def counted(self) -> int:
        """How many workers there are. Stored as `workerCount` after each look.

        EC2's list may be incomplete. The nodes show that; while Kubernetes is unknown, only the stored number does. So
        the number does not fall until Kubernetes answers.
        """
        found = len(self.staying) + self.unlisted
        return max(found, self.state.timers.workers) if isinstance(self.kube, Unknown) else found

    @cached_property
    def expected(self) -> int:
        """How many workers there are or are planned, including replacements of leaving ones."""
        unplanned = [notice for notice in self._replaced if notice.slot is None and notice.is_leaving]
        return max(self.counted, self._stored_most) + len(self._promised) + len(unplanned)

    @cached_property
    def _stored_most(self) -> int:
        """The stored number with listed replacements that it may not include yet; 0 while the nodes are known.

        Counting one twice delays a launch until Kubernetes answers; not counting it could exceed the maximum. Machines
        of a scale-up are in the stored number as soon as they are recorded.
        """
        if not isinstance(self.kube, Unknown):
            return 0
        listed = {worker.id for worker in self.workers}
        replacements = [notice.slot for notice in self._replaced if notice.slot and notice.slot.instance in listed]
        return self.state.timers.workers + len(replacements)

    @cached_property
    def most_expected(self) -> int:
        """The number to keep within the maximum: expected workers, and those that leave for a hint but may stay."""
        leaving = {notice.instance for notice in self.notices.values() if notice.is_cancellable}
        return self.expected + sum(1 for worker in self.workers if worker.id in leaving) if leaving else self.expected

    @cached_property
    def _promised(self) -> tuple[Slot, ...]:
        """The slots of the scale-up and of replacements whose machines are not launched or not listed yet."""
        known = {worker.id for worker in self.workers} | self.gone
        slots = (*(self.state.up.slots if self.state.up else ()), *(notice.slot for notice in self._replaced))
        return tuple(slot for slot in slots if slot and slot.exhausted is None and slot.instance not in known)

    @cached_property
    def _replaced(self) -> list[SpotNotice]:
        """The open notices whose replacements are neither in service nor given up."""
        open_ones = (notice for notice in self.notices.values() if notice.phase is not SpotPhase.CLOSED)
        return [notice for notice in open_ones if not notice.replacement.is_settled]

    def is_undrainable(self, instance: InstanceId) -> bool:
        """Whether a recent attempt to drain or replace it failed."""
        failure = self.undrainable.get(instance)
        return failure is not None and self.now < failure.until

    def seconds_since(self, started: Instant) -> float:
        """How long ago; infinite if it is far in the future, because a clock had jumped."""
        seconds = self.now.seconds_since(started)
        return inf if seconds < -FUTURE_SECONDS else seconds

    def with_notice(self, notice: SpotNotice) -> "Seen":
        return replace(self, notices={**self.notices, notice.instance: notice})

    def without_notice(self, instance: InstanceId) -> "Seen":
        return replace(self, notices={name: notice for name, notice in self.notices.items() if name != instance})

    def machine(self, instance: InstanceId) -> Machine | None:
        """The machine as EC2 lists it, gone or not; None proves nothing."""
        return next((machine for machine in self.machines if machine.id == instance), None)

    def worker(self, instance: InstanceId) -> Worker | None:
        return next((worker for worker in self.workers if worker.id == instance), None)

    def node_of(self, instance: InstanceId) -> Node | None:
        """The machine's node; if EC2's list lacks the machine, the one with our bootstrap's name and label."""
        worker = self.worker(instance)
        if worker is not None or isinstance(self.kube, Unknown):
            return None if worker is None else worker.node
        nodes = self.kube.value.nodes
        return next((n for n in nodes if n.name == instance and n.labels.get(INSTANCE_LABEL) == instance), None)

    def pods_of(self, worker: Worker) -> Sequence[Pod]:
        """The pods on the worker's node; none while Kubernetes is unknown."""
        return () if worker.node is None else self._pods_by_node.get(worker.node.name, ())

    def has_work(self, worker: Worker) -> bool:
        """Whether pods are bound to it that a drain would have to evict. Pods may outlive their Node object."""
        name = worker.id if worker.node is None else worker.node.name
        return has_work(self._pods_by_node.get(name, ()))

    def is_kept(self, worker: Worker) -> bool:
        """Whether the worker may only leave by being drained: it was in service, or has work."""
        return worker.was_accepted or self.has_work(worker)

    @cached_property
    def _pods_by_node(self) -> Mapping[str, Sequence[Pod]]:
        """Grouped once: `pods_of` may be called for thousands of workers."""
        by_node: dict[str, list[Pod]] = {}
        for pod in () if isinstance(self.kube, Unknown) else self.kube.value.pods:
            if pod.node is not None:
                by_node.setdefault(pod.node, []).append(pod)
        return by_node

    @cached_property
    def fill(self) -> Counter[str]:
        """How many machines each zone has, including those that are still joining or not listed yet."""
        return Counter(worker.machine.zone for worker in self.staying) + Counter(slot.zone for slot in self._promised)

    @property
    def are_marks_refused(self) -> bool:
        """Whether EC2 recently refused the tag of accepted machines."""
        return self.marks_refused is not None and self.now < self.marks_refused.until

    def with_node(self, changed: Node) -> "Seen":
        if isinstance(self.kube, Unknown):
            return self
        nodes = tuple(changed if node.name == changed.name else node for node in self.kube.value.nodes)
        return replace(self, kube=replace(self.kube, value=replace(self.kube.value, nodes=nodes)))

    def without_node(self, name: str) -> "Seen":
        if isinstance(self.kube, Unknown):
            return self
        nodes = tuple(node for node in self.kube.value.nodes if node.name != name)
        return replace(self, kube=replace(self.kube, value=replace(self.kube.value, nodes=nodes)))

    def launched_by(self, action: ActionId) -> dict[tuple[int, int], Machine]:
        """The listed machines of an action that are not gone, by (slot, attempt)."""
        found = {}
        for worker in self.workers:
            tags = worker.machine.tags
            if tags.get(ACTION_TAG) == action:
                found[tag_number(tags.get(SLOT_TAG)), tag_number(tags.get(ATTEMPT_TAG))] = worker.machine
        return found


def machine_named_on(node: Node) -> str | None:
    """The machine that the node says it runs on: our bootstrap labels it, and a cordon annotates any other."""
    return node.labels.get(INSTANCE_LABEL) or node.annotations.get(MACHINE_ANNOTATION)


def is_marked(machine: Machine) -> bool:
    """Whether the machine says that it was taken into service. Whatever the tag's value: anyone can write tags."""
    return ACCEPTED_TAG in machine.tags


def _worker_of(machine: Machine, claims: Sequence[Node]) -> Worker:
    """The machine with its node, among those that have its address.

    Addresses are reused, the Node object of a terminated machine stays, and a node sets its own labels. So the node
    with our bootstrap's label and name comes first: no other kubelet can take that name. A node without the label
    (joined by an older bootstrap) is matched by its address alone, if only one matches.
    """
    if len(claims) == 1 and claims[0].labels.get(INSTANCE_LABEL) == machine.id:
        return Worker(machine, claims[0])  # the usual case
    ours = [node for node in claims if node.labels.get(INSTANCE_LABEL) == machine.id]
    candidates = [node for node in ours if node.name == machine.id] or ours
    if not candidates:
        # A node that is older than the machine belongs to an earlier one with the same address.
        earliest = machine.launched.plus(-LAUNCH_SKEW_SECONDS)
        unlabelled = [node for node in claims if INSTANCE_LABEL not in node.labels and node.created >= earliest]
        candidates = [node for node in unlabelled if node.is_ready] or unlabelled
    if len(candidates) == 1:
        return Worker(machine, candidates[0])
    return Worker(machine, None, is_ambiguous=bool(candidates))


def tag_number(text: str | None) -> int:
    """The number in a tag; -1 for anything else, because anyone can write tags."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else -1
