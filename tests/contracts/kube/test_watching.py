"""The watched view of a real API server: it follows changes, survives disconnects, and never misses a deletion."""

import base64
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from holdfast.adapters.kube.calls import KubeCalls
from holdfast.adapters.kube.client import KubeApi, Listing, Resource
from holdfast.adapters.kube.config import ApiServerAddress, KubeAccess
from holdfast.adapters.kube.follower import Follower, FollowPace
from holdfast.adapters.kube.reader import pod_reader
from holdfast.adapters.kube.reflector import Reflector
from holdfast.adapters.kube.tokens import FixedToken
from holdfast.adapters.kube.transport import HttpTransport, KubeResponse, Request
from holdfast.adapters.kube.views import ResourceView
from holdfast.adapters.system_clock import SystemClock
from holdfast.kernel.backoff import Backoff
from holdfast.ports.kube import Eviction, KubeUnavailable, Node, NodeChange, PodPhase
from tests.servers.kube_apiserver import RunningKube
from tests.support.kube_worlds import RealWorld, pod_named

pytestmark = pytest.mark.real

QUICK = FollowPace(backoff=Backoff(first_seconds=0.05, most_seconds=0.2))


W = TypeVar("W")
T = TypeVar("T")


class Bell:
    """Rings when the view has changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rung = threading.Event()
        self.rings = 0

    def ring(self) -> None:
        with self._lock:
            self.rings += 1
        self._rung.set()

    def until(self, holds: Callable[[], bool], limit_seconds: float = 60.0) -> None:
        """Check again at every ring, until it holds."""
        give_up_at = time.monotonic() + limit_seconds
        while not holds():
            assert self._rung.wait(give_up_at - time.monotonic()), f"not within {limit_seconds:g} s"
            self._rung.clear()


@contextmanager
def watching(world: RealWorld) -> Iterator[tuple[Reflector, Bell]]:
    """A view of a cluster of one node, listed and watched."""
    world.make_node("first")
    bell = Bell()
    with Reflector(world.kube, SystemClock(), bell.ring, QUICK) as view:
        bell.until(lambda: bell.rings == 2)  # one for each first list
        yield view, bell


def names(view: Reflector) -> set[str]:
    try:
        return {node.name for node in view.nodes()}
    except KubeUnavailable:
        return set()


def pod_names(view: Reflector) -> set[str]:
    try:
        return {pod.name for pod in view.pods()}
    except KubeUnavailable:
        return set()


def test_the_view_follows_changes(real_world: RealWorld) -> None:
    with watching(real_world) as (view, bell):
        real_world.make_node("second")
        real_world.make_pod("web", node="second")
        bell.until(lambda: names(view) == {"first", "second"} and pod_names(view) == {"web"})
        bell.until(lambda: sorted(view.nodes(), key=lambda node: node.name) == real_world.kube.nodes())
        bell.until(lambda: view.pods() == real_world.kube.pods())
        real_world.remove_node("first")
        real_world.remove_pod("web")
        bell.until(lambda: names(view) == {"second"} and pod_names(view) == set())
        real_world.set_ready("second", is_ready=False)
        bell.until(lambda: not view.nodes()[0].is_ready)


def test_a_pod_that_finishes_leaves_the_view(real_world: RealWorld) -> None:
    with watching(real_world) as (view, bell):
        real_world.make_pod("job", node="first")
        bell.until(lambda: pod_names(view) == {"job"})
        real_world.server.call(
            "PATCH", "/api/v1/namespaces/default/pods/job/status", {"status": {"phase": PodPhase.SUCCEEDED}}
        )
        bell.until(lambda: pod_names(view) == set())
        assert [pod.name for pod in view.pods_on("first")] == ["job"]


def test_a_heartbeat_does_not_wake_the_daemon(real_world: RealWorld) -> None:
    with watching(real_world) as (view, bell):
        seen, before = view.nodes()[0], bell.rings
        heartbeat = {"lastHeartbeatTime": "2100-01-01T00:00:00Z", "type": "Ready", "status": "True"}
        unchanged = {"lastTransitionTime": seen.ready_changed.iso_seconds()} if seen.ready_changed else {}
        real_world.server.call(
            "PATCH", "/api/v1/nodes/first/status", {"status": {"conditions": [{**heartbeat, **unchanged}]}}
        )
        real_world.set_ready(
            "first", is_ready=False
        )  # events arrive in order: after this one, the heartbeat has arrived
        bell.until(lambda: not view.nodes()[0].is_ready)
        assert bell.rings - before == 1


def test_changes_through_the_view_reach_the_server_and_come_back(real_world: RealWorld) -> None:
    with watching(real_world) as (view, bell):
        real_world.make_pod("web", node="first")
        bell.until(lambda: pod_names(view) == {"web"})
        cordoned = view.change_node(view.nodes()[0], NodeChange(unschedulable=True))
        assert cordoned == view.node("first") == real_world.kube.node("first")
        bell.until(lambda: view.nodes() == [cordoned])
        assert view.evict(pod_named(view.pods(), "web")).outcome is Eviction.ACCEPTED
        bell.until(lambda: all(pod.is_deleting for pod in view.pods()))
        view.delete_node(cordoned)
        view.delete_secret("kube-system", "absent")
        bell.until(lambda: view.nodes() == [])


def test_a_bookmark_updates_the_version_before_a_watch_ends(real_world: RealWorld) -> None:
    """So that the next watch starts near the present, even where little happens."""
    api = real_world.kube
    listing = api.listing(api.all_pods)
    stream = api.watch(api.all_pods, listing.version, seconds=4)
    real_world.make_pod("web")
    events = [pod_reader().event(line) for line in stream]
    stream.close()
    kinds = [event.kind for event in events]
    assert kinds[:3] == ["ADDED", "MODIFIED", "BOOKMARK"]
    assert set(kinds[3:]) <= {"BOOKMARK"}
    assert int(events[-1].version) >= int(events[1].version) > int(listing.version)


def test_a_watch_that_timed_out_resumes_without_a_new_list(real_world: RealWorld) -> None:
    api, clock = Counting(KubeCalls(HttpTransport(access_to(real_world.server)), SystemClock())), SystemClock()
    view: ResourceView[Node] = ResourceView("nodes", clock, stale_after_seconds=60)
    pace = FollowPace(watch_seconds=1)
    follower = Follower(api, api.all_nodes, view, clock, pace, Bell().ring, random.Random(7))
    assert follower.round() == 0
    real_world.make_node("second")
    assert follower.round() == 0
    assert [node.name for node in view.items()] == ["second"]
    assert api.lists == 1
    api.close()


class Counting(KubeApi):
    lists = 0

    def listing(self, resource: Resource[W, T]) -> Listing[T]:
        self.lists += 1
        return super().listing(resource)


def access_to(server: RunningKube) -> KubeAccess:
    return KubeAccess(ApiServerAddress.parsed(server.url, "test"), server.ca_pem, FixedToken(server.admin_token))


# urllib3 leaves the socket of a TLS handshake that the stopping server cuts off to the garbage collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
def test_after_a_restart_of_the_server_the_view_continues(real_world: RealWorld) -> None:
    with watching(real_world) as (view, bell):
        real_world.server.stop_api()
        real_world.server.start_api()
        real_world.make_node("second")
        bell.until(lambda: names(view) == {"first", "second"})


def test_a_deletion_between_two_watches_is_noticed(real_world: RealWorld) -> None:
    """The version that the watch would resume from is gone (410), and the new list lacks the node."""
    server = real_world.server
    with watching(real_world) as (view, bell):
        real_world.make_node("second")
        real_world.make_pod("web", node="second")
        bell.until(lambda: names(view) == {"first", "second"} and pod_names(view) == {"web"})
        server.stop_api()
        for key in ("/registry/minions/second", "/registry/pods/default/web"):
            assert server.ask_etcd("kv/deleterange", {"key": base64.b64encode(key.encode()).decode()})["deleted"] == "1"
        compact(server)
        server.start_api()
        bell.until(lambda: names(view) == {"first"} and pod_names(view) == set())


def compact(server: RunningKube) -> None:
    """Make etcd forget all versions but the current one."""
    revision = server.ask_etcd("kv/range", {"key": base64.b64encode(b"/").decode()})["header"]["revision"]
    server.ask_etcd("kv/compaction", {"revision": revision, "physical": True})


def test_an_expired_version_is_reported_as_expired(real_world: RealWorld) -> None:
    api = real_world.kube
    version = api.listing(api.all_nodes).version
    server = real_world.server
    real_world.make_node("first")
    compact(server)
    server.stop_api()
    server.start_api()
    stream = api.watch(api.all_nodes, version, seconds=5)
    lines = list(stream) if stream.status == 200 else [stream.body()]
    stream.close()
    assert b"too old resource version" in lines[0]
    assert b'"code":410' in lines[0]


def test_a_list_that_expires_between_two_pages_is_restarted(real_world: RealWorld) -> None:
    """With the state at that time: the node that was created meanwhile is in it."""
    server = real_world.server
    for number in range(5):
        real_world.make_node(f"n{number}")

    class Interrupted(HttpTransport):
        pages = 0

        def send(self, request: Request) -> KubeResponse:
            answer = super().send(request)
            self.pages += 1
            if self.pages == 1:
                real_world.make_node("n5")
                compact(server)
            return answer

    transport = Interrupted(access_to(server))
    api = KubeApi(KubeCalls(transport, SystemClock()), page_size=2)
    assert [node.name for node in api.nodes()] == [f"n{number}" for number in range(6)]
    assert transport.pages == 1 + 1 + 3
    api.close()
