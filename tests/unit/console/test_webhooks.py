"""The webhook endpoint for GitHub and for unknown senders: through the whole web application, and through Lambda."""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import os
import re
import stat
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.console.http.webhooks import (
    BODY_SECONDS_MOST,
    ROOM_BYTES,
    SMALL_BYTES,
    Request,
    Threads,
    WebhookAnswer,
    Webhooks,
)
from holdfast.entrypoints import lambda_handlers
from holdfast.entrypoints.lambda_handlers import github_webhook
from holdfast.entrypoints.webhook_receiver import webhook_secrets
from holdfast.jobs.intake.json_limits import BODY_BYTES_MOST, DEPTH_MOST, NODES_MOST, NUMBER_CHARACTERS_MOST
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import ReceiptResult
from holdfast.kernel.errors import HoldfastError, NeedsOperator, StoreRefused, StoreUnavailable, TableProblem
from holdfast.kernel.settings import load_settings
from holdfast.ports.store import Item, Key, Query, Table, Update, every_item
from holdfast.ports.store.tables import JOB_EVENTS, JOBS, LOGS
from holdfast.views.command_answers import WebhookResult
from tests.clocks import START, StillClock
from tests.payloads import CREATED, INSTALLATION_ID, JOB_ID, delivery_id, job_payload
from tests.support.lambda_events import Call
from tests.support.webhook_app import DELIVERY, SECRET, Answer, Endpoint, signed

JOB = Key(f"{INSTALLATION_ID}#{JOB_ID}", "v")
QUEUED = json.dumps(job_payload("queued")).encode()
STORED = WebhookAnswer(200, WebhookResult(result=ReceiptResult.STORED, delivery=DELIVERY))


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


def stored_job(endpoint: Endpoint) -> Item | None:
    return endpoint.store.get(JOBS, JOB)


# Accepted deliveries


def test_a_delivery_is_stored_before_it_is_acknowledged(endpoint: Endpoint) -> None:
    answer = endpoint.send(QUEUED)
    assert (answer.status, answer.json) == (200, {"result": "stored", "delivery": DELIVERY})
    assert (stored_job(endpoint) or {})["status"] == "queued"


def test_a_response_is_json_that_may_not_be_cached_or_framed(endpoint: Endpoint) -> None:
    headers = endpoint.send(QUEUED).headers
    assert headers["content-type"] == "application/json"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


def test_the_same_delivery_again_is_a_duplicate_and_changes_nothing(endpoint: Endpoint) -> None:
    endpoint.send(QUEUED)
    before = stored_job(endpoint)
    assert endpoint.send(QUEUED).json["result"] == "duplicate"
    assert stored_job(endpoint) == before
    [entry] = every_item(endpoint.store, Query(JOB_EVENTS, JOB.partition))
    assert entry["deliveries"] == 2


@pytest.mark.parametrize("event", ["push", "ping", "workflow_dispatch", "Workflow_Job"])
def test_an_event_that_is_not_tracked_is_ignored_and_not_sent_again(endpoint: Endpoint, event: str) -> None:
    answer = endpoint.send(b'{"zen": "Keep it logically awesome."}', {"x-github-event": event})
    assert (answer.status, answer.json["result"]) == (200, "ignored")


def test_an_unusable_signed_payload_is_recorded_and_not_sent_again(endpoint: Endpoint) -> None:
    answer = endpoint.send(b'{"action": "queued", "workflow_job": null, "repository": {"full_name": "a/b"}}')
    assert (answer.status, answer.json["result"]) == (200, "unusable")
    assert answer.json["reason"] == "workflow_job is null"
    [kept] = every_item(endpoint.store, Query(LOGS, f"github#{START.date()}"))
    assert (kept["delivery"], kept["reason"]) == (DELIVERY, "workflow_job is null")


def test_a_body_may_arrive_in_many_pieces(endpoint: Endpoint) -> None:
    pieces = [QUEUED[start : start + 100] for start in range(0, len(QUEUED), 100)]
    assert endpoint.ask(pieces, signed(QUEUED)).json["result"] == "stored"


def test_the_results_of_deliveries_are_counted(endpoint: Endpoint) -> None:
    endpoint.send(QUEUED)
    endpoint.send(QUEUED, {"x-hub-signature-256": None, "x-github-event": "a stranger's"})
    page = endpoint.metrics.page().decode()
    assert 'holdfast_webhooks_total{event="workflow_job",result="stored",status="200"} 1.0' in page
    assert 'holdfast_webhooks_total{event="",result="",status="401"} 1.0' in page
    assert "stranger" not in page


