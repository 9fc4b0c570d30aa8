"""Calls to the API server: what is retried, what is not, and what the responses mean."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.adapters.kube.calls import KubeCalls
from holdfast.adapters.kube.client import KubeApi
from holdfast.adapters.kube.transport import KubeResponse, KubeTransportError, Request, Stream
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import (
    Eviction,
    KubeRefused,
    KubeUnavailable,
    Node,
    NodeChange,
    NodeChanged,
    Pod,
    PodPhase,
)
from tests.clocks import StillClock

NODE = Node("n", "u", "41", None, True, None, Instant(0), False)
POD = Pod("ns", "p", "u", "n", PodPhase.RUNNING, Instant(0))
EMPTY = KubeResponse(200, b'{"metadata": {"resourceVersion": "1"}, "items": []}')
LOST = KubeTransportError("ReadTimeoutError: no answer")
NOT_THE_SERVER = KubeTransportError("SSLCertVerificationError: self-signed certificate", refused=True)


def status(code: int, message: str = "", *causes: tuple[str, str], retry_after_seconds: float = 0.0) -> KubeResponse:
    details = {"causes": [{"reason": reason, "message": text} for reason, text in causes]}
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message, "details": details}
    return KubeResponse(code, json.dumps(body).encode(), retry_after_seconds)


def node_answer(**meta: Any) -> KubeResponse:
    return KubeResponse(
        200, json.dumps({"metadata": {"name": "n", "uid": "u", "resourceVersion": "42", **meta}}).encode()
    )


BUSY = status(429, "too many requests")
BROKEN = status(503, "etcd leader changed")


class ScriptedTransport:
    """Responses from a list, the last one for ever; records the requests."""

    def __init__(self, *answers: KubeResponse | KubeTransportError, tokens: int = 0) -> None:
        self._answers: Iterator[KubeResponse | KubeTransportError] = iter(answers)
        self._last: KubeResponse | KubeTransportError = EMPTY
        self._tokens = tokens
        self.asked: list[Request] = []

    def send(self, request: Request) -> KubeResponse:
        self.asked.append(request)
        self._last = next(self._answers, self._last)
        if isinstance(self._last, KubeTransportError):
            raise self._last
        return self._last

    def open(self, request: Request, idle_seconds: float) -> Stream:
        return ScriptedStream(self.send(request))

    def forget_token(self) -> bool:
        self._tokens -= 1
        return self._tokens >= 0

    def close(self) -> None:
        pass


class ScriptedStream:
    def __init__(self, answer: KubeResponse) -> None:
        self.status = answer.status
        self._body = answer.body

    def __iter__(self) -> Iterator[bytes]:
        yield from self._body.splitlines()

    def body(self) -> bytes:
        return self._body

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass


def api_on(transport: ScriptedTransport, clock: StillClock | None = None, page_size: int = 500) -> KubeApi:
    return KubeApi(KubeCalls(transport, clock or StillClock(), chance=random.Random(7)), page_size=page_size)


# Reads


@pytest.mark.parametrize("failure", [LOST, BUSY, BROKEN], ids=str)
def test_a_read_with_a_temporary_error_is_retried_with_growing_waits(
    failure: KubeResponse | KubeTransportError,
) -> None:
    clock = StillClock()
    transport = ScriptedTransport(failure, failure, failure, EMPTY)
    assert api_on(transport, clock).nodes() == []
    assert len(transport.asked) == 4
    assert all(0 <= wait <= most for wait, most in zip(clock.slept_seconds, (0.1, 0.2, 0.4), strict=True))


def test_a_retry_waits_as_long_as_the_server_asks() -> None:
    clock = StillClock()
    busy = status(429, "too many requests", retry_after_seconds=3)
    assert api_on(ScriptedTransport(busy, EMPTY), clock).nodes() == []
    assert clock.slept_seconds == [3]


@pytest.mark.parametrize("failure", [LOST, BUSY, BROKEN], ids=str)
def test_reads_end_at_the_deadline_with_an_error_that_says_so(failure: KubeResponse | KubeTransportError) -> None:
    clock = StillClock()
    started_seconds = clock.monotonic_seconds()
    transport = ScriptedTransport(failure)
    with pytest.raises(KubeUnavailable, match=r"Kubernetes, list nodes: .*; gave up after 8 s of retries"):
        api_on(transport, clock).nodes()
    assert clock.monotonic_seconds() - started_seconds <= 8
    assert len(transport.asked) > 5


def test_a_read_fails_at_once_if_the_server_asks_for_a_long_pause() -> None:
    clock = StillClock()
    transport = ScriptedTransport(status(429, "later", retry_after_seconds=60))
    with pytest.raises(KubeUnavailable):
        api_on(transport, clock).nodes()
    assert (len(transport.asked), clock.slept_seconds) == (1, [])


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (status(401, "Unauthorized"), "list nodes: 401: Unauthorized; the token or client certificate"),
        (status(403, "nodes is forbidden"), "list nodes: 403: nodes is forbidden; grant it with deploy/kubernetes"),
        (NOT_THE_SERVER, "TLS failed: .*check the server's URL and its CA"),
        (KubeResponse(302, b""), "list nodes: 302"),
        (KubeResponse(404, b"<html>\n<h1>no such page</h1>"), r"404: <html>\\n<h1>no such page"),
    ],
    ids=str,
)
def test_a_permanent_error_is_raised_at_once_with_its_remedy(
    answer: KubeResponse | KubeTransportError, says: str
) -> None:
    transport = ScriptedTransport(answer)
    with pytest.raises(KubeRefused, match=says):
        api_on(transport).nodes()
    assert len(transport.asked) == 1


def test_a_replaced_token_is_tried_once() -> None:
    transport = ScriptedTransport(status(401), EMPTY, tokens=1)
    assert api_on(transport).nodes() == []
    transport = ScriptedTransport(status(401), tokens=5)
    with pytest.raises(KubeRefused):
        api_on(transport).nodes()
    assert len(transport.asked) == 2


def test_a_response_not_from_kubernetes_is_not_an_empty_list() -> None:
    with pytest.raises(KubeUnavailable, match="list pods"):
        api_on(ScriptedTransport(KubeResponse(200, b"<html>log in first</html>"))).pods()
    with pytest.raises(KubeUnavailable, match="get nodes"):
        api_on(ScriptedTransport(KubeResponse(200, b"<html>log in first</html>"))).node("n")


# Lists


def page(*names: str, more: str = "", version: str = "7") -> KubeResponse:
    items = [{"metadata": {"name": name, "uid": name}} for name in names]
    return KubeResponse(
        200, json.dumps({"metadata": {"resourceVersion": version, "continue": more}, "items": items}).encode()
    )


def test_pages_are_read_until_the_last() -> None:
    transport = ScriptedTransport(page("a", "b", more="t1"), page("c", "d", more="t2"), page("e"))
    assert [node.name for node in api_on(transport, page_size=2).nodes()] == list("abcde")
    assert [request.query for request in transport.asked] == [
        {"limit": "2"},
        {"limit": "2", "continue": "t1"},
        {"limit": "2", "continue": "t2"},
    ]


def test_an_expired_list_is_restarted_without_its_earlier_pages() -> None:
    gone = status(410, "The provided continue parameter is too old")
    transport = ScriptedTransport(page("a", "b", more="t1"), gone, page("b", "c", more="t2"), page("d"))
    assert [node.name for node in api_on(transport).nodes()] == list("bcd")


def test_a_list_that_keeps_expiring_is_given_up() -> None:
    gone = status(410, "too old")
    with pytest.raises(KubeUnavailable, match="expired 3 times between two pages"):
        api_on(ScriptedTransport(gone)).nodes()


def test_pods_are_selected_by_the_server() -> None:
    transport = ScriptedTransport(EMPTY)
    api_on(transport).pods()
    api_on(transport).pods_on("n")
    assert [request.query["fieldSelector"] for request in transport.asked] == [
        "status.phase!=Succeeded,status.phase!=Failed",
        "spec.nodeName=n",
    ]


NAMELESS = KubeResponse(200, b'{"metadata": {}, "items": [{"metadata": {}}, {"metadata": {"name": "p", "uid": "u"}}]}')


def test_an_object_without_a_name_is_left_out_of_a_list_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    api = api_on(ScriptedTransport(NAMELESS))
    assert [pod.name for pod in api.pods()] == ["p"]
    assert api.listing(api.all_pods).unreadable == 1
    assert "list pods: skipped 1 objects without a name or uid" in caplog.text


def test_a_node_with_an_unreadable_pod_does_not_count_as_empty() -> None:
    with pytest.raises(KubeUnavailable, match="pods on n: 1 have no name or uid"):
        api_on(ScriptedTransport(NAMELESS)).pods_on("n")


# Changes

Change = Callable[[KubeApi], Any]
CHANGES: list[tuple[Change, str]] = [
    (lambda api: api.change_node(NODE, NodeChange(unschedulable=True)), "patch nodes n"),
    (lambda api: api.evict(POD), "create pods/eviction ns/p"),
    (lambda api: api.delete_node(NODE), "delete nodes n"),
    (lambda api: api.delete_secret("ns", "s"), "delete secrets ns/s"),
]
each_change = pytest.mark.parametrize(("change", "name"), CHANGES, ids=[name for _, name in CHANGES])


@each_change
@pytest.mark.parametrize("failure", [LOST, BROKEN], ids=str)
def test_a_change_is_never_retried(change: Change, name: str, failure: KubeResponse | KubeTransportError) -> None:
    """It may have happened; the next tick observes and decides again."""
    transport = ScriptedTransport(failure, EMPTY)
    with pytest.raises(KubeUnavailable, match=f"Kubernetes, {name}: .*it may have been executed, and is not retried"):
        change(api_on(transport))
    assert len(transport.asked) == 1


def test_a_throttled_change_certainly_did_not_happen() -> None:
    with pytest.raises(KubeUnavailable, match="it was not executed, and is not retried"):
        api_on(ScriptedTransport(BUSY)).delete_node(NODE)


@each_change
def test_a_forbidden_change_names_verb_resource_and_remedy(change: Change, name: str) -> None:
    with pytest.raises(KubeRefused, match=f"Kubernetes, {name}: 403: forbidden; grant it with"):
        change(api_on(ScriptedTransport(status(403, "forbidden"))))


@pytest.mark.parametrize("code", [409, 422])
def test_a_conflicting_change_reads_the_node_again(code: int) -> None:
    transport = ScriptedTransport(status(code, "rejected"), node_answer(annotations={"fence": "9"}))
    with pytest.raises(NodeChanged, match="node n has fence='9', expected fence='5'; nothing was changed") as no:
        api_on(transport).change_node(NODE, NodeChange(expected={"fence": "5"}))
    assert no.value.node is not None
    assert no.value.node.resource_version == "42"


def test_a_change_that_conflicted_with_an_undone_change_still_fails() -> None:
    transport = ScriptedTransport(status(422, "rejected"), node_answer())
    with pytest.raises(NodeChanged, match="node n was changed in the meantime"):
        api_on(transport).change_node(NODE, NodeChange(unschedulable=True))


def test_a_change_that_fails_validation_is_a_bug_and_not_a_conflict() -> None:
    """Reading and retrying would go on for ever."""
    transport = ScriptedTransport(status(422, "Node is invalid", ("FieldValueInvalid", "metadata.annotations: bad")))
    with pytest.raises(BadRequest, match=r"node n: 422: Node is invalid .*annotations: bad"):
        api_on(transport).change_node(NODE, NodeChange(annotations={"bad key": ""}))


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([KubeResponse(201, b"{}")], Eviction.ACCEPTED),
        ([status(404, "not found")], Eviction.GONE),
        ([status(429, "no", ("DisruptionBudget", "needs 1 healthy pods and has 1"))], Eviction.BLOCKED),
        ([BUSY], Eviction.BLOCKED),
        ([status(500, "This pod has more than one PodDisruptionBudget, which")], Eviction.BLOCKED),
        ([status(403, "no", ("NamespaceTerminating", "ns is being terminated"))], Eviction.BLOCKED),
        ([status(409, "uid"), status(404)], Eviction.GONE),
        ([status(409, "uid"), node_answer(uid="another")], Eviction.GONE),
        ([status(409, "busy"), node_answer(uid="u")], Eviction.BLOCKED),
    ],
    ids=[
        "201",
        "404",
        "429",
        "429 busy",
        "500 two budgets",
        "403 namespace going",
        "409 gone",
        "409 other",
        "409 same",
    ],
)
def test_each_response_to_an_eviction_has_its_outcome(answers: list[KubeResponse], outcome: Eviction) -> None:
    assert api_on(ScriptedTransport(*answers)).evict(POD).outcome is outcome


def test_a_refused_eviction_has_its_reason() -> None:
    answer = status(429, "Cannot evict", ("DisruptionBudget", "web needs 1 healthy pods"), retry_after_seconds=10)
    evicted = api_on(ScriptedTransport(answer)).evict(POD)
    assert evicted.reason == "429: Cannot evict (web needs 1 healthy pods); retry after 10 s"


def test_the_reason_of_a_refused_eviction_is_one_line_of_limited_length() -> None:
    answer = status(429, "x\n\x1b[31m" + "y" * 5000, ("DisruptionBudget", "z" * 5000))
    reason = api_on(ScriptedTransport(answer)).evict(POD).reason
    assert reason.isprintable()
    assert len(reason) < 700


def test_an_eviction_names_the_uid_of_its_pod() -> None:
    transport = ScriptedTransport(KubeResponse(201, b"{}"))
    api_on(transport).evict(POD)
    (request,) = transport.asked
    assert request.body is not None
    body = json.loads(request.body)
    assert request.path == "/api/v1/namespaces/ns/pods/p/eviction"
    assert (body["apiVersion"], body["kind"]) == ("policy/v1", "Eviction")
    assert body["deleteOptions"] == {"preconditions": {"uid": "u"}}


@pytest.mark.parametrize("name", ["../secrets", "a/b", "n?watch=1", "%2e%2e", "n#x", "ü"])
def test_a_hostile_name_does_not_change_the_path(name: str) -> None:
    transport = ScriptedTransport(status(404))
    assert api_on(transport).node(name) is None
    path = transport.asked[0].path
    assert path.startswith("/api/v1/nodes/")
    assert path.count("/") == 4
    assert not set("?#") & set(path)


# Watches


def test_a_watch_requests_bookmarks_and_starts_from_a_version() -> None:
    transport = ScriptedTransport(KubeResponse(200))
    api = api_on(transport)
    api.watch(api.all_pods, "41", seconds=45)
    assert transport.asked[0].query == {
        "watch": "1",
        "resourceVersion": "41",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "45",
        "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
    }


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(403, "forbidden"), KubeRefused),
        (NOT_THE_SERVER, KubeRefused),
        (BROKEN, KubeUnavailable),
        (LOST, KubeUnavailable),
        (BUSY, KubeUnavailable),
    ],
    ids=str,
)
def test_a_watch_that_cannot_be_opened_says_why(
    answer: KubeResponse | KubeTransportError, error: type[Exception]
) -> None:
    api = api_on(ScriptedTransport(answer))
    with pytest.raises(error, match="Kubernetes, watch nodes: "):
        api.watch(api.all_nodes, "41", seconds=45)


def test_a_watch_uses_a_replaced_token() -> None:
    transport = ScriptedTransport(status(401), KubeResponse(200, b"line\n"), tokens=1)
    api = api_on(transport)
    assert list(api.watch(api.all_nodes, "41", seconds=45)) == [b"line"]
