"""Who sends: replays, other installations, other servers, and an organization's hook beside an App."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import sqlite_store
from holdfast.entrypoints import webhook_receiver
from holdfast.entrypoints.folded_lines import FoldedLines
from holdfast.entrypoints.wiring.jobs import accepted_senders, github_server
from holdfast.jobs.intake.payloads import UnusablePayload
from holdfast.jobs.intake.senders import Senders
from holdfast.jobs.intake.tracker import Tracker, installations
from holdfast.jobs.intake.webhook import Delivery, Receipt, ReceiptResult, WebhookRefusal, WebhookRefused
from holdfast.jobs.model.job import MARKS_MOST
from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.jobs.read import queries
from holdfast.jobs.read.queries import Paging
from holdfast.kernel.ids import InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import load_settings
from holdfast.ports.store import Query, Store
from holdfast.ports.store.tables import LOGS, TABLES
from tests.clocks import StillClock
from tests.payloads import CREATED, JOB_ID, RUN_ID, delivery, delivery_id, job_payload
from tests.support.job_deliveries import DEPLOYMENT, INSTALLATION, JOB, job, review, run

NOW = CREATED.plus(3600)
DAY = 86_400
RUN = RunKey(INSTALLATION, RunId(RUN_ID), 1)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    clock = StillClock(NOW)
    opened = memory_store(clock) if request.param == "memory" else sqlite_store(tmp_path / "s.db", clock, tables=TABLES)
    yield opened
    opened.close()


def tracker_on(store: Store, now: Instant = NOW, **fields: Any) -> Tracker:
    return Tracker(store, StillClock(now), "here", **fields)


def with_repository(sent: Delivery, **fields: object) -> Delivery:
    payload = json.loads(sent.body)
    payload["repository"] |= fields
    return replace(sent, body=json.dumps(payload).encode())


def without_installation(sent: Delivery) -> Delivery:
    payload = json.loads(sent.body)
    del payload["installation"]
    return replace(sent, body=json.dumps(payload).encode())


def rows(store: Store) -> int:
    return len(queries.events(store, JOB, Paging(1000)).items)


def assert_refused(store: Store, receipt: Receipt, reason: str) -> None:
    """Unusable, and shown to the operator with the reason."""
    assert (receipt.result, reason in receipt.reason) == (ReceiptResult.UNUSABLE, True), receipt.reason
    kept = store.query(Query(LOGS, f"github#{NOW.date()}")).items
    assert any(reason in entry["reason"] for entry in kept)


# Contradictions


OTHER = {"full_name": "mallory/other", "id": 666}


def test_a_webhook_of_another_repository_does_not_end_a_job(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(job("queued", 0))
    tracker.receive(job("in_progress", 30))
    before = queries.job(store, JOB)
    receipt = tracker.receive(with_repository(job("completed", 60, started=30), **OTHER))
    assert_refused(store, receipt, "belongs to acme-corporation/backend-service")
    assert queries.job(store, JOB) == before
    assert rows(store) == 2


def test_a_webhook_of_another_run_does_not_end_a_job(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(job("queued", 0))
    before = queries.job(store, JOB)
    for field in ({"run_id": 5}, {"run_attempt": 2}):
        receipt = tracker.receive(job("completed", 60, started=30, **field))
        assert_refused(store, receipt, f"belongs to run {RUN}")
    assert queries.job(store, JOB) == before
    assert queries.run(store, RunKey(INSTALLATION, RunId(5), 1)) is None


def test_a_run_and_its_reviews_stay_with_their_repository(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(job("waiting", 0, deployment=DEPLOYMENT.deployment_id))
    tracker.receive(run("requested", 0))
    before = queries.run(store, RUN)
    assert_refused(store, tracker.receive(with_repository(run("completed", 9, "success"), **OTHER)), "repository")
    assert_refused(store, tracker.receive(with_repository(review("approved", 9), **OTHER)), "repository")
    assert queries.run(store, RUN) == before
    assert (queries.deployment(store, DEPLOYMENT) or ({},))[0]["status"] == "pending"


def test_a_renamed_repository_is_still_the_same(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(job("queued", 0))
    tracker.receive(run("requested", 0))
    renamed = {"full_name": "acme-corporation/renamed"}
    assert tracker.receive(with_repository(job("completed", 60, started=30), **renamed)).result == "stored"
    assert tracker.receive(with_repository(run("completed", 61, "success"), **renamed)).result == "stored"
    assert (queries.job(store, JOB) or {})["status"] == "completed"
    assert (queries.run(store, RUN) or {})["status"] == "completed"


def test_a_transferred_repository_continues_under_the_new_owners_installation(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(job("queued", 0))
    before = queries.job(store, JOB)
    for seconds, action in ((30, "in_progress"), (60, "completed")):
        payload = job_payload(action, at=CREATED.plus(seconds), installation=5, started=CREATED.plus(30))
        payload["repository"] |= {"full_name": "new-owner/backend-service", "owner": {"login": "new-owner"}}
        assert tracker.receive(delivery("workflow_job", payload, CREATED.plus(seconds))).result == "stored"
    assert (queries.job(store, JobKey(InstallationId(5), JobId(JOB_ID))) or {})["status"] == "completed"
    assert queries.job(store, JOB) == before


def test_only_listed_installations_are_accepted(store: Store) -> None:
    tracker = tracker_on(store, senders=Senders(frozenset({int(INSTALLATION)})))
    other = delivery("workflow_job", job_payload("queued", installation=5), CREATED)
    assert_refused(store, tracker.receive(other), "installation 5 is not in GITHUB_INSTALLATIONS")
    hook = delivery("installation", {"action": "created", "installation": {"id": 5}}, CREATED)
    assert_refused(store, tracker.receive(hook), "installation 5")
    assert tracker.receive(job("queued", 0)).result is ReceiptResult.STORED
    assert installations(store) == [INSTALLATION]


# Replays


@pytest.mark.parametrize("action", ["queued", "waiting", "completed"])
def test_one_body_under_other_targets_is_one_event(store: Store, action: str) -> None:
    """The target header is not signed."""
    sent = job(action, 1)
    for target in range(100):
        tracker_on(store).receive(replace(sent, target=str(target)))
    assert rows(store) == 1


@pytest.mark.parametrize("actions", [["completed"], ["in_progress"], ["queued"], ["queued", "waiting"]])
def test_replays_under_other_ids_are_limited(store: Store, actions: list[str]) -> None:
    """Neither is the delivery id. A body without a deployment may be real twice, but not a hundred times."""
    for second in range(150):
        for action in actions:
            sent = replace(job(action, 1), id=delivery_id(CREATED.plus(second), second))
            tracker_on(store).receive(sent)
    assert 1 <= rows(store) <= (1 if actions in (["completed"], ["in_progress"]) else MARKS_MOST)
    end = job("completed", 200, started=100)
    tracker_on(store).receive(end)
    assert (queries.job(store, JOB) or {})["status"] == "completed"
    assert queries.events(store, JOB, Paging(1)).items[0]["delivery"] == end.id


def test_an_old_body_under_a_new_id_is_a_replay(store: Store) -> None:
    later = CREATED.plus(90 * DAY)
    tracker = tracker_on(store, later, oldest_seconds=8 * DAY)
    for sent in (job("queued", 0), job("in_progress", 30), job("completed", 60, started=30), run("completed", 1, "x")):
        with pytest.raises(WebhookRefused, match="GitHub would not redeliver it"):
            tracker.receive(replace(sent, id=delivery_id(later)))
    assert queries.job(store, JOB) is None


def test_a_job_that_waited_for_an_approval_is_not_a_replay(store: Store) -> None:
    """Its payload need not hold a time later than its creation, 30 days ago."""
    later = CREATED.plus(30 * DAY)
    tracker = tracker_on(store, later, oldest_seconds=8 * DAY)
    assert tracker.receive(replace(job("queued", 0), id=delivery_id(later))).result == "stored"
    assert tracker.receive(replace(review("approved", 0), id=delivery_id(later))).result == "stored"
    tracker = tracker_on(store, CREATED.plus(10 * DAY), oldest_seconds=8 * DAY)
    ended = replace(job("completed", 60, started=30), id=delivery_id(CREATED.plus(10 * DAY)))
    with pytest.raises(WebhookRefused, match="GitHub would not redeliver it"):
        tracker.receive(ended)


# Servers


def assert_of_another_server(tracker: Tracker, sent: Delivery, message: str) -> None:
    with pytest.raises(WebhookRefused, match=message) as refused:
        tracker.receive(sent)
    assert refused.value.refusal is WebhookRefusal.WRONG_SERVER


def test_two_servers_with_the_same_ids_do_not_mix(store: Store) -> None:
    there = {"html_url": "https://ghe.example.com/acme-corporation/backend-service"}
    tracker = tracker_on(store)
    tracker.receive(job("queued", 0))
    other = with_repository(job("completed", 60, started=30), **there)
    for process in (tracker, tracker_on(store)):
        assert_of_another_server(process, other, "installation 12345678 of ghe.example.com: github.com is tracked")
    assert (queries.job(store, JOB) or {})["status"] == "queued"


def test_two_servers_without_installations_do_not_mix(store: Store) -> None:
    there = {"html_url": "https://ghe.example.com/acme-corporation/backend-service"}
    tracker = tracker_on(store)
    tracker.receive(without_installation(job("queued", 0)))
    other = with_repository(without_installation(job("completed", 60)), **there)
    assert_of_another_server(tracker, other, "installation 0 of ghe.example.com")


def test_a_wrong_server_that_came_first_does_not_keep_the_configured_one_out(store: Store) -> None:
    """Whoever has the secret may be first. Its webhooks fail in its delivery log, and are not acknowledged."""
    wrong = with_repository(job("queued", 0), html_url="https://ghe.example.com/acme-corporation/backend-service")
    tracker_on(store).receive(wrong)  # before the API was configured
    tracker = tracker_on(store, senders=Senders(server="github.com"))
    assert tracker.receive(job("in_progress", 30)).result is ReceiptResult.STORED
    assert_of_another_server(tracker, wrong, "of ghe.example.com: github.com is tracked here")
    fresh = tracker_on(memory_store(StillClock(NOW)), senders=Senders(server="github.com"))
    assert_of_another_server(fresh, wrong, "of ghe.example.com")
    with pytest.raises(WebhookRefused, match=r"github\.com is tracked"):
        fresh.recognized_job(wrong, NOW)


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("https://api.github.com", "github.com"),
        ("https://API.github.com/", "github.com"),
        ("https://api.acme.ghe.com", "acme.ghe.com"),
        ("https://github.example.com/api/v3", "github.example.com"),
        ("https://github.example.com:8443/api/v3/", "github.example.com:8443"),
        ("https://proxy.example.com/github", None),
        ("https://proxy.example.com", None),
    ],
)
def test_the_apis_url_names_the_server(url: str, server: str | None) -> None:
    assert github_server(url) == server
    access = {"HOLDFAST_WORLD": "aws", "GITHUB_API_URL": url.lower().rstrip("/"), "GITHUB_TOKEN_FILE": "/x"}
    assert accepted_senders(load_settings(access)).server == server
    assert accepted_senders(load_settings({"HOLDFAST_WORLD": "aws"})).server is None, "without access, any server"


def test_another_server_is_answered_with_403_and_logged_once(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = FoldedLines(logging.getLogger("test"), StillClock())
    monkeypatch.setattr(webhook_receiver, "_wrong_server", lines)
    tracker = tracker_on(store, senders=Senders(server="ghe.example.com"))
    outcomes = [
        webhook_receiver._outcome(error)
        for error in tracker.receive_all([job("queued", 0), job("in_progress", 1)])
        if isinstance(error, WebhookRefused)
    ]
    assert [outcome.status for outcome in outcomes] == [403, 403]
    assert caplog.text.count("webhook refused: installation 12345678 of github.com") == 1


def test_an_owners_installation_is_not_replaced(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A webhook may name any owner. Otherwise one of them could move an organization's jobs elsewhere."""
    tracker = tracker_on(store)
    tracker.receive(job("queued", 0))
    other = delivery("workflow_job", job_payload("queued", installation=5, job_id=77), CREATED)
    for process in (tracker, tracker, tracker_on(store)):
        process.receive(other)
        hook = replace(without_installation(job("in_progress", 30)), target="org")
        process.receive(hook)
    assert queries.job(store, JobKey(InstallationId(5), JobId(77))) is not None, "it is tracked as it says"
    assert queries.job(store, JobKey(InstallationId(5), JobId(JOB_ID))) is None
    assert (queries.job(store, JOB) or {})["status"] == "in_progress"
    warnings = [line for line in caplog.messages if "acme-corporation has installation 12345678" in line]
    assert len(warnings) == 2, "once in each process"