# Signatures


def sha1(body: bytes) -> str:
    return "sha1=" + hmac.new(SECRET.encode(), body, hashlib.sha1).hexdigest()


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "",
        "sha256=",
        "sha256=" + "0" * 64,
        signed(QUEUED + b" ")["x-hub-signature-256"],
        signed(QUEUED, "another-secret")["x-hub-signature-256"],
        signed(QUEUED)["x-hub-signature-256"].upper(),
        signed(QUEUED)["x-hub-signature-256"].removeprefix("sha256="),
        signed(QUEUED)["x-hub-signature-256"].replace("sha256=", "sha512="),
        sha1(QUEUED),
        "sha256=\xe9\xff\x80",
    ],
)
def test_a_missing_or_wrong_signature_is_401_and_leaves_nothing(endpoint: Endpoint, signature: str | None) -> None:
    answer = endpoint.send(QUEUED, {"x-hub-signature-256": signature})
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert stored_job(endpoint) is None


def test_the_sha1_header_alone_is_not_enough(endpoint: Endpoint) -> None:
    """GitHub still sends it: it is SHA-1."""
    assert endpoint.send(QUEUED, {"x-hub-signature-256": None, "x-hub-signature": sha1(QUEUED)}).status == 401


@pytest.mark.parametrize("signer", ["the-old-one", "the-new-one"])
def test_both_secrets_are_valid_while_one_replaces_the_other(signer: str) -> None:
    endpoint = Endpoint(secret="the-new-one,the-old-one")
    assert endpoint.send(QUEUED, signed(QUEUED, signer)).json["result"] == "stored"
    assert endpoint.send(QUEUED, signed(QUEUED, "the-one-before")).status == 401


# Too large, not JSON, beyond a limit


def test_a_body_with_a_length_over_the_limit_is_not_read(endpoint: Endpoint) -> None:
    answer = endpoint.send(b"{}", {"content-length": str(BODY_BYTES_MOST + 1)})
    assert (answer.status, answer.code, answer.chunks_read) == (413, "too_large", 0)
    assert answer.headers["connection"] == "close"


def test_a_body_that_grows_over_the_limit_is_not_read_completely(endpoint: Endpoint) -> None:
    """It had no length, or a wrong one."""
    chunk = b" " * (1024 * 1024)
    headers = signed(b"") | {"content-length": "2"}
    answer = endpoint.ask([chunk] * 100, headers)
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert answer.chunks_read == BODY_BYTES_MOST // len(chunk) + 1


@pytest.mark.parametrize("length", ["-1", "ten", "1e9", "", "\xb2", pytest.param("9" * 5000, id="long")])
def test_an_invalid_length_is_ignored(endpoint: Endpoint, length: str) -> None:
    """Only the received bytes count."""
    assert endpoint.send(QUEUED, {"content-length": length}).status in (200, 413)


def concurrent_statuses(
    webhooks: Webhooks, *bodies: tuple[list[bytes], bool], heads: list[dict[bytes, bytes]] | None = None
) -> list[int]:
    """Concurrent requests, each with the chunks of its body; the status of each that got a response.

    One whose body does not end sends nothing more and keeps the connection. Afterwards all of them disconnect.
    """
    statuses: list[int] = []

    async def one(chunks: list[bytes], ends: bool) -> None:
        coming = iter(chunks)
        left = len(chunks)

        async def receive() -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": next(coming), "more_body": left > 0 or not ends}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                if heads is not None:
                    heads.append(dict(message["headers"]))

        await webhooks({"type": "http", "method": "POST", "headers": []}, receive, send)

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(one(*body)) for body in bodies]
        for _ in range(20):
            await asyncio.sleep(0)
        await asyncio.gather(*(task for task, (_, ends) in zip(tasks, bodies, strict=True) if ends))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(all_of_them())
    return sorted(statuses)


def taking_all(**options: Any) -> Webhooks:
    return Webhooks(lambda requests: [STORED] * len(requests), BODY_BYTES_MOST, **options)


