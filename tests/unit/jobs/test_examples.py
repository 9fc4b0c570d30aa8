"""All payloads that other projects collected are accepted."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.jobs.cost.prices import shipped_prices
from holdfast.jobs.intake.tracker import EVENTS, Tracker
from holdfast.jobs.intake.webhook import Delivery, ReceiptResult, WebhookSecrets, verified_delivery
from holdfast.jobs.read import queries
from holdfast.jobs.read.item_views import Viewing, job_view
from tests.clocks import StillClock
from tests.servers import octokit_examples
from tests.support.real_servers import skip_or_fail

SECRETS = WebhookSecrets.from_text("secret")


@pytest.fixture(scope="module")
def examples() -> list[tuple[str, dict[str, Any]]]:
    """Every example of GitHub's and of GHES's events: the event, and its payload."""
    try:
        return [(event, payload) for _, event, payload in octokit_examples.examples()]
    except octokit_examples.Unavailable as error:
        skip_or_fail(str(error))


def taken_in(tracker: Tracker, event: str, payload: dict[str, Any], number: int) -> tuple[Delivery, ReceiptResult]:
    body = json.dumps(payload).encode()
    headers = {
        "x-github-event": event,
        "x-github-delivery": f"00000000-0000-4000-8000-{number:012d}",
        "x-hub-signature-256": SECRETS.signature_of(body),
        "content-type": "application/json",
    }
    delivery = verified_delivery(headers, body, SECRETS)
    return delivery, tracker.receive(delivery).result


@pytest.mark.real
def test_every_example_is_accepted(examples: list[tuple[str, dict[str, Any]]]) -> None:
    tracker = Tracker(memory_store(StillClock()), StillClock(), "here")
    results: Counter[tuple[str, str]] = Counter()
    for number, (event, payload) in enumerate(examples):
        _, result = taken_in(tracker, event, payload, number)
        assert result is not ReceiptResult.UNUSABLE, (event, payload.get("action"))
        results[event if event in EVENTS else "other", result] += 1
    assert results["other", ReceiptResult.IGNORED] > 200
    assert results["workflow_job", ReceiptResult.STORED] >= 8
    assert results["workflow_run", ReceiptResult.STORED] >= 5


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
        assert view.repo_full_name == payload["repository"]["full_name"]
        assert view.job_name == payload["workflow_job"]["name"]
        waits = payload["workflow_job"]["status"] == "waiting"
        assert view.status == ("waiting" if waits else payload["action"])


def test_the_folder_of_payloads_is_accepted() -> None:
    tracker = Tracker(memory_store(StillClock()), StillClock(), "here")
    for number, path in enumerate(sorted((Path(__file__).parents[2] / "payloads").glob("*.json"))):
        _, result = taken_in(tracker, path.stem, json.loads(path.read_text()), number)
        assert result is ReceiptResult.STORED, path.stem
