"""The cached objects of one resource: written by a watch, read by ticks, from two threads."""

import threading
from collections.abc import Iterable
from typing import Generic, TypeVar

from msgspec.structs import replace

from holdfast.ports.clock import Clock
from holdfast.ports.kube import KubeRefused, KubeUnavailable, Node, Pod

T = TypeVar("T", bound=Node | Pod)


class ResourceView(Generic[T]):
    """The objects of one resource, and how long ago the server last sent something."""

    def __init__(self, name: str, clock: Clock, stale_after_seconds: float) -> None:
        self.name = name
        self._clock = clock
        self._stale_after_seconds = stale_after_seconds
        self._lock = threading.Lock()
        self._by_uid: dict[str, T] = {}
        self._heard_at_seconds: float | None = None
        self._error: Exception | None = None

    def items(self) -> list[T]:
        """All objects. Raises the reason if there is no list yet, or if it is too old."""
        with self._lock:
            age_seconds = self._age_seconds()
            if age_seconds is not None and age_seconds <= self._stale_after_seconds:
                return list(self._by_uid.values())
            error = self._error
        if isinstance(error, KubeRefused):
            raise KubeRefused(str(error)) from error
        heard = "not listed yet" if age_seconds is None else f"last update {age_seconds:.0f} s ago"
        limit = "" if age_seconds is None else f", more than {self._stale_after_seconds:g} s"
        raise KubeUnavailable(f"Kubernetes, watch {self.name}: {heard}{limit}; {error or 'no response'}") from error

    def age_seconds(self) -> float | None:
        """How long ago the server last sent something; None before the first list."""
        with self._lock:
            return self._age_seconds()

    def replace_all(self, items: Iterable[T], as_of_seconds: float) -> bool:
        """Replace all objects by the list as of that time. Returns whether anything changed.

        The first list always counts as a change: an empty list is more than none.
        """
        found = {item.uid: item for item in items}
        with self._lock:
            is_first = self._heard_at_seconds is None
            before, self._by_uid = self._by_uid, found
            self._hear(as_of_seconds)
        if is_first or before.keys() != found.keys():
            return True
        return any(_differ(before[uid], item) for uid, item in found.items())

    def put(self, item: T) -> bool:
        with self._lock:
            before = self._by_uid.get(item.uid)
            self._by_uid[item.uid] = item
            self._hear(self._clock.monotonic_seconds())
        return before is None or _differ(before, item)

    def drop(self, item: T) -> bool:
        with self._lock:
            self._hear(self._clock.monotonic_seconds())
            return self._by_uid.pop(item.uid, None) is not None

    def hear(self) -> None:
        """The server is alive, and has nothing new."""
        with self._lock:
            self._hear(self._clock.monotonic_seconds())

    def fail(self, error: Exception) -> None:
        """Note why there are no updates; raised by `items` when the view is too old."""
        with self._lock:
            self._error = error

    def _hear(self, at_seconds: float) -> None:
        self._heard_at_seconds = at_seconds
        self._error = None

    def _age_seconds(self) -> float | None:
        heard = self._heard_at_seconds
        return None if heard is None else self._clock.monotonic_seconds() - heard


def _differ(one: T, other: T) -> bool:
    """Whether they differ in more than a node's version, which changes with each heartbeat."""
    if isinstance(one, Node) and isinstance(other, Node):
        return replace(one, resource_version=other.resource_version) != other
    return one != other
