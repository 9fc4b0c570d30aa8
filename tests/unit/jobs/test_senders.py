"""Who sends: replays, other installations, other servers, and an organization's hook beside an App."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import sqlite_store
from holdfast.jobs.intake.payloads import UnusablePayload
from holdfast.jobs.intake.senders import Senders
from holdfast.jobs.intake.tracker import Tracker, installations
from holdfast.jobs.intake.webhook import Delivery, Receipt, ReceiptResult, WebhookRefused
from holdfast.jobs.model.job import MARKS_MOST
from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.jobs.read import queries
from holdfast.jobs.read.queries import Paging
from holdfast.kernel.ids import InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant
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


def test_two_servers_with_the_same_ids_do_not_mix(store: Store) -> None:
    there = {"html_url": "https://ghe.example.com/acme-corporation/backend-service"}
    tracker = tracker_on(store)
    tracker.receive(job("queued", 0))
    other = with_repository(job("completed", 60, started=30), **there)
    reason = "of ghe.example.com: the id belongs to github.com"
    assert_refused(store, tracker.receive(other), reason)
    assert_refused(store, tracker_on(store).receive(other), reason)  # another process
    assert (queries.job(store, JOB) or {})["status"] == "queued"


def test_two_servers_without_installations_do_not_mix(store: Store) -> None:
    there = {"html_url": "https://ghe.example.com/acme-corporation/backend-service"}
    tracker = tracker_on(store)
    tracker.receive(without_installation(job("queued", 0)))
    receipt = tracker.receive(with_repository(without_installation(job("completed", 60)), **there))
    assert_refused(store, receipt, "installation 0 of ghe.example.com")


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
    with pytest.raises(UnusablePayload, match=r"the id belongs to github\.com"):
        tracker.recognized_job(other, NOW)
    with pytest.raises(UnusablePayload, match="GITHUB_INSTALLATIONS"):
        tracker_on(store, senders=Senders(frozenset({7}))).recognized_job(job("queued", 0), NOW)
