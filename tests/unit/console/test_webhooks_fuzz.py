"""Whatever is sent to the webhook endpoint: no 5xx, nothing stored of a refused request, a clean log."""

import json
import logging
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.memory import memory_store
from holdfast.entrypoints.process_setup import JsonLines, TextLines
from holdfast.entrypoints.webhook_receiver import lambda_request, take_webhook
from holdfast.jobs.intake.tracker import EVENTS, Tracker
from holdfast.jobs.intake.webhook import WebhookSecrets
from holdfast.ports.store import Consumed, Store
from tests.clocks import StillClock
from tests.payloads import CREATED, delivery_id, job_payload, sample
from tests.support.webhook_app import SECRET, Answer, Endpoint, signed

REFUSALS = {400, 401, 413, 415}
EXAMPLES = 400
LONGER = 20_000  # for `make prove`
PAYLOADS: dict[str, dict[str, Any]] = {
    "workflow_job": job_payload("completed", deployment=1_600_000_001, started=CREATED),
    "workflow_run": sample("workflow_run"),
    "deployment_status": sample("deployment"),
    "deployment_review": sample("deployment_review"),
    "installation": {"action": "created", "installation": {"id": 5}},
}

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["", "a/b", "../..", "x\r\nSet-Cookie: y", "\x1b[31m", "\u2028", "%s%n", "sha256=", SECRET[:4]])
)
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


class Watched:
    """An endpoint that counts every write, and keeps its log."""

    def __init__(self) -> None:
        self.writes = 0
        self.endpoint = Endpoint(memory_store(StillClock()).metered(self._count))
        self._records: list[logging.LogRecord] = []
        self._handler = logging.Handler()
        self._handler.emit = self._records.append  # type: ignore[method-assign, assignment]

    def _count(self, consumed: Consumed) -> None:
        self.writes += consumed.write_units > 0

    def __enter__(self) -> "Watched":
        logging.getLogger().addHandler(self._handler)
        logging.getLogger("holdfast").setLevel(logging.DEBUG)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("holdfast").setLevel(logging.NOTSET)
        logging.getLogger().removeHandler(self._handler)

    def send(self, body: bytes, headers: dict[str, str | None]) -> Answer:
        """Send it, and check the response, the writes and the log."""
        before = self.writes
        answer = self.endpoint.send(body, headers)
        assert answer.status == 200 or answer.status in REFUSALS, answer
        if answer.status != 200:
            assert self.writes == before, "a refused request caused a write"
        check_answer(answer)
        while self._records:
            check_line(self._records.pop())
        return answer


def check_answer(answer: Answer) -> None:
    assert isinstance(answer.json, dict)
    assert not any(byte < 0x20 for byte in answer.raw)
    shown = answer.raw.decode() + str(answer.headers)
    assert SECRET not in shown
    assert all(value.isprintable() for value in answer.headers.values())


def check_line(record: logging.LogRecord) -> None:
    """One record is one line, in either format, without secrets and terminal control sequences."""
    text, line = TextLines().format(record), JsonLines().format(record)
    assert text.isprintable(), ascii(text)
    assert line.isprintable(), ascii(line)
    assert SECRET not in text + line
    assert json.loads(line)["message"] == record.getMessage()
    assert record.exc_info is None


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with Watched() as opened:
        yield opened


