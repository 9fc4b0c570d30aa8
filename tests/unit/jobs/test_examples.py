"""Payloads that developers of other projects collected are all taken in."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.jobs import queries
from holdfast.jobs.cost import shipped_prices
from holdfast.jobs.ingest import EVENTS, Tracker
from holdfast.jobs.receipts import Result
from holdfast.jobs.views import Viewing, job_view
from holdfast.jobs.webhook import Delivery, WebhookSecrets, admitted
from tests.clocks import StillClock
from tests.conftest import REAL
from tests.servers import octokit_examples

SECRETS = WebhookSecrets.from_text("secret")


@pytest.fixture(scope="module")
def examples() -> list[tuple[str, dict[str, Any]]]:
    """Every example of GitHub's and of GHES's events: the event, and its payload."""
    try:
        return [(event, payload) for _, event, payload in octokit_examples.examples()]
    except octokit_examples.Unavailable as error:
        if REAL:
            pytest.fail(str(error))
        pytest.skip(str(error))


def taken_in(tracker: Tracker, event: str, payload: dict[str, Any], number: int) -> tuple[Delivery, Result]:
    body = json.dumps(payload).encode()
    headers = {
        "x-github-event": event,
        "x-github-delivery": f"00000000-0000-4000-8000-{number:012d}",
        "x-hub-signature-256": SECRETS.signature_of(body),
        "content-type": "application/json",
    }
    delivery = admitted(headers, body, SECRETS)
    return delivery, tracker.receive(delivery).result


@pytest.mark.real
def test_every_example_is_taken_in(examples: list[tuple[str, dict[str, Any]]]) -> None:
    tracker = Tracker(memory_store(StillClock()), StillClock(), "here")
    results: Counter[tuple[str, str]] = Counter()
    for number, (event, payload) in enumerate(examples):
        _, result = taken_in(tracker, event, payload, number)
        assert result is not Result.UNUSABLE, (event, payload.get("action"))
        results[event if event in EVENTS else "other", result] += 1
    assert results["other", Result.IGNORED] > 200
    assert results["workflow_job", Result.STORED] >= 8
    assert results["workflow_run", Result.STORED] >= 5


@pytest.mark.real
def test_every_job_among_the_examples_can_be_shown(examples: list[tuple[str, dict[str, Any]]]) -> None:
    for number, (event, payload) in enumerate(examples):
        if event != "workflow_job":
            continue
        store = memory_store(StillClock())
        tracker = Tracker(store, StillClock(), "here")
        body = json.dumps(payload).encode()
        receipt = tracker.receive(Delivery(event, str(number), "99", body))
        assert receipt.job is not None
        view = job_view(queries.job(store, receipt.job) or {}, Viewing(shipped_prices()))
        assert view["repo_full_name"] == payload["repository"]["full_name"]
        assert view["job_name"] == payload["workflow_job"]["name"]
        waits = payload["workflow_job"]["status"] == "waiting"
        assert view["status"] == ("waiting" if waits else payload["action"])


def test_the_folder_of_payloads_is_taken_in() -> None:
    tracker = Tracker(memory_store(StillClock()), StillClock(), "here")
    for number, path in enumerate(sorted((Path(__file__).parents[2] / "payloads").glob("*.json"))):
        _, result = taken_in(tracker, path.stem, json.loads(path.read_text()), number)
        assert result is Result.STORED, path.stem