def test_a_missing_body_times_out_no_later_than_at_github() -> None:
    assert BODY_SECONDS_MOST <= 30
    heads: list[dict[bytes, bytes]] = []
    assert concurrent_statuses(taking_all(body_seconds=0), ([b"{"], False), heads=heads) == [408]
    assert heads[0][b"connection"] == b"close"


def test_large_unverified_bodies_do_not_fill_the_memory_and_usual_ones_find_room() -> None:
    """The sender is unverified until the whole body has arrived."""
    megabyte = b"x" * 1024 * 1024
    webhooks = taking_all(room_bytes=3 * len(megabyte))
    holding = [([megabyte], False)] * 3
    assert concurrent_statuses(webhooks, *holding, ([megabyte], True), ([b"x" * SMALL_BYTES], True)) == [200, 503]
    heads: list[dict[bytes, bytes]] = []
    assert concurrent_statuses(webhooks, *holding, ([megabyte], True), heads=heads) == [503]
    assert (heads[0][b"connection"], heads[0][b"retry-after"]) == (b"close", b"10")
    for _ in range(5):
        assert concurrent_statuses(webhooks, ([megabyte], True), ([megabyte], True)) == [200, 200], (
            "all room was released"
        )
    assert ROOM_BYTES >= 4 * BODY_BYTES_MOST
    full = taking_all(room_bytes=-1)
    assert concurrent_statuses(full, ([megabyte], True), ([b"x" * SMALL_BYTES], True)) == [200, 503]


def test_a_large_body_is_in_memory_only_once() -> None:
    """The counted room equals the memory in use."""
    megabytes = [bytes(1024 * 1024) for _ in range(16)]
    used: list[int] = []

    def take(requests: Sequence[Request]) -> list[WebhookAnswer]:
        used.append(tracemalloc.get_traced_memory()[0])
        return [STORED] * len(requests)

    tracemalloc.start()
    try:
        assert concurrent_statuses(Webhooks(take, BODY_BYTES_MOST), (megabytes, True)) == [200]
    finally:
        tracemalloc.stop()
    assert 16 * 1024 * 1024 <= used[0] < 24 * 1024 * 1024


def test_concurrent_deliveries_share_a_transaction_and_a_single_one_does_not_wait() -> None:
    """After a shared group the next one waits a moment, as long as the queue grows."""
    sizes: list[int] = []
    pauses: list[int] = []
    at_work, go_on = threading.Event(), threading.Event()
    tasks: list[asyncio.Task[None]] = []
    loop: Any = None

    def take(requests: Sequence[Request]) -> list[WebhookAnswer]:
        sizes.append(len(requests))
        at_work.set()
        go_on.wait()
        return [STORED] * len(requests)

    def pause(_seconds: float) -> None:
        pauses.append(len(sizes))
        if len(pauses) < 3:
            asyncio.run_coroutine_threadsafe(put_in_line(2), loop).result()

    async def put_in_line(number: int) -> None:
        tasks.extend(asyncio.create_task(post(webhooks)) for _ in range(number))
        for _ in range(20):
            await asyncio.sleep(0)

    async def all_of_them() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        await put_in_line(1)
        await asyncio.to_thread(at_work.wait)  # the first is processed alone
        await put_in_line(3)
        go_on.set()
        await asyncio.gather(*tasks)
        await put_in_line(1)
        while len(done := [task for task in tasks if task.done()]) < len(tasks):
            await asyncio.wait(set(tasks) - set(done))

    webhooks = Webhooks(take, BODY_BYTES_MOST, Threads(1, 8), pause=pause)
    asyncio.run(all_of_them())
    assert sizes == [1, 3, 5], "one alone, three that waited for it, and one with the four that arrived in its pauses"
    assert pauses == [2, 2, 2], "only after the shared group; the third time, none arrived"


def test_a_group_has_a_maximum_size_and_a_full_one_does_not_wait() -> None:
    sizes: list[int] = []
    pauses: list[int] = []
    at_work, go_on = threading.Event(), threading.Event()

    def take(requests: Sequence[Request]) -> list[WebhookAnswer]:
        sizes.append(len(requests))
        at_work.set()
        go_on.wait()
        return [STORED] * len(requests)

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(post(webhooks))]
        await asyncio.to_thread(at_work.wait)
        tasks += [asyncio.create_task(post(webhooks)) for _ in range(5)]
        for _ in range(20):
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*tasks)

    webhooks = Webhooks(take, BODY_BYTES_MOST, Threads(1, 2), pause=lambda _: pauses.append(len(sizes)))
    asyncio.run(all_of_them())
    assert sizes == [1, 2, 2, 1]
    assert pauses == [3], "only for the last, which is alone"


