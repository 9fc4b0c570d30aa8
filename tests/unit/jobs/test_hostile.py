"""Whatever stands in a signed payload: GitHub gets an answer, and the tables hold nothing that cannot be read."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.embedded import EmbeddedStore
from holdfast.adapters.memory import memory_store
from holdfast.jobs import queries
from holdfast.jobs.cost import shipped_prices
from holdfast.jobs.explain import explained
from holdfast.jobs.ingest import Tracker, installations
from holdfast.jobs.keys import DeploymentKey, JobKey, RunKey
from holdfast.jobs.receipts import Receipt, Result
from holdfast.jobs.stuck import Patience
from holdfast.jobs.views import Viewing, deployment_view, event_view, job_view, run_view
from holdfast.jobs.webhook import Delivery, Refused, WebhookSecrets, admitted
from holdfast.kernel.ids import DeploymentId, InstallationId, JobId, RunId
from holdfast.ports.store import Item
from holdfast.ports.store.values import item_bytes
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
    """Every place in a payload."""
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


def received(store: EmbeddedStore, event: str, payload: Any) -> Receipt | Refused:
    body = json.dumps(payload).encode()
    headers = {
        "x-github-event": event,
        "x-github-delivery": delivery_id(CREATED),
        "x-hub-signature-256": SECRETS.signature_of(body),
        "content-type": "application/json",
    }
    try:
        return Tracker(store, StillClock(), "here").receive(admitted(headers, body, SECRETS))
    except Refused as refused:
        return refused


@settings(max_examples=600)
@given(st.sampled_from(PLACES), VALUES)
def test_any_value_at_any_place_is_answered_and_leaves_only_what_can_be_read(
    place: tuple[str, Any], value: Any
) -> None:
    event, path = place
    store = memory_store(StillClock())
    answer = received(store, event, replaced(EVENTS[event], path, value))
    if isinstance(answer, Receipt) and answer.result in (Result.IGNORED, Result.UNUSABLE):
        assert installations(store) == []
    for item in every_item_of(store):
        assert item_bytes(item) < 4096
        read_as_people_do(store, item)


def every_item_of(store: EmbeddedStore) -> list[Item]:
    rows = store._rows
    return [item for table in rows._items.values() for item in table.values()]  # type: ignore[attr-defined]


def read_as_people_do(store: EmbeddedStore, item: Item) -> None:
    """Everything that is stored can be shown, as JSON as well."""
    if "dl" in item and "GSI3-PK" in item:
        shown = job_view(item, VIEWING)
        shown["explained"] = explained(item, None, CREATED, Patience()).lines()
        installation, job = item["PK"].split("#")
        key = JobKey(InstallationId(int(installation)), JobId(int(job)))
        shown["events"] = [event_view(entry) for entry in queries.events(store, key).items]
        found = queries.jobs_by_repository(store, key.installation_id, shown["repo_full_name"])
        assert len(found.items) == 1
        json.dumps(shown, default=str)
    elif "open" in item or "done" in item:
        json.dumps(run_view(item, VIEWING), default=str)
    elif "requires_approval" in item:
        json.dumps(deployment_view(item, []), default=str)


@given(st.binary(max_size=200), st.sampled_from(list(EVENTS)))
def test_any_bytes_are_answered(body: bytes, event: str) -> None:
    sent = Delivery(event, "id", "99", body)
    store = memory_store(StillClock())
    try:
        result = Tracker(store, StillClock(), "here").receive(sent).result
    except (Refused, UnicodeDecodeError):  # what is not UTF-8 is refused before this
        return
    assert result in (Result.UNUSABLE, Result.STORED, Result.IGNORED)


def test_no_secret_and_no_control_character_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    payload = job_payload("queued") | {"action": "evil\r\nWARNING forged line\x1b[31m"}
    with caplog.at_level(logging.DEBUG):
        assert received(memory_store(StillClock()), "workflow_job", payload).result is Result.UNUSABLE  # type: ignore[union-attr]
    assert "canary-of-a-secret" not in caplog.text
    for record in caplog.records:
        assert record.getMessage().isprintable()


def test_keys_are_made_of_numbers_and_checked_names() -> None:
    """Two different things never share a key."""
    keys = {
        JobKey(InstallationId(1), JobId(23)).partition,
        JobKey(InstallationId(12), JobId(3)).partition,
        RunKey(InstallationId(1), RunId(2), 3).partition,
        RunKey(InstallationId(1), RunId(23), 1).partition,
        DeploymentKey(InstallationId(1), DeploymentId(2)).item.partition,
    }
    assert len(keys) == 5
