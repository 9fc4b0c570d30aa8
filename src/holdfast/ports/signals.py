"""Readings of the cluster from Prometheus."""

from typing import Protocol

from msgspec import Struct

from holdfast.ports.readings import Reading


class PendingPods(Struct, frozen=True):
    """The number of pending pods, and the age of the oldest."""

    count: int
    oldest_seconds: float


class Signals(Protocol):
    """No call raises: a missing reading is Unknown, with the reason."""

    def cpu(self) -> Reading[float]:
        """The workers' average CPU use, 0 to 1."""
        ...

    def pending_pods(self) -> Reading[PendingPods]: ...

    def ready_addresses(self) -> Reading[frozenset[str]]:
        """The internal addresses of Ready nodes."""
        ...
