"""Calls to the API server: what is asked again, what is not, and what the answers mean."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.adapters.kube.calls import KubeCalls
from holdfast.adapters.kube.client import KubeApi
from holdfast.adapters.kube.transport import Answer, Request, Stream, TransportError
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
EMPTY = Answer(200, b'{"metadata": {"resourceVersion": "1"}, "items": []}')
LOST = TransportError("ReadTimeoutError: no answer")
NOT_THE_SERVER = TransportError("SSLCertVerificationError: self-signed certificate", refused=True)


def status(code: int, message: str = "", *causes: tuple[str, str], retry_after_seconds: float = 0.0) -> Answer:
    details = {"causes": [{"reason": reason, "message": text} for reason, text in causes]}
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message, "details": details}
    return Answer(code, json.dumps(body).encode(), retry_after_seconds)


def node_answer(**meta: Any) -> Answer:
    return Answer(200, json.dumps({"metadata": {"name": "n", "uid": "u", "resourceVersion": "42", **meta}}).encode())


BUSY = status(429, "too many requests")
BROKEN = status(503, "etcd leader changed")


class ScriptedTransport:
    """Answers from a list, the last one for ever; remembers what it was asked."""

    def __init__(self, *answers: Answer | TransportError, tokens: int = 0) -> None:
        self._answers: Iterator[Answer | TransportError] = iter(answers)
        self._last: Answer | TransportError = EMPTY
        self._tokens = tokens
        self.asked: list[Request] = []

    def send(self, request: Request) -> Answer:
        self.asked.append(request)
        self._last = next(self._answers, self._last)
        if isinstance(self._last, TransportError):
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
    def __init__(self, answer: Answer) -> None:
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
def test_a_read_that_may_pass_is_asked_again_with_growing_waits(failure: Answer | TransportError) -> None:
    clock = StillClock()
    transport = ScriptedTransport(failure, failure, failure, EMPTY)
    assert api_on(transport, clock).nodes() == []
    assert len(transport.asked) == 4
    assert all(0 <= wait <= most for wait, most in zip(clock.slept_seconds, (0.1, 0.2, 0.4), strict=True))


def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    clock = StillClock()
    busy = status(429, "too many requests", retry_after_seconds=3)
    assert api_on(ScriptedTransport(busy, EMPTY), clock).nodes() == []
    assert clock.slept_seconds == [3]


@pytest.mark.parametrize("failure", [LOST, BUSY, BROKEN], ids=str)
def test_reads_end_at_the_deadline_with_an_error_that_says_so(failure: Answer | TransportError) -> None:
    clock = StillClock()
    started_seconds = clock.monotonic_seconds()
    transport = ScriptedTransport(failure)
    with pytest.raises(KubeUnavailable, match=r"Kubernetes, list nodes: .*; gave up after 8 s of tries"):
        api_on(transport, clock).nodes()
    assert clock.monotonic_seconds() - started_seconds <= 8
    assert len(transport.asked) > 5


def test_a_long_pause_is_not_waited_for() -> None:
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
        (NOT_THE_SERVER, "not the server that was expected: .*check the server's address and the CA"),
        (Answer(302, b""), "list nodes: 302"),
        (Answer(404, b"<html>\n<h1>no such page</h1>"), r"404: <html>\\n<h1>no such page"),
    ],
    ids=str,
)
def test_what_will_not_pass_is_told_at_once_with_its_remedy(answer: Answer | TransportError, says: str) -> None:
    transport = ScriptedTransport(answer)
    with pytest.raises(KubeRefused, match=says):
        api_on(transport).nodes()
    assert len(transport.asked) == 1


def test_a_token_that_was_replaced_is_tried_once() -> None:
    transport = ScriptedTransport(status(401), EMPTY, tokens=1)
    assert api_on(transport).nodes() == []
    transport = ScriptedTransport(status(401), tokens=5)
    with pytest.raises(KubeRefused):
        api_on(transport).nodes()
    assert len(transport.asked) == 2


def test_an_answer_that_is_none_of_kubernetes_is_no_empty_list() -> None:
    with pytest.raises(KubeUnavailable, match="list pods"):
        api_on(ScriptedTransport(Answer(200, b"<html>log in first</html>"))).pods()
    with pytest.raises(KubeUnavailable, match="get nodes"):
        api_on(ScriptedTransport(Answer(200, b"<html>log in first</html>"))).node("n")


# Lists


def page(*names: str, more: str = "", version: str = "7") -> Answer:
    items = [{"metadata": {"name": name, "uid": name}} for name in names]
    return Answer(
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


def test_a_list_that_expires_begins_anew_and_keeps_nothing_of_the_old() -> None:
    gone = status(410, "The provided continue parameter is too old")
    transport = ScriptedTransport(page("a", "b", more="t1"), gone, page("b", "c", more="t2"), page("d"))
    assert [node.name for node in api_on(transport).nodes()] == list("bcd")


def test_a_list_that_expires_again_and_again_is_given_up() -> None:
    gone = status(410, "too old")
    with pytest.raises(KubeUnavailable, match="expired 3 times between two pages"):
        api_on(ScriptedTransport(gone)).nodes()


def test_pods_are_chosen_by_the_server() -> None:
    transport = ScriptedTransport(EMPTY)
    api_on(transport).pods()
    api_on(transport).pods_on("n")
    assert [request.query["fieldSelector"] for request in transport.asked] == [
        "status.phase!=Succeeded,status.phase!=Failed",
        "spec.nodeName=n",
    ]


NAMELESS = Answer(200, b'{"metadata": {}, "items": [{"metadata": {}}, {"metadata": {"name": "p", "uid": "u"}}]}')


def test_what_has_no_name_is_left_out_of_a_list_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    api = api_on(ScriptedTransport(NAMELESS))
    assert [pod.name for pod in api.pods()] == ["p"]
    assert api.listing(api.all_pods).unreadable == 1
    assert "list pods: 1 without a name or uid were left out" in caplog.text


def test_a_node_with_a_pod_that_cannot_be_named_is_not_taken_for_empty() -> None:
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
def test_a_change_is_never_repeated(change: Change, name: str, failure: Answer | TransportError) -> None:
    """It may have taken place; the next tick looks, and decides again."""
    transport = ScriptedTransport(failure, EMPTY)
    with pytest.raises(KubeUnavailable, match=f"Kubernetes, {name}: .*it may have been done, and is not repeated"):
        change(api_on(transport))
    assert len(transport.asked) == 1


def test_a_change_that_was_turned_away_was_certainly_not_done() -> None:
    with pytest.raises(KubeUnavailable, match="it was not done, and is not repeated"):
        api_on(ScriptedTransport(BUSY)).delete_node(NODE)


@each_change
def test_a_change_that_is_not_allowed_names_verb_resource_and_remedy(change: Change, name: str) -> None:
    with pytest.raises(KubeRefused, match=f"Kubernetes, {name}: 403: forbidden; grant it with"):
        change(api_on(ScriptedTransport(status(403, "forbidden"))))


@pytest.mark.parametrize("code", [409, 422])
def test_a_change_that_lost_reads_the_node_again(code: int) -> None:
    transport = ScriptedTransport(status(code, "rejected"), node_answer(annotations={"fence": "9"}))
    with pytest.raises(NodeChanged, match="node n has fence='9', expected fence='5'; nothing was changed") as no:
        api_on(transport).change_node(NODE, NodeChange(expected={"fence": "5"}))
    assert no.value.node is not None
    assert no.value.node.resource_version == "42"


def test_a_change_that_lost_to_one_that_was_undone_is_lost_all_the_same() -> None:
    transport = ScriptedTransport(status(422, "rejected"), node_answer())
    with pytest.raises(NodeChanged, match="node n changed meanwhile"):
        api_on(transport).change_node(NODE, NodeChange(unschedulable=True))


def test_a_change_that_the_rules_for_nodes_forbid_is_our_own_mistake() -> None:
    """To read again and try again would go on for ever."""
    transport = ScriptedTransport(status(422, "Node is invalid", ("FieldValueInvalid", "metadata.annotations: bad")))
    with pytest.raises(BadRequest, match=r"node n: 422: Node is invalid .*annotations: bad"):
        api_on(transport).change_node(NODE, NodeChange(annotations={"bad key": ""}))


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([Answer(201, b"{}")], Eviction.ACCEPTED),
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
def test_what_an_answer_to_an_eviction_means(answers: list[Answer], outcome: Eviction) -> None:
    assert api_on(ScriptedTransport(*answers)).evict(POD).outcome is outcome


def test_why_a_pod_stays_is_told_with_the_answer() -> None:
    answer = status(429, "Cannot evict", ("DisruptionBudget", "web needs 1 healthy pods"), retry_after_seconds=10)
    evicted = api_on(ScriptedTransport(answer)).evict(POD)
    assert evicted.reason == "429: Cannot evict (web needs 1 healthy pods); to be asked again in 10 s"


def test_what_a_server_says_of_an_eviction_is_one_line_and_not_too_long() -> None:
    answer = status(429, "x\n\x1b[31m" + "y" * 5000, ("DisruptionBudget", "z" * 5000))
    reason = api_on(ScriptedTransport(answer)).evict(POD).reason
    assert reason.isprintable()
    assert len(reason) < 700


def test_an_eviction_names_the_very_pod() -> None:
    transport = ScriptedTransport(Answer(201, b"{}"))
    api_on(transport).evict(POD)
    (request,) = transport.asked
    assert request.body is not None
    body = json.loads(request.body)
    assert request.path == "/api/v1/namespaces/ns/pods/p/eviction"
    assert (body["apiVersion"], body["kind"]) == ("policy/v1", "Eviction")
    assert body["deleteOptions"] == {"preconditions": {"uid": "u"}}


@pytest.mark.parametrize("name", ["../secrets", "a/b", "n?watch=1", "%2e%2e", "n#x", "ü"])
def test_no_name_becomes_a_path_of_its_own(name: str) -> None:
    transport = ScriptedTransport(status(404))
    assert api_on(transport).node(name) is None
    path = transport.asked[0].path
    assert path.startswith("/api/v1/nodes/")
    assert path.count("/") == 4
    assert not set("?#") & set(path)


# Watches


def test_a_watch_asks_for_bookmarks_from_a_version_on() -> None:
    transport = ScriptedTransport(Answer(200))
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
def test_a_watch_that_is_not_opened_says_why(answer: Answer | TransportError, error: type[Exception]) -> None:
    api = api_on(ScriptedTransport(answer))
    with pytest.raises(error, match="Kubernetes, watch nodes: "):
        api.watch(api.all_nodes, "41", seconds=45)


def test_a_watch_takes_up_a_token_that_was_replaced() -> None:
    transport = ScriptedTransport(status(401), Answer(200, b"line\n"), tokens=1)
    api = api_on(transport)
    assert list(api.watch(api.all_nodes, "41", seconds=45)) == [b"line"]
