"""Follow one resource: list it, then watch it from that list's version on, and list again when the thread is lost.

    list ──► watch ──┬─ its time is over: watch on from the last version heard of
      ▲              ├─ the connection breaks: wait a little, watch on from there
      └──────────────┴─ that version is gone (410), or an event cannot be read: wait a little, list

What was deleted while nobody watched shows in the new list by its absence.
"""

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from holdfast.adapters.kube.calls import Refusal
from holdfast.adapters.kube.client import Listing, Resource
from holdfast.adapters.kube.objects import Unreadable
from holdfast.adapters.kube.reader import Event
from holdfast.adapters.kube.transport import Stream, TransportError
from holdfast.adapters.kube.views import View
from holdfast.kernel.backoff import Backoff
from holdfast.kernel.errors import HoldfastError
from holdfast.ports.clock import Clock
from holdfast.ports.kube import KubeUnavailable, Node, Pod

_log = logging.getLogger(__name__)

_GONE: Final = 410

W = TypeVar("W")
T = TypeVar("T", bound=Node | Pod)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a watch lasts before it is made anew, when a view is too old, and how failures are spaced.

    A dead connection shows by nothing coming for longer than a watch lasts, so short ones find it sooner; the server
    also sends a bookmark just before it ends one.
    """

    watch_seconds: int = 45
    stale_after_seconds: float = 120.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first_seconds=0.5, most_seconds=15.0))


class Source(Protocol):
    """What a follower needs of the client."""

    def listing(self, resource: Resource[W, T]) -> Listing[T]: ...

    def watch(self, resource: Resource[W, T], version: str, seconds: int) -> Stream: ...


class Follower(Generic[W, T]):
    """Keeps one view. Each `round` is a list, if one is needed, and a watch to its end."""

    def __init__(
        self,
        source: Source,
        resource: Resource[W, T],
        view: View[T],
        clock: Clock,
        pace: Pace,
        changed: Callable[[], None],
        chance: random.Random,
    ) -> None:
        self._source = source
        self._resource = resource
        self._view = view
        self._clock = clock
        self._pace = pace
        self._changed = changed
        self._chance = chance
        self._version = ""  # to watch on from; "" when a list is needed first
        self._failures = 0
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._is_stopping = False

    def round(self) -> float:
        """List, if need be, and watch until that ends. How many seconds to wait before the next round."""
        try:
            if not self._version:
                self._list()
            self._watch()
        except _Lost as lost:
            self._version = ""
            return self._failed(lost)
        except (HoldfastError, TransportError) as error:
            return self._failed(error)
        self._failures = 0
        return 0.0

    def interrupt(self) -> None:
        """End the round under way, from another thread."""
        with self._lock:
            self._is_stopping = True
            if self._stream:
                self._stream.interrupt()

    def _failed(self, error: Exception) -> float:
        self._failures += 1
        self._view.fail(error)
        wait_seconds = self._pace.backoff.wait_seconds(self._failures, self._chance)
        if not self._is_stopping:
            _log.info("watch %s: %s; again in %.1f s", self._resource.name, error, wait_seconds)
        return wait_seconds

    def _list(self) -> None:
        # The time before: what the list shows may have changed while it was read.
        as_of_seconds = self._clock.monotonic_seconds()
        listing = self._source.listing(self._resource)
        self._version = listing.version
        if self._view.replace_all(listing.items, as_of_seconds):
            self._changed()

    def _watch(self) -> None:
        started_seconds = self._clock.monotonic_seconds()
        stream = self._source.watch(self._resource, self._version, self._pace.watch_seconds)
        try:
            self._hold(stream)
            if stream.status == _GONE:
                raise _Lost(f"version {self._version} is no longer kept")
            for line in stream:
                if line.strip():
                    self._take(line)
        finally:
            self._hold(None)
            stream.close()
        lasted_seconds = self._clock.monotonic_seconds() - started_seconds
        if lasted_seconds < self._pace.watch_seconds - 1:
            raise KubeUnavailable(f"the server ended it after {lasted_seconds:.0f} s")
        # It ran its time and ended in good order, so the server was there all along. In a quiet cluster that is the
        # only sign of life: a bookmark comes only when there is a newer version to tell of.
        self._view.hear()

    def _hold(self, stream: Stream | None) -> None:
        with self._lock:
            self._stream = stream
            if stream and self._is_stopping:
                stream.interrupt()

    def _take(self, line: bytes) -> None:
        try:
            event: Event[T] = self._resource.reader.event(line)
        except Unreadable as error:
            raise _Lost(str(error)) from error
        if event.kind == "ERROR":
            refusal = Refusal.read(0, event.error)
            # 410 as a rule. Whatever it is, the server will not go on from here.
            raise _Lost(str(refusal))
        self._version = event.version or self._version
        self._failures = 0
        if event.found is None:
            self._view.hear()
        elif self._view.drop(event.found) if event.kind == "DELETED" else self._view.put(event.found):
            self._changed()


class _Lost(Exception):
    """The thread of events is lost: only a new list tells what there is."""