@st.composite
def changed_payloads(draw: st.DrawFn) -> tuple[str, bytes]:
    """A payload as GitHub sends it, with a few arbitrary values in arbitrary places."""
    event = draw(st.sampled_from(sorted(PAYLOADS)))
    payload = json.loads(json.dumps(PAYLOADS[event]))
    for _ in range(draw(st.integers(1, 3))):
        _change_one(draw, payload)
    return event, json.dumps(payload, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")


def _change_one(draw: st.DrawFn, payload: dict[str, Any]) -> None:
    here: Any = payload
    while True:
        place = draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        if not (isinstance(here[place], dict | list) and here[place]) or draw(st.integers(0, 3)) == 0:
            here[place] = draw(values)
            return
        here = here[place]


@st.composite
def broken_bodies(draw: st.DrawFn) -> tuple[str, bytes]:
    """A payload that was truncated, or has random bytes in it."""
    event = draw(st.sampled_from(sorted(PAYLOADS)))
    body = json.dumps(PAYLOADS[event]).encode()
    start = draw(st.integers(0, len(body)))
    end = draw(st.integers(start, min(len(body), start + 200)))
    strange = draw(
        st.binary(max_size=30)
        | st.integers(1, 5000).map(lambda depth: b"[" * depth)
        | st.integers(1, 5000).map(lambda depth: b'{"a":' * depth)
        | st.integers(1, 5000).map(lambda digits: b"9" * digits)
        | st.sampled_from([b"\xff", b"\xed\xa0\x80", b"\x00", b"\\ud800", b'"', b"\\", b"-", b"1e999", b"NaN", b"\r\n"])
    )
    return event, body[:start] + strange + body[end:]


def numbered(event: str, body: bytes) -> dict[str, str | None]:
    """Under an id that depends on the body, so that no two are the same delivery."""
    return {**signed(body, event=event, delivery=delivery_id(CREATED, crc32(body) % 2**24))}


@given(sent=st.one_of(changed_payloads(), broken_bodies(), st.tuples(st.sampled_from(EVENTS), st.binary(max_size=200))))
@settings(max_examples=EXAMPLES)
def test_any_signed_body_gets_a_response(watched: Watched, sent: tuple[str, bytes]) -> None:
    event, body = sent
    watched.send(body, numbered(event, body))


@pytest.mark.prove
@pytest.mark.timeout(3600)
@given(sent=st.one_of(changed_payloads(), broken_bodies(), st.tuples(st.sampled_from(EVENTS), st.binary(max_size=200))))
@settings(max_examples=LONGER)
def test_many_more_signed_bodies_get_a_response(watched: Watched, sent: tuple[str, bytes]) -> None:
    event, body = sent
    watched.send(body, numbered(event, body))


# Header names are the server's to check; any value that HTTP can carry, and some that it cannot, may stand there.
latin = st.text(st.characters(max_codepoint=255), max_size=250)
injected = st.sampled_from(["a\r\nX-Evil: 1", "\r\n\r\n{}", "a\x00b", "\x1b]0;x\x07", "é" * 300, "workflow_job\n", " "])


@given(
    headers=st.dictionaries(
        st.sampled_from([*signed(b"")]), st.none() | latin | injected | st.sampled_from(EVENTS), min_size=1, max_size=4
    )
)
@settings(max_examples=EXAMPLES)
def test_any_headers_get_a_response(watched: Watched, headers: dict[str, str | None]) -> None:
    body = json.dumps(PAYLOADS["workflow_job"]).encode()
    answer = watched.send(body, {**signed(body), **headers})
    if headers.get("x-hub-signature-256", "") != "":
        assert answer.status in (401, 413)


@given(body=st.binary(max_size=300), signature=latin | injected)
@settings(max_examples=EXAMPLES // 4)
def test_no_unsigned_delivery_is_accepted(watched: Watched, body: bytes, signature: str) -> None:
    assert watched.send(body, {"x-hub-signature-256": signature}).status == 401


events_of_lambda = st.fixed_dictionaries(
    {},
    optional={
        "headers": st.none()
        | st.dictionaries(st.sampled_from([*signed(b""), "X-GitHub-Event", "Content-Type"]), st.none() | st.text()),
        "body": st.none() | st.text(st.characters(codec=None)),
        "isBase64Encoded": st.booleans(),
        "version": st.sampled_from(["1.0", "2.0"]),
    },
)


@given(event=events_of_lambda)
@settings(max_examples=EXAMPLES // 2)
def test_any_lambda_event_gets_a_response(event: dict[str, Any]) -> None:
    store: Store = memory_store(StillClock())
    tracker = Tracker(store, StillClock(), "here")
    headers, body = lambda_request(event)
    assert take_webhook(headers, body, WebhookSecrets.from_text(SECRET), tracker).status in REFUSALS
    signed_headers = {**headers, **signed(body)}
    outcome = take_webhook(signed_headers, body, WebhookSecrets.from_text(SECRET), tracker)
    assert outcome.status == 200 or outcome.status in REFUSALS
