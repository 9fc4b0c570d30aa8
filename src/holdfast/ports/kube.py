"""The Kubernetes API.

A list is a consistent snapshot, but may be slightly old. A change names the state that it expects; `NodeChanged` means
that the state is different: read again, and decide again.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol, TypeVar

from msgspec import Struct, field

from holdfast.kernel.errors import NeedsOperator, Retryable
from holdfast.kernel.instants import Instant

T = TypeVar("T")


class Resources(Struct, frozen=True):
    """CPU in thousandths, and memory: what a pod requests, or what a node can give to pods. None is unknown."""

    cpu_millis: int | None
    memory_bytes: int | None

    def could_hold(self, asked: "Resources") -> bool:
        """Whether a pod that asks for this would fit if nothing else ran. Unknown counts as yes."""
        return _could_hold(self.cpu_millis, asked.cpu_millis) and _could_hold(self.memory_bytes, asked.memory_bytes)


def _could_hold(has: int | None, asked: int | None) -> bool:
    return has is None or asked is None or asked <= has


class Taint(Struct, frozen=True):
    key: str
    value: str
    effect: str


class Node(Struct, frozen=True):
    name: str
    uid: str
    resource_version: str
    internal_ip: str | None
    is_ready: bool
    ready_changed: Instant | None  # when the Ready condition last changed
    created: Instant
    is_unschedulable: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    allocatable: Resources | None = None  # what it can give to pods; None is unknown


class PodPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Pod(Struct, frozen=True):
    namespace: str
    name: str
    uid: str
    node: str | None
    phase: PodPhase
    created: Instant
    unschedulable_since: Instant | None = None  # the scheduler found no node for it
    priority_class: str = ""
    controller: str = ""  # the kind of its controller: ReplicaSet, DaemonSet, …; "" for a pod without one
    is_mirror: bool = False
    is_deleting: bool = False
    has_local_storage: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Resources | None = None  # read only while it has no node; None is unknown

    @property
    def is_finished(self) -> bool:
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class NodeChange(Struct, frozen=True):
    """A change of a node: its `unschedulable` field, annotations (None removes one), and a taint to remove.

    It is applied only if the annotations in `expected` still have these values (None: absent) and, if
    `expected_version` is set, if the node has not changed at all. Prefer annotations: heartbeats change the version.
    """

    unschedulable: bool | None = None
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    remove_taint: str | None = None
    expected: Mapping[str, str | None] = field(default_factory=dict)
    expected_version: str | None = None


class Eviction(StrEnum):
    """The outcome of an eviction request."""

    ACCEPTED = "accepted"
    BLOCKED = "blocked"  # a disruption budget says not now
    GONE = "gone"  # the pod is gone, or another pod has its name


class Evicted(Struct, frozen=True):
    """The result of an eviction. `reason` is the server's explanation, safe to show: usually a disruption budget."""

    outcome: Eviction
    reason: str = ""


class KubeUnavailable(Retryable):
    """The API server did not respond in time. A change may or may not have happened."""


class KubeRefused(NeedsOperator):
    """The API server refused, or is not trusted: no permission, a bad token, a certificate that does not verify."""


class NodeChanged(Retryable):
    """The node is not as expected; nothing was changed. `node` is its current state, None if it is gone."""

    def __init__(self, message: str, node: Node | None) -> None:
        super().__init__(message)
        self.node = node


class Kube(Protocol):
    def nodes(self) -> list[Node]: ...

    def node(self, name: str) -> Node | None:
        """The node's current state, not a cached one."""
        ...

    def pods(self) -> list[Pod]:
        """All pods that are not finished."""
        ...

    def pods_on(self, node: str) -> list[Pod]:
        """The current pods on a node, including finished ones."""
        ...

    def change_node(self, node: Node, change: NodeChange) -> Node:
        """The node after the change."""
        ...

    def evict(self, pod: Pod) -> Evicted:
        """Evict exactly this pod (by its uid), with its own grace period."""
        ...

    def delete_node(self, node: Node) -> None:
        """Delete the Node object, if it still has this uid. A missing one is not an error."""
        ...

    def delete_secret(self, namespace: str, name: str) -> None:
        """Delete a secret. A missing one is not an error."""
        ...


class ForwardingKube:
    """The base of wrappers: implements `Kube` by forwarding every call through `_forward`."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def _forward(self, call: Callable[[], T]) -> T:
        return call()

    def nodes(self) -> list[Node]:
        return self._forward(self._kube.nodes)

    def node(self, name: str) -> Node | None:
        return self._forward(lambda: self._kube.node(name))

    def pods(self) -> list[Pod]:
        return self._forward(self._kube.pods)

    def pods_on(self, node: str) -> list[Pod]:
        return self._forward(lambda: self._kube.pods_on(node))

    def change_node(self, node: Node, change: NodeChange) -> Node:
        return self._forward(lambda: self._kube.change_node(node, change))

    def evict(self, pod: Pod) -> Evicted:
        return self._forward(lambda: self._kube.evict(pod))

    def delete_node(self, node: Node) -> None:
        self._forward(lambda: self._kube.delete_node(node))

    def delete_secret(self, namespace: str, name: str) -> None:
        self._forward(lambda: self._kube.delete_secret(namespace, name))
