"""The cluster's API: what it shows, who may change something, and what it says to strangers."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.requests import Request

from holdfast.console.answers import has_token
from holdfast.console.api import EVENT_BYTES_MOST, ClusterApi
from holdfast.console.app import build_app
from holdfast.kernel.errors import BadRequest, HoldfastError, NeedsOperator, StoreUnavailable
from holdfast.kernel.instants import Instant
from tests.unit.test_server import World

TOKEN = "t" * 43
SECRET = "s" * 20


@dataclass
class Cluster:
    """What was asked and ordered; a test sets what fails."""

    failure: HoldfastError | None = None
    orders: list[tuple[str, ...]] = field(default_factory=list)
    events: list[Mapping[str, Any]] = field(default_factory=list)
    asked: list[tuple[Instant | None, Instant | None, str | None]] = field(default_factory=list)

    def _overview(self) -> Mapping[str, Any]:
        if self.failure:
            raise self.failure
        return {"workers": 2}

    def _decisions(self, since: Instant | None, until: Instant | None, cursor: str | None) -> Mapping[str, Any]:
        self.asked.append((since, until, cursor))
        return {"items": [], "cursor": None}

    def _order(self, *order: str) -> Mapping[str, Any]:
        self.orders.append(order)
        return {"done": True}

    def _event(self, event: Mapping[str, Any]) -> str:
        if self.failure:
            raise self.failure
        self.events.append(event)
        return "noted"

    def api(self, secret: str | None = SECRET) -> ClusterApi:
        return ClusterApi(self._overview, self._decisions, self._order, self._order, self._event, TOKEN, secret)


def call(
    api: ClusterApi, method: str, path: str, body: bytes | None = b"", *, token: str | None = None, query: str = ""
) -> tuple[int, Any, dict[str, str]]:
    """What is answered; without a body, to one that hangs up in the middle of it."""
    served = World().served()
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


def test_it_shows_the_cluster_and_keeps_nothing_in_a_cache() -> None:
    status, told, headers = call(Cluster().api(), "GET", "/api/cluster")
    assert (status, told) == (200, {"workers": 2})
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
    found, told, _ = call(Cluster(failure).api(), "GET", "/api/cluster")
    assert (found, told) == (status, {"error": {"code": code, "message": str(failure)}})


def test_what_passes_says_when_to_ask_again() -> None:
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
def test_what_is_not_understood_is_not_ignored(query: str) -> None:
    cluster = Cluster()
    status, told, _ = call(cluster.api(), "GET", "/api/decisions", query=query)
    assert (status, told["error"]["code"]) == (400, "bad_request")
    assert cluster.asked == []


@pytest.mark.parametrize("path", ["/api/pause", "/api/resume", "/events/aws"])
@pytest.mark.parametrize("token", [None, "", "wrong", "ü" * 43, TOKEN[:-1], SECRET + TOKEN])
def test_nothing_changes_without_the_right_token(path: str, token: str | None) -> None:
    cluster = Cluster()
    status, told, headers = call(cluster.api(), "POST", path, b"{}", token=token)
    assert (status, told["error"]["code"], headers["www-authenticate"]) == (401, "unauthorized", "Bearer")
    assert (cluster.orders, cluster.events) == ([], [])
    assert not [word for word in (TOKEN, SECRET) if word in json.dumps(told)]


def test_one_token_does_not_open_the_other_door() -> None:
    assert call(Cluster().api(), "POST", "/api/pause", token=SECRET)[0] == 401
    assert call(Cluster().api(), "POST", "/events/aws", b"{}", token=TOKEN)[0] == 401


def test_pause_and_resume_carry_who_and_why() -> None:
    cluster = Cluster()
    body = json.dumps({"by": "ann", "reason": "upgrade"}).encode()
    assert call(cluster.api(), "POST", "/api/pause", body, token=TOKEN)[:2] == (200, {"done": True})
    assert call(cluster.api(), "POST", "/api/resume", b"", token=TOKEN)[:2] == (200, {"done": True})
    only_this = json.dumps({"by": "bob", "since": "2026-01-15T10:00:00.000Z"}).encode()
    assert call(cluster.api(), "POST", "/api/resume", only_this, token=TOKEN)[0] == 200
    assert cluster.orders == [("ann", "upgrade"), ("", ""), ("bob", "2026-01-15T10:00:00.000Z")]


@pytest.mark.parametrize(
    "body", [b"[]", b"{", b'{"by": 1}', b'{"force": true}', b"\xff", b'{"by": "\xff"}', b"[" * 10_000]
)
def test_an_order_that_is_none_is_refused(body: bytes) -> None:
    cluster = Cluster()
    assert call(cluster.api(), "POST", "/api/pause", body, token=TOKEN)[0] == 400
    assert cluster.orders == []


def test_an_order_that_is_too_large_is_refused() -> None:
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
def test_a_token_is_shown_as_a_bearers_and_an_empty_one_is_none(header: str, expected: str, is_right: bool) -> None:
    request = Request({"type": "http", "headers": [(b"authorization", header.encode())]})
    assert has_token(request, expected) == is_right


def test_events_are_taken_with_the_secret() -> None:
    cluster = Cluster()
    assert call(cluster.api(), "POST", "/events/aws", b'{"source": "aws.ec2"}', token=SECRET)[:2] == (
        200,
        {"result": "noted"},
    )
    assert cluster.events == [{"source": "aws.ec2"}]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff\xfe", b'"x"', b'{"a":' * 5_000])
def test_an_event_that_is_none_is_refused(body: bytes) -> None:
    cluster = Cluster()
    assert call(cluster.api(), "POST", "/events/aws", body, token=SECRET)[0] == 400
    assert cluster.events == []


def test_an_event_that_is_too_large_is_not_read_to_its_end() -> None:
    cluster = Cluster()
    body = b'{"a": "' + b"x" * EVENT_BYTES_MOST + b'"}'
    assert call(cluster.api(), "POST", "/events/aws", body, token=SECRET)[0] == 413
    assert cluster.events == []


def test_an_event_that_cannot_be_stored_is_sent_again() -> None:
    """EventBridge tries again on 503."""
    assert call(Cluster(StoreUnavailable("away")).api(), "POST", "/events/aws", b"{}", token=SECRET)[0] == 503


def test_without_a_secret_there_is_no_door_for_events() -> None:
    assert call(Cluster().api(secret=None), "POST", "/events/aws", b"{}", token="")[0] == 404


@pytest.mark.parametrize(("path", "token"), [("/api/pause", TOKEN), ("/events/aws", SECRET)])
def test_who_hangs_up_is_no_mistake_of_ours(path: str, token: str) -> None:
    """An error that nobody foresaw would be raised again, and its traceback would be in the log each time."""
    assert call(Cluster().api(), "POST", path, None, token=token)[0] == 400