def test_an_organizations_hook_beside_an_app_tracks_each_job_once(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(job("queued", 0))
    for process in (tracker, tracker_on(store)):
        process.receive(replace(without_installation(job("queued", 0)), target="org"))
        process.receive(replace(without_installation(job("in_progress", 30)), target="org"))
    assert queries.job(store, JobKey(InstallationId(0), JobId(JOB_ID))) is None
    assert (queries.job(store, JOB) or {})["status"] == "in_progress"
    assert installations(store) == [INSTALLATION]


def test_a_hook_without_an_app_uses_installation_0(store: Store) -> None:
    tracker_on(store).receive(without_installation(job("queued", 0)))
    assert queries.job(store, JobKey(InstallationId(0), JobId(JOB_ID))) is not None
    assert installations(store) == [InstallationId(0)]


@pytest.mark.parametrize("url", [None, "", "x", "https://[", "https://bad host/a/b", "https://a_b/c"])
def test_an_unknown_server_is_no_contradiction(store: Store, url: str | None) -> None:
    tracker = tracker_on(store)
    tracker.receive(job("queued", 0))
    assert tracker.receive(with_repository(job("in_progress", 30), html_url=url)).result == "stored"


def test_without_the_store_a_sender_is_recognized_from_memory(store: Store) -> None:
    """A migration writes to S3 first, while the tables may be away."""
    tracker = tracker_on(store)
    assert tracker.recognized_job(job("queued", 0), NOW).installation is not None, "nothing is remembered yet"
    tracker.receive(job("queued", 0))
    found = tracker.recognized_job(without_installation(job("in_progress", 30)), NOW).installation
    assert found is not None
    assert found.id == INSTALLATION
    tracker.recognized_job(with_repository(job("in_progress", 30), html_url=None), NOW)
    other = with_repository(job("in_progress", 30), html_url="https://ghe.example.com/acme-corporation/backend-service")
    with pytest.raises(WebhookRefused, match=r"github\.com is tracked here"):
        tracker.recognized_job(other, NOW)
    with pytest.raises(UnusablePayload, match="GITHUB_INSTALLATIONS"):
        tracker_on(store, senders=Senders(frozenset({7}))).recognized_job(job("queued", 0), NOW)
