"""Following a resource: when it is listed, when the watch resumes, how old a view may get."""

import json
import random
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from holdfast.adapters.kube.client import Listing, Resource
from holdfast.adapters.kube.follower import Follower, FollowPace
from holdfast.adapters.kube.objects import WirePod
from holdfast.adapters.kube.reader import pod_reader
from holdfast.adapters.kube.transport import KubeTransportError, Stream
from holdfast.adapters.kube.views import ResourceView
from holdfast.kernel.backoff import Backoff
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import KubeRefused, KubeUnavailable, Node, Pod, PodPhase
from tests.clocks import StillClock

W = TypeVar("W")
T = TypeVar("T")

PACE = FollowPace(watch_seconds=45, stale_after_seconds=120, backoff=Backoff(first_seconds=0.5, most_seconds=15))


def event(kind: str, name: str, version: int, **parts: Any) -> bytes:
    meta = {"name": name, "uid": name, "namespace": "ns", "resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": {"metadata": meta, **parts}}).encode()


def bookmark(version: int) -> bytes:
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}).encode()


def error(code: int) -> bytes:
    return json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "too old"}}).encode()


class ScriptedStream:
    def __init__(self, world: "ScriptedSource", lines: list[bytes | Exception], seconds: float, status: int) -> None:
        self._world, self._lines, self._seconds, self.status = world, lines, seconds, status
        self.interrupted = self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            if isinstance(line, Exception):
                raise line
            yield line
        self._world.clock.advance(self._seconds)

    def body(self) -> bytes:
        return b""

    def interrupt(self) -> None:
        self.interrupted = True

    def close(self) -> None:
        self.closed = True


class ScriptedSource:
    """Lists and watches from a script; records the requested versions."""

    def __init__(self, clock: StillClock) -> None:
        self.clock = clock
        self.lists: list[tuple[str, list[str]] | Exception] = []
        self.watches: list[ScriptedStream | Exception] = []
        self.asked: list[str] = []

    def will_list(self, version: int, *names: str) -> None:
        self.lists.append((str(version), list(names)))

    def will_watch(self, *lines: bytes | Exception, seconds: float = 45, status: int = 200) -> ScriptedStream:
        stream = ScriptedStream(self, list(lines), seconds, status)
        self.watches.append(stream)
        return stream

    def listing(self, resource: Resource[W, T]) -> Listing[T]:
        self.asked.append("list")
        found = self.lists.pop(0)
        if isinstance(found, Exception):
            raise found
        version, names = found
        items = [resource.reader.one(json.dumps({"metadata": {"name": name, "uid": name}}).encode()) for name in names]
        return Listing(items, 0, version)

    def watch(self, resource: Resource[W, T], version: str, seconds: int) -> Stream:
        self.asked.append(f"watch {version} {seconds}")
        stream = self.watches.pop(0)
        if isinstance(stream, Exception):
            raise stream
        return stream