def test_a_bug_is_logged_and_the_next_delivery_is_accepted() -> None:
    mistakes = iter([ValueError("ours")])

    def take(requests: Sequence[Request]) -> list[WebhookAnswer]:
        for mistake in mistakes:
            raise mistake
        return [STORED] * len(requests)

    webhooks = Webhooks(take, BODY_BYTES_MOST, Threads(1, 1))
    with pytest.raises(ValueError, match="ours"):
        asyncio.run(asyncio.wait_for(post(webhooks), 30))
    asyncio.run(asyncio.wait_for(post(webhooks), 30))


async def post(webhooks: Webhooks) -> None:
    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(_message: Any) -> None:
        pass

    await webhooks({"type": "http", "method": "POST", "headers": []}, receive, send)


def test_a_sender_that_disconnects_leaves_nothing(endpoint: Endpoint) -> None:
    asked = endpoint.ask([], signed(QUEUED))
    assert (asked.status, stored_job(endpoint)) == (400, None)


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": None},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "text/json"},
        {"content-encoding": "gzip"},
        {"content-encoding": "br, gzip"},
    ],
)
def test_other_media_types_and_encodings_are_415(endpoint: Endpoint, headers: dict[str, str | None]) -> None:
    answer = endpoint.send(QUEUED, headers)
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert stored_job(endpoint) is None


@pytest.mark.parametrize("event", ["workflow_job", "push"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        QUEUED + b"}",
        b"[" * (DEPTH_MOST + 1) + b"]" * (DEPTH_MOST + 1),
        b'{"a":' * 100_000,
        b"[" + b"0," * NODES_MOST + b"0]",
        b'{"id": ' + b"9" * (NUMBER_CHARACTERS_MOST + 1) + b"}",
        b'{"id": 1e99999999999999999999}',
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        '{"a": 1}'.encode("utf-16"),
    ],
)
def test_a_signed_body_that_is_not_json_or_beyond_a_limit_is_400(endpoint: Endpoint, body: bytes, event: str) -> None:
    """Whatever the event: also for those that are ignored."""
    answer = endpoint.send(body, {"x-github-event": event})
    assert (answer.status, answer.code) == (400, "bad_request")


@pytest.mark.parametrize("name", ["x-github-event", "x-github-delivery"])
@pytest.mark.parametrize("value", [None, "", "x" * 201, "a\tb", "caf\xe9", "a\x00b"])
def test_missing_or_malformed_github_headers_are_400(endpoint: Endpoint, name: str, value: str | None) -> None:
    answer = endpoint.send(QUEUED, {name: value})
    assert (answer.status, answer.code) == (400, "bad_request")
    assert stored_job(endpoint) is None


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_only_post_is_allowed(endpoint: Endpoint, method: str) -> None:
    answer = endpoint.ask([QUEUED], signed(QUEUED), method=method)
    assert (answer.status, answer.headers["allow"], answer.code) == (405, "POST", "method_not_allowed")
    assert stored_job(endpoint) is None


@pytest.mark.parametrize("path", ["/webhooks/github/", "/webhooks/githubs", "/webhooks"])
def test_only_one_path_accepts_webhooks(endpoint: Endpoint, path: str) -> None:
    assert endpoint.ask([QUEUED], signed(QUEUED), path=path).status in (307, 404)
    assert stored_job(endpoint) is None


# The store is unavailable


class Away:
    """A store that fails with a given error."""

    def __init__(self, error: HoldfastError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> None:
            raise self._error

        return fail


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("table workflow_jobs: no answer in 8 s"),
        StoreRefused("no space left on the disk"),
        TableProblem("table workflow_jobs is not there; run: holdfast tables create"),
    ],
)
def test_an_unavailable_store_is_503_with_retry_after(error: HoldfastError) -> None:
    """The sender learns no internal details."""
    answer = Endpoint(Away(error)).send(QUEUED)
    assert (answer.status, answer.code) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert str(error) not in answer.raw.decode()


