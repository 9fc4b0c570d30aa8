"""Hostile objects in the bucket, and failures of S3 and the store at the worst moment."""

import gzip
import json
import logging
from collections import Counter
from threading import Event, Thread
from typing import Any

import pytest

from holdfast.jobs.intake.json_limits import BODY_BYTES_MOST
from holdfast.jobs.intake.tracker import installations
from holdfast.jobs.intake.webhook import Delivery, ReceiptResult, WebhookRefused
from holdfast.jobs.migration import scan as walk
from holdfast.jobs.migration.compare import CHECKS, RECHECK_SECONDS
from holdfast.jobs.migration.counts import EVERY_SECONDS, CallTotals, DailyCounts, StorageCall
from holdfast.jobs.migration.dual import DualTracker
from holdfast.jobs.migration.layout import UNSTORED, ObjectLayout
from holdfast.jobs.migration.phases import Phase, PhaseWatch, StoredPhase, stored_phase
from holdfast.jobs.migration.status import migration_status
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.errors import ItemTooLarge, Retryable
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.ports.store.tables import JOBS
from tests.support.migration_world import World, fill_older, life, statuses

BIG = 2**63
ONE = InstallationId(1)


def whole(job: int = 7) -> bytes:
    return life(job)[0].body


def bare(job: int) -> bytes:
    return json.dumps(json.loads(whole(job))["workflow_job"]).encode()


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(whole()) | fields).encode()


