"""The cluster's API: what it returns, who may change something, and its errors for unknown clients."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import pytest
from starlette.requests import Request

from holdfast.cluster.spot.events import EventOutcome
from holdfast.console.http.answers import has_token
from holdfast.console.http.app import build_app
from holdfast.console.http.cluster_api import EVENT_BYTES_MOST, ClusterApi
from holdfast.control.pause import PauseAnswer
from holdfast.kernel.errors import BadRequest, HoldfastError, NeedsOperator, StoreUnavailable
from holdfast.kernel.instants import Instant
from tests.support import answer_schemas
from tests.support.application import ServedWorld

TOKEN = "t" * 43
SECRET = "s" * 20


@dataclass
class Cluster:
    """Records requests and actions; a test sets what fails."""

    failure: HoldfastError | None = None
    orders: list[tuple[str, ...]] = field(default_factory=list)
    events: list[Mapping[str, Any]] = field(default_factory=list)
    asked: list[tuple[Instant | None, Instant | None, str | None]] = field(default_factory=list)
    outcome: EventOutcome = "noted"

    def _overview(self) -> Any:
        if self.failure:
            raise self.failure
        return {"workers": 2}

    def _decisions(self, since: Instant | None, until: Instant | None, cursor: str | None) -> Any:
        self.asked.append((since, until, cursor))
        return {"items": [], "cursor": None}

    def _order(self, *order: str) -> PauseAnswer:
        self.orders.append(order)
        return PauseAnswer(cluster="c", step="paused", done=True, message="paused the cluster", paused=None)

    def _event(self, event: Mapping[str, Any]) -> EventOutcome:
        if self.failure:
            raise self.failure
        self.events.append(event)
        return self.outcome

    def api(self, secret: str | None = SECRET) -> ClusterApi:
        return ClusterApi(self._overview, self._decisions, self._order, self._order, self._event, TOKEN, secret)


def call(
    api: ClusterApi, method: str, path: str, body: bytes | None = b"", *, token: str | None = None, query: str = ""
) -> tuple[int, Any, dict[str, str]]:
    """The response; without a body, the client disconnects halfway."""
    served = ServedWorld().served()
    app = build_app(type(served)(**{**{f: getattr(served, f) for f in served.__slots__}, "cluster": api}))
    sent: list[Any] = []
    parts = [body[start : start + 65536] for start in range(0, len(body), 65536)] if body else [b""]

    async def receive() -> dict[str, Any]:
        if body is None and not parts:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts) or body is None}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"test")]
    if token is not None:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "headers": headers,
        "server": ("test", 80),
        "client": ("test", 1),
        "http_version": "1.1",
    }
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(answer), {name.decode(): value.decode() for name, value in sent[0]["headers"]}


def test_it_returns_the_cluster_and_forbids_caching() -> None:
    status, body, headers = call(Cluster().api(), "GET", "/api/cluster")
    assert (status, body) == (200, {"workers": 2})
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (StoreUnavailable("no answer"), 503, "unavailable"),
        (NeedsOperator("the item is odd"), 503, "needs_operator"),
        (BadRequest("no such cursor"), 400, "bad_request"),
    ],
)
def test_an_error_has_one_shape(failure: HoldfastError, status: int, code: str) -> None:
    found, body, _ = call(Cluster(failure).api(), "GET", "/api/cluster")
    assert (found, body) == (status, {"error": {"code": code, "message": str(failure)}})


def test_a_temporary_error_says_when_to_retry() -> None:
    _, _, headers = call(Cluster(StoreUnavailable("no answer")).api(), "GET", "/api/cluster")
    assert headers["retry-after"] == "5"


def test_decisions_take_two_times_and_a_cursor() -> None:
    cluster = Cluster()
    query = "since=2026-01-15T10:00:00Z&until=2026-01-15T11:00:00Z&cursor=1.2"
    assert call(cluster.api(), "GET", "/api/decisions", query=query)[0] == 200
    since, until, cursor = cluster.asked[0]
    assert (since and since.iso_seconds(), until and until.iso_seconds(), cursor) == (
        "2026-01-15T10:00:00Z",
        "2026-01-15T11:00:00Z",
        "1.2",
    )


@pytest.mark.parametrize("query", ["since=yesterday", "until=", "limit=5"])
def test_unknown_parameters_are_refused(query: str) -> None:
    cluster = Cluster()
    status, body, _ = call(cluster.api(), "GET", "/api/decisions", query=query)
    assert (status, body["error"]["code"]) == (400, "bad_request")
    assert cluster.asked == []


@pytest.mark.parametrize("path", ["/api/pause", "/api/resume", "/events/aws"])
@pytest.mark.parametrize("token", [None, "", "wrong", "ü" * 43, TOKEN[:-1], SECRET + TOKEN])
def test_nothing_changes_without_the_right_token(path: str, token: str | None) -> None:
    cluster = Cluster()
    status, body, headers = call(cluster.api(), "POST", path, b"{}", token=token)
    assert (status, body["error"]["code"], headers["www-authenticate"]) == (401, "unauthorized", "Bearer")
    assert (cluster.orders, cluster.events) == ([], [])
    assert not [word for word in (TOKEN, SECRET) if word in json.dumps(body)]


def test_each_token_works_only_for_its_own_endpoints() -> None:
    assert call(Cluster().api(), "POST", "/api/pause", token=SECRET)[0] == 401
    assert call(Cluster().api(), "POST", "/events/aws", b"{}", token=TOKEN)[0] == 401


def test_pause_and_resume_record_who_and_why() -> None:
    cluster = Cluster()
    body = json.dumps({"by": "ann", "reason": "upgrade"}).encode()
    for path, sent in (("/api/pause", body), ("/api/resume", b"")):
        status, answer, _ = call(cluster.api(), "POST", path, sent, token=TOKEN)
        assert (status, answer["done"], answer["told"]) == (200, True, "paused the cluster")
        answer_schemas.check("switched", answer)
    only_this = json.dumps({"by": "bob", "since": "2026-01-15T10:00:00.000Z"}).encode()
    assert call(cluster.api(), "POST", "/api/resume", only_this, token=TOKEN)[0] == 200
    assert cluster.orders == [("ann", "upgrade"), ("", ""), ("bob", "2026-01-15T10:00:00.000Z")]


def test_every_outcome_of_an_ec2_event_is_in_the_schema() -> None:
    for outcome in get_args(EventOutcome):
        cluster = Cluster(outcome=outcome)
        status, answer, _ = call(cluster.api(), "POST", "/events/aws", b"{}", token=SECRET)
        assert (status, answer) == (200, {"result": outcome})
        answer_schemas.check("event-taken", answer)
    assert "too old" in get_args(EventOutcome)


@pytest.mark.parametrize(
    "body", [b"[]", b"{", b'{"by": 1}', b'{"force": true}', b"\xff", b'{"by": "\xff"}', b"[" * 10_000]
)
def test_a_malformed_request_is_refused(body: bytes) -> None:
    cluster = Cluster()
    assert call(cluster.api(), "POST", "/api/pause", body, token=TOKEN)[0] == 400
    assert cluster.orders == []


def test_an_oversized_request_is_refused() -> None:
    cluster = Cluster()
    body = json.dumps({"reason": "x" * 20_000}).encode()
    assert call(cluster.api(), "POST", "/api/pause", body, token=TOKEN)[0] == 413
    assert cluster.orders == []


@pytest.mark.parametrize(
    ("header", "expected", "is_right"),
    [
        (f"Bearer {TOKEN}", TOKEN, True),
        (f"bearer  {TOKEN} ", TOKEN, True),
        (f"Basic {TOKEN}", TOKEN, False),
        (TOKEN, TOKEN, False),
        ("Bearer", "", False),
        ("Bearer ", "", False),
    ],
)
def test_a_token_is_a_bearer_token_and_an_empty_one_is_none(header: str, expected: str, is_right: bool) -> None:
    request = Request({"type": "http", "headers": [(b"authorization", header.encode())]})
    assert has_token(request, expected) == is_right


def test_events_are_accepted_with_the_secret() -> None:
    cluster = Cluster()
    assert call(cluster.api(), "POST", "/events/aws", b'{"source": "aws.ec2"}', token=SECRET)[:2] == (
        200,
        {"result": "noted"},
    )
    assert cluster.events == [{"source": "aws.ec2"}]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff\xfe", b'"x"', b'{"a":' * 5_000])
def test_a_malformed_event_is_refused(body: bytes) -> None:
    cluster = Cluster()
    assert call(cluster.api(), "POST", "/events/aws", body, token=SECRET)[0] == 400
    assert cluster.events == []


def test_an_oversized_event_is_not_read_completely() -> None:
    cluster = Cluster()
    body = b'{"a": "' + b"x" * EVENT_BYTES_MOST + b'"}'
    assert call(cluster.api(), "POST", "/events/aws", body, token=SECRET)[0] == 413
    assert cluster.events == []


def test_an_event_that_cannot_be_stored_is_answered_with_503() -> None:
    """EventBridge retries on 503."""
    assert call(Cluster(StoreUnavailable("away")).api(), "POST", "/events/aws", b"{}", token=SECRET)[0] == 503


def test_without_a_secret_there_is_no_endpoint_for_events() -> None:
    assert call(Cluster().api(secret=None), "POST", "/events/aws", b"{}", token="")[0] == 404


@pytest.mark.parametrize(("path", "token"), [("/api/pause", TOKEN), ("/events/aws", SECRET)])
def test_a_client_that_disconnects_causes_no_error(path: str, token: str) -> None:
    """An unexpected error would be raised again, with a traceback in the log each time."""
    assert call(Cluster().api(), "POST", path, None, token=token)[0] == 400
