"""Follow one resource: list it, then watch it from the list's version, and list again if events were lost.

    list ──► watch ──┬─ its time is up: watch again from the last version seen
      ▲              ├─ the connection breaks: wait, then watch again from there
      └──────────────┴─ that version is gone (410), or an event cannot be read: wait, then list

Objects that were deleted between two watches are missing from the new list.
"""

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from holdfast.adapters.kube.calls import KubeRefusal
from holdfast.adapters.kube.client import Listing, Resource
from holdfast.adapters.kube.objects import UnreadableObject
from holdfast.adapters.kube.reader import WatchEvent
from holdfast.adapters.kube.transport import KubeTransportError, Stream
from holdfast.adapters.kube.views import ResourceView
from holdfast.kernel.backoff import Backoff
from holdfast.kernel.errors import HoldfastError
from holdfast.ports.clock import Clock
from holdfast.ports.kube import KubeUnavailable, Node, Pod

_log = logging.getLogger(__name__)

_GONE: Final = 410
_LOG_EVERY_FAILURES: Final = 256  # about once an hour, at the longest waits

W = TypeVar("W")
T = TypeVar("T", bound=Node | Pod)


@dataclass(frozen=True, slots=True)
class FollowPace:
    """How long a watch lasts before it is renewed, when a view is stale, and the backoff after failures.

    A connection counts as dead if nothing arrives for longer than a watch lasts, so short watches detect it sooner; the
    server also sends a bookmark just before it ends a watch.
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
        view: ResourceView[T],
        clock: Clock,
        pace: FollowPace,
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
        self._version = ""  # to continue watching from; "" if a list is needed first
        self._failures = 0
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._is_stopping = False

    def round(self) -> float:
        """List, if needed, and watch until the watch ends. Returns the seconds to wait before the next round."""
        try:
            if not self._version:
                self._list()
            self._watch()
        except _Lost as lost:
            self._version = ""
            return self._failed(lost)
        except (HoldfastError, KubeTransportError) as error:
            return self._failed(error)
        self._succeeded()
        return 0.0

    def interrupt(self) -> None:
        """End the current round, from another thread."""
        with self._lock:
            self._is_stopping = True
            if self._stream:
                self._stream.interrupt()

    def _failed(self, error: Exception) -> float:
        self._failures += 1
        self._view.fail(error)
        wait_seconds = self._pace.backoff.wait_seconds(self._failures, self._chance)
        if not self._is_stopping:
            self._log_failure(error, wait_seconds)
        return wait_seconds

    def _log_failure(self, error: Exception, wait_seconds: float) -> None:
        """The first failures, and later ones less and less often: an outage of a day must not fill the log.

        One failure is ordinary: a proxy closes the connection, or the version to continue from has expired.
        """
        times = self._failures
        is_power_of_two = times & (times - 1) == 0
        if is_power_of_two or times % _LOG_EVERY_FAILURES == 0:
            level = logging.INFO if times == 1 else logging.WARNING
            again = f", {times} times in a row" if times > 1 else ""
            _log.log(level, "watch %s: %s%s; retrying in %.1f s", self._resource.name, error, again, wait_seconds)

    def _succeeded(self) -> None:
        if self._failures > 1:
            _log.info("watch %s: succeeded again, after %d failures", self._resource.name, self._failures)
        self._failures = 0

    def _list(self) -> None:
        # The time before reading: objects may change while the list is read.
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
        # It lasted its full time, so the server was alive. In a quiet cluster this is the only sign of life: bookmarks
        # are sent only for a newer version.
        self._view.hear()

    def _hold(self, stream: Stream | None) -> None:
        with self._lock:
            self._stream = stream
            if stream and self._is_stopping:
                stream.interrupt()

    def _take(self, line: bytes) -> None:
        try:
            event: WatchEvent[T] = self._resource.reader.event(line)
        except UnreadableObject as error:
            raise _Lost(str(error)) from error
        if event.kind == "ERROR":
            refusal = KubeRefusal.read(0, event.error)
            # Usually a 410. In any case, the server does not continue from here.
            raise _Lost(str(refusal))
        self._version = event.version or self._version
        self._succeeded()
        if event.found is None:
            self._view.hear()
        elif self._view.drop(event.found) if event.kind == "DELETED" else self._view.put(event.found):
            self._changed()


class _Lost(Exception):
    """Events were lost: a new list is needed."""