HOSTILE: dict[str, tuple[str, bytes]] = {
    "empty": ("webhooks/1/7/queued.json", b""),
    "no JSON": ("webhooks/1/7/queued.json", b"<html>not here</html>"),
    "half of it": ("webhooks/1/7/queued.json", whole()[:-40]),
    "gzip": ("webhooks/1/7/queued.json", gzip.compress(whole())),
    "too long": ("webhooks/1/7/queued.json", whole() + b" " * BODY_BYTES_MOST),
    "an unknown action": ("webhooks/1/7/queued.json", changed(action="teleported")),
    "another job": ("webhooks/1/7/queued.json", whole(8)),
    "another installation": ("webhooks/2/7/queued.json", whole()),
    "an unknown status in the key": ("webhooks/1/7/teleported.json", whole()),
    "zeros in front": ("webhooks/1/007/queued.json", whole()),
    "a job id that is too large": (f"webhooks/1/{BIG}/queued.json", whole()),
    "an installation id that is too large": (f"webhooks/{BIG}/7/queued.json", bare(7)),
    "a key with control characters": ("webhooks/1/7/\x1b[2J\nqueued.json", whole()),
    "a key with other digits": ("webhooks/1/\u0667/queued.json", whole()),
    "a key that goes up": ("webhooks/1/../1/7/queued.json", whole()),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_one_hostile_object_is_named_and_all_others_are_filled_in(name: str) -> None:
    world = World()
    fill_older(world, range(1, 4))
    fill_older(world, range(9, 12))
    key, body = HOSTILE[name]
    world.objects.put(key, body)
    world.go_to(Phase.DUAL_WRITE)
    done = world.backfill()
    assert (done.unusable_keys, done.unusable, done.jobs) == ((key,), 1, 7)
    assert world.store.get(JOBS, JobKey(ONE, JobId(7)).item) is None
    assert installations(world.store) == [1]
    assert [(one.kind, one.what) for one in world.compare()[1]] == [("unusable", key)]


def test_a_folder_object_of_the_console_is_skipped() -> None:
    world = World()
    fill_older(world, range(1, 3))
    for key in ("webhooks/", "webhooks/1/", "webhooks/1/2/"):
        world.objects.put(key, b"")
    world.go_to(Phase.DUAL_WRITE)
    done = world.backfill()
    assert (done.unusable, done.objects, done.total) == (0, 6, 6)
    assert world.compare()[1] == []


def test_an_archived_object_is_named_and_blocks_nothing() -> None:
    world = World()
    fill_older(world, range(1, 4))
    world.objects.archived.add("webhooks/1/2/completed.json")
    world.go_to(Phase.DUAL_WRITE)
    done = world.backfill()
    assert (done.unusable_keys, done.written) == (("webhooks/1/2/completed.json",), 8)
    assert [one.kind for one in world.compare()[1]] == ["unusable"]


def test_keys_of_any_length_are_distinguished() -> None:
    """An object without metadata is identified by its key."""
    world = World(layout=ObjectLayout("w" * 300 + "/{job_id}/{status}"))
    for status in ("queued", "waiting"):
        body = json.loads(whole()) | {"action": status}
        body["workflow_job"]["status"] = status
        world.older(Delivery("workflow_job", "x", "", json.dumps(body).encode()), status, 1, 7)
    world.go_to(Phase.DUAL_WRITE)
    world.backfill()
    assert len(world.store.get(JOBS, JobKey(ONE, JobId(7)).item)["dl"]) == 2


def test_a_job_that_the_tables_refuse_is_named_and_all_others_are_filled_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    fill_older(world, range(1, 4))
    world.go_to(Phase.DUAL_WRITE)
    update = world.store._store.update

    def refuse(table: Any, key: Any, *rest: Any) -> Any:
        if key.partition == "1#2":
            raise ItemTooLarge("test: over 400 KB")
        return update(table, key, *rest)

    world.store._store.update = refuse
    with caplog.at_level(logging.ERROR):
        done = world.backfill()
    assert (done.unusable, done.written, done.finished is not None) == (3, 6, True)
    assert "the webhooks of job 1#2 were not stored: test: over 400 KB" in caplog.text
    assert {one.kind for one in world.compare()[1]} == {"missing"}


# Errors halfway


def test_every_page_of_a_list_has_its_own_retries() -> None:
    """Of a thousand pages some fail; that must not use up the retries of the whole list."""
    world = World()
    for job in range(1, 9 * walk.TRIES_MOST):
        world.objects.put(f"webhooks/1/{job}/completed.json", b"{}")
    page = world.objects.page
    world.objects.page = lambda prefix, after="", most=1000: page(prefix, after, 5)  # type: ignore[method-assign]
    asked: list[int] = []

    def every_second(call: str, when: str) -> bool:
        if (call, when) == ("page", "before"):
            asked.append(1)
        return (call, when) == ("page", "before") and len(asked) % 2 == 1

    world.go_to(Phase.DUAL_WRITE)
    world.objects.fault = every_second
    assert world.backfill().objects == 9 * walk.TRIES_MOST - 1


def test_objects_that_appear_and_disappear_during_a_listing_do_no_harm() -> None:
    world = World()
    fill_older(world, range(100, 140))
    page = world.objects.page
    world.objects.page = lambda prefix, after="", most=1000: page(prefix, after, 7)  # type: ignore[method-assign]
    world.go_to(Phase.DUAL_WRITE)
    turns = iter(range(1000))

    def meddle(call: str, when: str) -> bool:
        if (call, when) != ("page", "after"):
            return False
        world.objects.fault = lambda _call, _when: False
        turn = next(turns)
        world.objects.delete(f"webhooks/1/{100 + turn}/in_progress.json")
        for status, sent in statuses(life(200 + turn)):
            world.dual.receive(sent) if turn % 2 else world.older(sent, status, 1, 200 + turn)
        world.objects.fault = meddle
        return False

    world.objects.fault = meddle
    world.backfill()
    world.objects.fault = lambda _call, _when: False
    assert [one for one in world.compare()[1] if one.kind != "missing"] == []
    world.backfill()
    assert world.compare()[1] == []


def test_a_comparison_waits_once_per_batch_of_differences() -> None:
    """Before a backfill everything differs: two seconds for each job would be days."""
    world = World()
    fill_older(world, range(1, 41))
    world.go_to(Phase.DUAL_WRITE)
    before = len(world.clock.slept_seconds)
    assert len(world.compare()[1]) == 40
    assert world.clock.slept_seconds[before:] == [RECHECK_SECONDS] * (CHECKS - 1)


# Notes of webhooks that the tables lack


def noted(world: World) -> list[str]:
    return [entry.key for entry in world.objects.page(UNSTORED).entries]


def test_a_note_whose_webhook_cannot_be_used_is_kept_and_named() -> None:
    """With a wrong layout, say: deleting it would lose an acknowledged webhook."""
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    world.store.fails = lambda call: call == "update"
    world.dual.receive(life(3)[0])
    world.store.fails = lambda _: False
    (note,) = noted(world)
    wrong = World(layout=ObjectLayout("elsewhere/{job_id}/{status}"))
    wrong.objects, wrong.store = world.objects, world.store
    wrong.bucket = type(wrong.bucket)(world.objects, wrong.layout)
    done = wrong.backfill()
    assert (done.mended, done.unusable_keys) == (0, (note,))
    assert world.backfill().mended == 1
    assert noted(world) == []


def test_notes_of_unknown_origin_are_reported() -> None:
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    world.objects.put(f"{UNSTORED}what is this", b"")
    world.objects.put(f"{UNSTORED}webhooks/1/9/queued.json?gone", b"")  # its object is missing
    done = world.backfill()
    assert (done.mended, done.unusable_keys) == (1, (f"{UNSTORED}what is this",))


def test_many_notes_are_filled_in_although_s3_fails_at_times() -> None:
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    world.store.fails = lambda call: call == "update"
    for job in range(1, 30):
        world.dual.receive(life(job)[0])
    world.store.fails = lambda _: False
    calls: list[str] = []

    def falter(call: str, when: str) -> bool:
        calls.append(call)
        return when == "before" and len(calls) % 5 == 0

    world.objects.fault = falter
    assert world.backfill().mended == 29
    world.objects.fault = lambda _call, _when: False
    assert (noted(world), world.compare()[1]) == ([], [])


# A store that hangs


def test_in_dual_write_a_webhook_does_not_wait_for_a_store_that_hangs() -> None:
    """GitHub waits ten seconds, and the store's own retries take longer."""
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    answers = Event()
    world.store.meet = lambda *_: answers.wait()
    watch = PhaseWatch(world.store, world.clock, StoredPhase(Phase.DUAL_WRITE), timeout_seconds=0.01)
    calls: list[Any] = []
    ledger = DailyCounts(world.store, world.clock, calls.append, flush_seconds=0.01)
    world.clock.advance(EVERY_SECONDS)  # figures are due too
    dual = DualTracker(world.tracker, world.bucket, watch, world.clock, ledger, store_seconds=0.01)
    try:
        assert dual.receive(life(7)[0]).result is ReceiptResult.STORED
        assert len(noted(world)) == 1
        assert [one.name for one in calls] == ["s3_write_ok", "store_write_failed"]
    finally:
        answers.set()
    world.store.meet = lambda *_: None
    world.backfill()
    assert world.compare()[1] == []


def test_a_read_from_s3_during_an_outage_does_not_count_as_a_missing_job() -> None:
    world = World()
    world.go_to(Phase.DUAL_READ)
    for sent in life(7):
        world.dual.receive(sent)
    item = JobKey(ONE, JobId(7)).item
    world.reads.get(JOBS, item)
    world.store.fails = lambda call: call == "get"
    assert world.reads.get(JOBS, item) is not None
    world.store.fails = lambda _: False
    names = [one.name for one in world.calls if "read" in one.name]
    assert names == ["store_read_hit", "store_read_failed", "s3_read_stood_in"]
    counted = CallTotals(Counter(names))
    assert (counted.hit_rate, counted.fallbacks) == (0.5, 0)


def test_a_replay_is_stored_on_neither_side() -> None:
    """What the tracker refuses must not be only in S3."""
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    world.tracker.oldest_seconds = 60
    with pytest.raises(WebhookRefused, match="sent more than 60 s ago"):
        world.dual.receive(life(7)[0])
    assert world.objects.page("").entries == []
    assert world.store.get(JOBS, JobKey(ONE, JobId(7)).item) is None


def test_an_instance_with_the_old_phase_loses_nothing() -> None:
    """Two instances, one of which does not know of a move yet: forward and back, at every step."""
    for way in (list(Phase), list(reversed(Phase))):
        world = World()
        job = 0
        world.go_to(way[0])
        for phase in way[1:]:
            late = PhaseWatch(world.store, world.clock, stored_phase(world.store))
            late.now()
            behind = DualTracker(world.tracker, world.bucket, late, world.clock, lambda _: None)
            before = stored_phase(world.store)
            world.go_to(phase)
            late._until = world.clock.monotonic_seconds() + 1
            assert late.now() == before
            for receiver in (behind, world.dual):
                job += 1
                receiver.receive(life(job)[0])
            for number in range(1, job + 1):
                assert world.reads.get(JOBS, JobKey(ONE, JobId(number)).item) is not None, (phase, number)


def test_a_status_without_s3_says_so() -> None:
    world = World()
    world.objects.fault = lambda call, _when: call == "page"
    with pytest.raises(Retryable, match="simulated S3"):
        migration_status(world.store, world.objects, Phase.OFF, world.clock.now())


def test_a_hanging_store_does_not_delay_the_exit_of_a_process_for_figures() -> None:
    world = World()
    let_go, ended = Event(), Event()
    world.store.meet = lambda *_: let_go.wait(60)
    ledger = DailyCounts(world.store, world.clock, flush_seconds=0.01)
    ledger(StorageCall(1, "write", "store", "ok", 0.1))

    def close() -> None:
        ledger.close()
        ended.set()

    Thread(target=close, daemon=True).start()
    try:
        assert ended.wait(30), "it waited for the store"
    finally:
        let_go.set()