class Following:
    """A follower of pods in a scripted world."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.source = ScriptedSource(self.clock)
        self.view: ResourceView[Pod] = ResourceView("pods", self.clock, PACE.stale_after_seconds)
        self.rings = 0
        resource: Resource[WirePod, Pod] = Resource("pods", pod_reader())
        chance = random.Random(7)
        self.follower = Follower(self.source, resource, self.view, self.clock, PACE, self._ring, chance)

    def _ring(self) -> None:
        self.rings += 1

    def names(self) -> list[str]:
        return sorted(pod.name for pod in self.view.items())


@pytest.fixture
def following() -> Following:
    return Following()


def test_a_list_and_then_a_watch_from_its_version(following: Following) -> None:
    following.source.will_list(10, "a", "b")
    stream = following.source.will_watch(event("ADDED", "c", 11), event("DELETED", "a", 12), b"", bookmark(20))
    following.source.will_watch()
    assert following.follower.round() == 0
    assert following.names() == ["b", "c"]
    assert stream.closed
    following.follower.round()
    assert following.source.asked == ["list", "watch 10 45", "watch 20 45"]


def test_the_first_list_wakes_the_owner_even_if_it_is_empty(following: Following) -> None:
    following.source.will_list(10)
    following.source.will_watch()
    following.follower.round()
    assert (following.names(), following.rings) == ([], 1)


def test_only_changes_that_the_port_exposes_wake_the_owner(following: Following) -> None:
    following.source.will_list(10, "a")
    following.source.will_watch(
        event("ADDED", "b", 11),
        event("MODIFIED", "b", 12, status={"phase": "Running"}),
        event("MODIFIED", "b", 13, status={"phase": "Running", "message": "a detail"}),
        event("DELETED", "unknown", 14),
        bookmark(15),
    )
    following.follower.round()
    assert following.rings == 3
    assert next(pod.phase for pod in following.view.items() if pod.name == "b") is PodPhase.RUNNING


def test_after_a_broken_connection_the_watch_resumes_from_the_last_version(following: Following) -> None:
    following.source.will_list(10, "a")
    following.source.will_watch(event("ADDED", "b", 11), KubeTransportError("ProtocolError: cut off"))
    following.source.will_watch()
    assert 0 <= following.follower.round() <= 0.5
    following.follower.round()
    assert following.source.asked == ["list", "watch 10 45", "watch 11 45"]
    assert following.names() == ["a", "b"]


@pytest.mark.parametrize(
    "lost", [error(410), error(500), b"{", event("ADDED", "", 11)], ids=["410", "500", "torn", "nameless"]
)
def test_an_expired_watch_leads_to_a_new_list_which_shows_deletions(following: Following, lost: bytes) -> None:
    following.source.will_list(10, "a", "b")
    stream = following.source.will_watch(lost)
    following.source.will_list(50, "b", "c")
    following.source.will_watch()
    assert following.follower.round() <= 0.5
    assert stream.closed
    following.follower.round()
    assert following.names() == ["b", "c"]
    assert following.source.asked == ["list", "watch 10 45", "list", "watch 50 45"]


def test_a_refused_version_leads_to_a_new_list(following: Following) -> None:
    following.source.will_list(10, "a")
    following.source.will_watch(status=410)
    following.source.will_list(50)
    following.source.will_watch()
    following.follower.round()
    following.follower.round()
    assert following.names() == []
    assert following.source.asked[2:] == ["list", "watch 50 45"]


def test_a_new_list_without_changes_does_not_wake_the_owner(following: Following) -> None:
    following.source.will_list(10, "a")
    following.source.will_watch(error(410))
    following.source.will_list(50, "a")
    following.source.will_watch()
    following.follower.round()
    following.follower.round()
    assert following.rings == 1


def test_an_outage_is_logged_less_and_less_often_and_its_end_once(
    following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    """A single failure is ordinary; from the second on it is a warning."""
    following.source.lists += [KubeUnavailable("no answer")] * 1000
    following.source.will_list(10, "a")
    following.source.will_watch(bookmark(11))
    with caplog.at_level("INFO"):
        for _ in range(1001):
            following.follower.round()
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    times = [int(found.group(1)) for line in warnings if (found := re.search(r"answer, (\d+) times in a row;", line))]
    assert times == [2, 4, 8, 16, 32, 64, 128, 256, 512, 768]
    others = [record.message for record in caplog.records if record.levelname == "INFO"]
    assert len(others) == 2
    assert others[1] == "watch pods: succeeded again, after 1000 failures"


def test_retries_after_repeated_failures_wait_longer_each_time(following: Following) -> None:
    following.source.lists += [KubeUnavailable("no answer")] * 20
    waits = [following.follower.round() for _ in range(20)]
    assert all(0 <= wait <= min(15, 0.5 * 2**number) for number, wait in enumerate(waits))
    assert max(waits) > 5
    following.source.will_list(10)
    following.source.will_watch()
    assert following.follower.round() == 0


def test_a_server_that_ends_each_watch_at_once_is_not_called_without_pause(following: Following) -> None:
    following.source.will_list(10)
    for _ in range(9):
        following.source.will_watch(seconds=0)
    waits = [following.follower.round() for _ in range(9)]
    assert max(waits) > 2


# How old a view may get


def test_a_view_before_its_first_list_is_unknown_and_not_empty(following: Following) -> None:
    with pytest.raises(KubeUnavailable, match="watch pods: not listed yet; no response"):
        following.names()
    assert following.view.age_seconds() is None
    following.source.lists.append(KubeUnavailable("timed out"))
    following.follower.round()
    with pytest.raises(KubeUnavailable, match="not listed yet; timed out"):
        following.names()


def test_a_view_that_is_too_old_is_unknown_with_the_reason(following: Following) -> None:
    following.source.will_list(10, "a")
    following.source.will_watch(KubeTransportError("ProtocolError: cut off"))
    following.follower.round()
    following.clock.advance(120)
    assert (following.names(), following.view.age_seconds()) == (["a"], 120)
    following.clock.advance(1)
    with pytest.raises(KubeUnavailable, match="last update 121 s ago, more than 120 s; ProtocolError: cut off"):
        following.names()


@pytest.mark.parametrize("line", [event("ADDED", "b", 11), event("DELETED", "a", 11), bookmark(11)])
def test_an_event_or_a_bookmark_keeps_a_view_fresh(following: Following, line: bytes) -> None:
    following.source.will_list(10, "a")
    following.source.will_watch(line, seconds=0)
    following.clock.advance(100)
    following.follower.round()
    assert following.view.age_seconds() == 0


def test_a_watch_that_timed_out_without_events_keeps_a_view_fresh(following: Following) -> None:
    """In a quiet cluster there are neither events nor bookmarks."""
    following.source.will_list(10, "a")
    for _ in range(10):
        following.source.will_watch()
        following.follower.round()
    assert following.view.age_seconds() == 0
    following.source.will_watch(seconds=3)
    following.follower.round()
    assert following.view.age_seconds() == 3


def test_the_age_of_a_list_counts_from_its_request(following: Following) -> None:
    following.view.replace_all([], following.clock.monotonic_seconds() - 7)
    assert following.view.age_seconds() == 7


def test_a_forbidden_view_needs_an_operator(following: Following) -> None:
    following.source.lists.append(KubeRefused("list pods: 403; grant it"))
    following.follower.round()
    with pytest.raises(KubeRefused, match="grant it"):
        following.names()


def test_a_failure_is_cleared_when_the_server_responds_again(following: Following) -> None:
    following.source.lists.append(KubeRefused("list pods: 403; grant it"))
    following.source.will_list(10, "a")
    following.source.will_watch()
    following.follower.round()
    following.follower.round()
    following.clock.advance(500)
    with pytest.raises(KubeUnavailable, match=r"last update 500 s ago.*no response"):
        following.names()


def test_a_follower_that_is_asked_to_stop_interrupts_the_next_watch_too(following: Following) -> None:
    """The request to stop may come between a watch request and its response."""
    following.source.will_list(10)
    stream = following.source.will_watch(seconds=0)
    following.follower.interrupt()
    following.follower.round()
    assert stream.interrupted


def test_a_heartbeat_of_a_node_is_not_a_change() -> None:
    view: ResourceView[Node] = ResourceView("nodes", StillClock(), 120)
    node = Node("n", "u", "1", None, True, None, Instant(0), False)
    later = Node("n", "u", "2", None, True, None, Instant(0), False)
    assert view.put(node)
    assert not view.put(later)
    assert view.items() == [later]
    assert view.put(Node("n", "u", "3", None, False, None, Instant(0), False))
