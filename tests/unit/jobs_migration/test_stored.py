"""Webhooks as objects, in any order, from Holdfast or the older system."""

import json
from itertools import permutations
from typing import Any

import pytest

from holdfast.jobs.intake.payloads import JobPayload, decoded
from holdfast.jobs.intake.webhook import Delivery
from holdfast.jobs.migration.stored import item_of, put_webhook, webhooks_by_key, webhooks_of_job
from holdfast.jobs.model.facts import job_event
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.errors import Retryable
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.ports.objects import ObjectEntry
from tests.payloads import CREATED
from tests.support.migration_world import LAYOUT, NOW, World, life, statuses

JOB = JobKey(InstallationId(1), JobId(7))


def put(world: World, sent: Delivery) -> str:
    event = job_event(sent, decoded(sent.body, JobPayload), world.clock.now())
    return put_webhook(world.objects, LAYOUT, sent, event)


def known(world: World) -> dict[str, Any]:
    return item_of(webhooks_by_key(world.objects, LAYOUT, JOB)) or {}


def test_in_any_order_the_latest_of_each_status_is_kept() -> None:
    """Of a job that queues, waits and queues again: 120 orders, one result."""
    found = set()
    for order in permutations(life(7, deployment=90)):
        world = World()
        for number, sent in enumerate(order):
            world.clock.advance(number)
            put(world, sent)
        webhooks = webhooks_by_key(world.objects, LAYOUT, JOB)
        found.add(tuple(webhook.event.delivery for webhook in webhooks))
        assert [webhook.event.status for webhook in webhooks] == ["waiting", "queued", "in_progress", "completed"]
    assert len(found) == 1


def test_the_arrival_of_the_first_webhook_is_kept() -> None:
    world = World()
    first, _, again, *_ = life(7, deployment=90)
    put(world, first)
    world.clock.advance(50)
    put(world, again)
    (webhook,) = webhooks_by_key(world.objects, LAYOUT, JOB)
    assert webhook.event.delivery == again.id
    assert webhook.received_at == NOW


def test_a_repeated_delivery_changes_nothing() -> None:
    world = World()
    sent = life(7)[0]
    put(world, sent)
    before = world.objects.get(LAYOUT.key(JOB, "queued"))
    world.clock.advance(5)
    put(world, sent)
    assert world.objects.get(LAYOUT.key(JOB, "queued")) == before


@pytest.mark.parametrize("call", ["get", "put"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failed_call_is_retried_without_harm(call: str, when: str) -> None:
    world = World()
    late, _, later, *_ = life(7, deployment=90)
    put(world, late)
    failures = iter([True])
    world.objects.fault = lambda name, at: (name, at) == (call, when) and next(failures, False)
    with pytest.raises(Retryable, match="simulated S3"):
        put(world, later)
    put(world, later)
    assert webhooks_by_key(world.objects, LAYOUT, JOB)[0].event.delivery == later.id


def test_the_older_systems_objects_have_no_metadata() -> None:
    """They describe the same job."""
    theirs, ours = World(), World()
    for status, sent in statuses(life(7)):
        theirs.older(sent, status, 1, 7)
        put(ours, sent)
    differing = {"dl", "queued_ms", "rk"}  # the delivery's id has milliseconds, the payload only seconds
    assert {n: v for n, v in known(theirs).items() if n not in differing} == {
        n: v for n, v in known(ours).items() if n not in differing
    }
    assert known(theirs)["queued_ms"] == CREATED.plus(7).epoch_ms


def test_a_job_stored_without_its_envelope_is_read() -> None:
    """Its repository is in its URL, its installation and its action in its key."""
    world = World()
    for status, sent in statuses(life(7)):
        world.objects.put(LAYOUT.key(JOB, status), json.dumps(json.loads(sent.body)["workflow_job"]).encode())
    item = known(world)
    assert item["PK"] == "1#7"
    assert item["GSI2-PK"] == "1#acme-corporation/backend-service"
    assert (item["status"], item["conclusion"]) == ("completed", "success")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b"[" * 10_000, "nested deeper"),
        (b"[]", "Expected `object`"),
        (b'{"workflow_job": null, "repository": {"full_name": "a/b"}}', "workflow_job is null"),
        (b'{"id": 7, "run_id": 1}', "without a repository"),
        (b'{"id": 7, "run_id": 1, "url": "https://api.github.com/repos/a"}', "without a repository"),
        (json.dumps({"id": 8, "run_id": 1, "url": "x/repos/a/b/"}).encode(), "is of job 8, but its key says 7"),
    ],
)
def test_an_object_that_is_not_a_webhook_is_reported_with_the_reason(body: bytes, reason: str) -> None:
    world = World()
    key = LAYOUT.key(JOB, "queued")
    world.objects.put(key, body)
    found, unusable = webhooks_of_job(world.objects, LAYOUT, [ObjectEntry(key, NOW)])
    assert found == []
    assert reason in unusable[key]


def test_a_webhook_whose_installation_differs_from_its_key_is_refused() -> None:
    world = World()
    key = LAYOUT.key(JobKey(InstallationId(2), JobId(7)), "queued")
    world.objects.put(key, life(7, installation=1)[0].body)
    _, unusable = webhooks_of_job(world.objects, LAYOUT, [ObjectEntry(key, NOW)])
    assert "of installation 1, but its key says 2" in unusable[key]


@pytest.mark.parametrize("metadata", [{"received-ms": "9" * 40}, {"received-ms": "-1"}, {"received-ms": "٣"}, {}])
def test_hostile_metadata_does_no_harm(metadata: dict[str, str]) -> None:
    world = World()
    key = LAYOUT.key(JOB, "queued")
    world.objects.put(key, life(7)[0].body, {"delivery": "%ff%00\n", **metadata})
    (webhook,), _ = webhooks_of_job(world.objects, LAYOUT, [ObjectEntry(key, NOW)])
    assert webhook.received_at == NOW


def test_an_unusable_object_is_overwritten() -> None:
    world = World()
    world.objects.put(LAYOUT.key(JOB, "queued"), b"{")
    put(world, life(7)[0])
    assert known(world)["status"] == "queued"
