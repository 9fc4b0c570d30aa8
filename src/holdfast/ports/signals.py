"""What Prometheus knows about the cluster."""

from typing import Protocol

from msgspec import Struct

from holdfast.ports.readings import Reading


class PendingPods(Struct, frozen=True):
    """Pods that wait for a place, and how long the oldest has."""

    count: int
    oldest_seconds: float


class Signals(Protocol):
    """No call raises: what cannot be had is Unknown, with the reason."""

    def cpu(self) -> Reading[float]:
        """The workers' average CPU use, 0 to 1."""
        ...

    def pending_pods(self) -> Reading[PendingPods]: ...

    def ready_addresses(self) -> Reading[frozenset[str]]:
        """The internal addresses of the nodes that are Ready."""
        ...