class FailsOnce:
    """A store whose n-th write fails."""

    def __init__(self, failing: int) -> None:
        self._store = memory_store(StillClock())
        self._left = failing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, table: Table, item: Item, *rest: Any) -> None:
        self._count()
        self._store.put(table, item, *rest)

    def update(self, table: Table, key: Key, update: Update, *rest: Any) -> Any:
        self._count()
        return self._store.update(table, key, update, *rest)

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise StoreUnavailable("gone for a moment")


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_delivery_that_failed_halfway_is_completed_when_it_is_redelivered(failing: int) -> None:
    store = FailsOnce(failing)
    endpoint = Endpoint(store)
    whole = Endpoint()
    whole.send(QUEUED)
    assert endpoint.send(QUEUED).status == 503
    assert endpoint.send(QUEUED).status == 200
    assert stored_job(endpoint) == stored_job(whole)
    entries = [[*every_item(each.store, Query(JOB_EVENTS, JOB.partition))] for each in (endpoint, whole)]
    assert [len(found) for found in entries] == [1, 1]


# Lambda


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A new Lambda process, whose store is a file."""
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    monkeypatch.setenv("GITHUB_WEBHOOK_SECRET", SECRET)
    lambda_handlers._webhook_process.cache_clear()
    yield
    lambda_tracker().store.close()
    lambda_handlers._webhook_process.cache_clear()


def lambda_tracker() -> Tracker:
    receiver = lambda_handlers._webhook_process()[1]
    assert isinstance(receiver, Tracker)
    return receiver


def cased(headers: dict[str, str]) -> dict[str, str]:
    return {name.title().replace("Github", "GitHub"): value for name, value in headers.items()}


def lambda_event(kind: str, body: bytes, *, is_base64: bool, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """Lambda's event: a function URL and HTTP APIs send version 2.0, REST APIs 1.0 with header names unchanged."""
    headers = signed(body) if headers is None else headers
    text = base64.b64encode(body).decode() if is_base64 else body.decode()
    if kind == "load-balancer":
        return {
            "httpMethod": "POST",
            "path": "/webhooks/github",
            "multiValueHeaders": {name: ["of a proxy", value] for name, value in headers.items()},
            "body": text,
            "isBase64Encoded": is_base64,
        }
    if kind == "api-gateway-v1":
        return {
            "version": "1.0",
            "httpMethod": "POST",
            "path": "/webhooks/github",
            "headers": cased(headers),
            "multiValueHeaders": {name: [value] for name, value in cased(headers).items()},
            "body": text,
            "isBase64Encoded": is_base64,
        }
    return {
        "version": "2.0",
        "rawPath": "/webhooks/github",
        "headers": headers,
        "requestContext": {"http": {"method": "POST", "path": "/webhooks/github"}},
        "body": text,
        "isBase64Encoded": is_base64,
    }


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("is_base64", [False, True])
@pytest.mark.parametrize("kind", ["function-url", "api-gateway-v1", "api-gateway-v2", "load-balancer"])
def test_lambda_accepts_the_events_of_each_of_its_front_ends(kind: str, is_base64: bool) -> None:
    response = github_webhook(lambda_event(kind, QUEUED, is_base64=is_base64), Call())
    assert (response["statusCode"], response["headers"]["content-type"]) == (200, "application/json")
    assert json.loads(response["body"]) == {"result": "stored", "delivery": DELIVERY}
    again = github_webhook(lambda_event(kind, QUEUED, is_base64=not is_base64), Call())
    assert json.loads(again["body"])["result"] == "duplicate"


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"body": "not what was signed"}, 401),
        ({"body": None}, 401),
        ({"isBase64Encoded": True}, 401),
        ({"headers": None}, 401),
        ({"headers": {}}, 401),
        ({"headers": signed(b'{"a":')}, 401),
        ({"body": "{", "headers": signed(b"{")}, 400),
        ({"body": "", "headers": signed(b"")}, 400),
        ({"headers": {**signed(QUEUED), "content-type": "text/plain"}}, 415),
        ({"body": "\udcff"}, 401),
        ({"body": {"action": "queued"}}, 401),
        ({"body": 7, "isBase64Encoded": True}, 401),
        ({"headers": [["x-hub-signature-256", "sha256=0"]]}, 401),
        ({"headers": None, "multiValueHeaders": {"x-hub-signature-256": []}}, 401),
        ({"headers": {**signed(QUEUED), "content-encoding": None, "x-github-event": None}}, 400),
    ],
)
def test_lambda_refuses_what_the_server_refuses(change: dict[str, Any], status: int) -> None:
    event = lambda_event("function-url", QUEUED, is_base64=False) | change
    response = github_webhook(event, Call())
    assert response["statusCode"] == status
    assert "error" in json.loads(response["body"])


