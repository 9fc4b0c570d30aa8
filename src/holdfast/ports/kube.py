"""Kubernetes: what is asked of the API server.

A list is one consistent view, but may be a little old. A change names what it expects to find, and is refused with
`NodeChanged` if it does not: read again, and decide again.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, field

from holdfast.kernel.errors import NeedsOperator, Retryable
from holdfast.kernel.instants import Instant


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
    ready_changed: Instant | None  # when the Ready condition last turned, either way
    created: Instant
    is_unschedulable: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


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
    unschedulable_since: Instant | None = None  # the scheduler found no place for it
    priority_class: str = ""
    controller: str = ""  # the kind that made it: ReplicaSet, DaemonSet, …; "" for a pod that nobody would make again
    is_mirror: bool = False
    is_deleting: bool = False
    has_local_storage: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class NodeChange(Struct, frozen=True):
    """What to change of a node: its `unschedulable`, annotations (None removes one), and a taint to take away.

    The change takes place only if the annotations that `expected` names still have these values (None: absent), and,
    where `expected_version` is given, if nothing at all was changed since. An annotation is the better test where it
    will do: a node's own heartbeats change its version.
    """

    unschedulable: bool | None = None
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    remove_taint: str | None = None
    expected: Mapping[str, str | None] = field(default_factory=dict)
    expected_version: str | None = None


class Eviction(StrEnum):
    """What came of asking a pod to leave."""

    ACCEPTED = "accepted"
    BLOCKED = "blocked"  # a disruption budget says not now
    GONE = "gone"  # no longer there, or another pod of that name


class Evicted(Struct, frozen=True):
    """The answer to an eviction. `reason` is the server's own word for why not, fit to be shown: a budget's, mostly."""

    outcome: Eviction
    reason: str = ""


class KubeUnavailable(Retryable):
    """The API server did not answer, or not in time. A change may or may not have taken place."""


class KubeRefused(NeedsOperator):
    """The API server will not do this for us: no permission, a certificate that is not its own, a wrong token."""


class NodeChanged(Retryable):
    """The node is not as expected; nothing was changed. `node` is as it is now, None if it is gone."""

    def __init__(self, message: str, node: Node | None) -> None:
        super().__init__(message)
        self.node = node


class Kube(Protocol):
    def nodes(self) -> list[Node]: ...

    def node(self, name: str) -> Node | None:
        """The node as it is now, not as a list remembers it."""
        ...

    def pods(self) -> list[Pod]:
        """All pods that are not finished."""
        ...

    def pods_on(self, node: str) -> list[Pod]:
        """The pods on a node as they are now, finished ones included."""
        ...

    def change_node(self, node: Node, change: NodeChange) -> Node:
        """The node after the change."""
        ...

    def evict(self, pod: Pod) -> Evicted:
        """Ask this very pod (by its uid) to leave, within its own grace period."""
        ...

    def delete_node(self, node: Node) -> None:
        """Remove the Node object, if it is still this one. An absent one is no error."""
        ...

    def delete_secret(self, namespace: str, name: str) -> None:
        """An absent one is no error."""
        ...
