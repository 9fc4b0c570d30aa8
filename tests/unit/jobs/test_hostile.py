"""Whatever a signed payload contains: GitHub gets a response, and every stored item can be read."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.embedded import EmbeddedStore
from holdfast.adapters.memory import memory_store
from holdfast.jobs.cost.prices import shipped_prices
from holdfast.jobs.intake.tracker import Tracker, installations
from holdfast.jobs.intake.webhook import (
    Delivery,
    Receipt,
    ReceiptResult,
    WebhookRefused,
    WebhookSecrets,
    verified_delivery,
)
from holdfast.jobs.model.keys import DeploymentKey, JobKey, RunKey
from holdfast.jobs.read import queries
from holdfast.jobs.read.explain import explanation_of
from holdfast.jobs.read.item_views import Viewing, event_view, job_view
from holdfast.jobs.read.run_views import deployment_view, run_view
from holdfast.jobs.read.stuck import StuckLimits
from holdfast.kernel.ids import DeploymentId, InstallationId, JobId, RunId
from holdfast.ports.store import Item
from holdfast.ports.store.values import item_bytes
from holdfast.views.plain_json import json_object, to_json
from tests.clocks import StillClock
from tests.payloads import CREATED, delivery_id, job_payload, sample

VIEWING = Viewing(shipped_prices())
SECRETS = WebhookSecrets.from_text("canary-of-a-secret")

TEXTS = st.text(max_size=30) | st.sampled_from(
    ["", "#", "a#b", "../..", "\x00", "\u202e", "queued", "completed", "9" * 25, "2026-01-15T10:00:00Z", "=1+1", "<b>"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
EVENTS = {
    "workflow_job": job_payload("completed", started=CREATED, deployment=7),
    "workflow_run": sample("workflow_run"),
    "deployment": sample("deployment"),
    "deployment_status": sample("deployment")
    | {"deployment_status": {"state": "waiting"}, "check_run": {"id": 5, "name": "x"}},
    "deployment_protection_rule": sample("deployment"),
    "deployment_review": sample("deployment_review"),
    "installation": {"installation": {"id": 7}},
}


def places(payload: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every path in a payload."""
    if path:
        yield path
    items = payload.items() if isinstance(payload, dict) else enumerate(payload) if isinstance(payload, list) else ()
    for name, inner in items:
        yield from places(inner, (*path, name))


PLACES = [(event, path) for event, payload in EVENTS.items() for path in places(payload)]


def replaced(payload: Any, path: tuple[Any, ...], value: Any) -> Any:
    copied = json.loads(json.dumps(payload))
    inner = copied
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return copied


def received(store: EmbeddedStore, event: str, payload: Any) -> Receipt | WebhookRefused:
    body = json.dumps(payload).encode()
    headers = {
        "x-github-event": event,
        "x-github-delivery": delivery_id(CREATED),
        "x-hub-signature-256": SECRETS.signature_of(body),
        "content-type": "application/json",
    }
    try:
        return Tracker(store, StillClock(), "here").receive(verified_delivery(headers, body, SECRETS))
    except WebhookRefused as refused:
        return refused


@settings(max_examples=600)
@given(st.sampled_from(PLACES), VALUES)
def test_any_value_anywhere_gets_a_response_and_leaves_only_readable_items(place: tuple[str, Any], value: Any) -> None:
    event, path = place
    store = memory_store(StillClock())
    answer = received(store, event, replaced(EVENTS[event], path, value))
    if isinstance(answer, Receipt) and answer.result in (ReceiptResult.IGNORED, ReceiptResult.UNUSABLE):
        assert installations(store) == []
    for item in every_item_of(store):
        assert item_bytes(item) < 4096
        read_as_people_do(store, item)


def every_item_of(store: EmbeddedStore) -> list[Item]:
    rows = store._rows
    return [item for table in rows._items.values() for item in table.values()]  # type: ignore[attr-defined]


def read_as_people_do(store: EmbeddedStore, item: Item) -> None:
    """Everything that is stored can be shown, also as JSON."""
    if "dl" in item and "GSI3-PK" in item:
        shown = json_object(job_view(item, VIEWING))
        explanation = explanation_of(item, None, CREATED, StuckLimits()).lines()
        installation, job = item["PK"].split("#")
        key = JobKey(InstallationId(int(installation)), JobId(int(job)))
        events = to_json([event_view(entry) for entry in queries.events(store, key).items])
        found = queries.jobs_by_repository(store, key.installation_id, str(shown["repo_full_name"]))
        assert len(found.items) == 1
        json.dumps([shown, explanation, events])
    elif "open" in item or "done" in item:
        json.dumps(to_json(run_view(item, VIEWING)))
    elif "requires_approval" in item:
        json.dumps(to_json(deployment_view(item, [])))


@given(st.binary(max_size=200), st.sampled_from(list(EVENTS)))
def test_any_bytes_get_a_response(body: bytes, event: str) -> None:
    sent = Delivery(event, "id", "99", body)
    store = memory_store(StillClock())
    try:
        result = Tracker(store, StillClock(), "here").receive(sent).result
    except (WebhookRefused, UnicodeDecodeError):  # invalid UTF-8 is refused before this
        return
    assert result in (ReceiptResult.UNUSABLE, ReceiptResult.STORED, ReceiptResult.IGNORED)


def test_no_secret_and_no_control_character_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    payload = job_payload("queued") | {"action": "evil\r\nWARNING forged line\x1b[31m"}
    with caplog.at_level(logging.DEBUG):
        assert received(memory_store(StillClock()), "workflow_job", payload).result is ReceiptResult.UNUSABLE  # type: ignore[union-attr]
    assert "canary-of-a-secret" not in caplog.text
    for record in caplog.records:
        assert record.getMessage().isprintable()


def test_keys_consist_of_numbers_and_validated_names() -> None:
    """Two different things never share a key."""
    keys = {
        JobKey(InstallationId(1), JobId(23)).partition,
        JobKey(InstallationId(12), JobId(3)).partition,
        RunKey(InstallationId(1), RunId(2), 3).partition,
        RunKey(InstallationId(1), RunId(23), 1).partition,
        DeploymentKey(InstallationId(1), DeploymentId(2)).item.partition,
    }
    assert len(keys) == 5