@pytest.mark.usefixtures("cold")
def test_lambda_says_when_to_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = lambda_tracker()
    for name in ("store", "_transactions"):
        monkeypatch.setattr(tracker, name, Away(StoreUnavailable("no answer")))
    response = github_webhook(lambda_event("function-url", QUEUED, is_base64=False), Call())
    monkeypatch.undo()
    assert (response["statusCode"], response["headers"]["retry-after"]) == (503, "10")


# The secret


def run_holdfast(directory: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [str(Path(sys.executable).with_name("holdfast")), *arguments],
        cwd=directory,
        env={**kept, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("command", ["run", "serve"])
def test_on_aws_a_missing_secret_is_reported_before_anything_is_touched(tmp_path: Path, command: str) -> None:
    done = run_holdfast(tmp_path, command, "--port", "0", HOLDFAST_WORLD="aws", HOLDFAST_STORE="sqlite:data/x.db")
    assert done.returncode == 2
    assert re.search(r"GITHUB_WEBHOOK_SECRET is not set.*for example GITHUB_WEBHOOK_SECRET=", done.stderr)
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "secret", [",", "~", "7-chars", "long enough,", "long enough,short", "long enough,long enough,long enough"]
)
def test_an_invalid_secret_is_reported_and_not_shown(tmp_path: Path, secret: str) -> None:
    done = run_holdfast(tmp_path, "serve", "--port", "0", GITHUB_WEBHOOK_SECRET=secret)
    assert done.returncode == 2, done.stderr
    assert "GITHUB_WEBHOOK_SECRET" in done.stderr
    assert not secret.strip(",") or secret not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("It's a Secret to Everybody", ("It's a Secret to Everybody",)),  # GitHub's own test vector
        ("8 chars!", ("8 chars!",)),
        ("an old secret, a new secret", ("an old secret", "a new secret")),
    ],
)
def test_a_secret_may_be_any_text_without_a_comma(text: str, values: tuple[str, ...]) -> None:
    found = webhook_secrets(load_settings({"GITHUB_WEBHOOK_SECRET": text}))
    assert found.values == tuple(value.encode() for value in values)


def test_the_simulated_world_generates_a_secret_and_keeps_it(tmp_path: Path) -> None:
    settings = load_settings({"HOLDFAST_DATA": str(tmp_path / "data")})
    made = webhook_secrets(settings)
    path = tmp_path / "data" / "webhook-secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(made.values[0]) == 64
    assert webhook_secrets(settings) == made


def test_two_processes_that_start_at_once_use_the_same_secret(tmp_path: Path) -> None:
    """And neither finds a half-written file."""
    script = (
        "import sys; from pathlib import Path; from holdfast.entrypoints.webhook_receiver import webhook_secrets; "
        "from holdfast.kernel.settings import load_settings; sys.stdin.read(); "
        f"print(webhook_secrets(load_settings({{'HOLDFAST_DATA': {str(tmp_path)!r}}})).values[0].decode())"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [process.communicate()[0] for process in started]
    assert len(set(said)) == 1
    assert len(said[0].strip()) == 64


def test_an_empty_generated_secret_is_not_used(tmp_path: Path) -> None:
    """Anyone could sign with it."""
    (tmp_path / "webhook-secret").write_text("")
    with pytest.raises(NeedsOperator, match="webhook-secret"):
        webhook_secrets(load_settings({"HOLDFAST_DATA": str(tmp_path)}))


def test_no_response_and_no_log_line_contains_the_secret(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    answers: list[Answer] = [
        endpoint.send(QUEUED),
        endpoint.send(QUEUED, {"x-hub-signature-256": SECRET}),
        endpoint.send(QUEUED, {"x-github-delivery": delivery_id(CREATED, 1), "content-type": SECRET[:5]}),
        endpoint.send(b'{"repository": 1}'),
        Endpoint(Away(StoreUnavailable("no answer"))).send(QUEUED),
    ]
    assert SECRET not in caplog.text
    assert not any(SECRET in answer.raw.decode() or SECRET in str(answer.headers) for answer in answers)
