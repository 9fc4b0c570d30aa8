"""What each phase means for webhooks and for reads."""

import json
import logging
from collections import Counter
from threading import Event
from typing import Any

import pytest

from holdfast.jobs.cost.prices import shipped_prices
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType
from holdfast.jobs.intake.webhook import ReceiptResult
from holdfast.jobs.migration.counts import EVERY_SECONDS, DailyCounts, StorageCall, call_totals
from holdfast.jobs.migration.dual import DualReads
from holdfast.jobs.migration.layout import STATUSES, UNSTORED
from holdfast.jobs.migration.phases import Phase
from holdfast.jobs.migration.status import migration_status
from holdfast.jobs.model.keys import JobKey
from holdfast.jobs.read.item_views import Viewing
from holdfast.jobs.read.stuck import StuckLimits
from holdfast.kernel.errors import NotFound, Retryable, StoreUnavailable
from holdfast.kernel.ids import InstallationId, InstanceId, JobId
from holdfast.ports.objects import every_entry
from holdfast.ports.store.tables import JOBS, RUNS
from holdfast.views.job_views import JobViews
from tests.payloads import CREATED, delivery, sample
from tests.support.migration_world import LAYOUT, World, life

JOB = JobKey(InstallationId(1), JobId(7))
KEYS = [f"webhooks/1/7/{status}.json" for status in ("completed", "in_progress", "queued")]


def keys(world: World) -> list[str]:
    return [entry.key for entry in every_entry(lambda after: world.objects.page("", after))]


def calls_by_name(world: World) -> Counter[str]:
    return Counter(each.name for each in world.calls)


def receive_all(world: World) -> None:
    for sent in life(7):
        world.dual.receive(sent)


@pytest.mark.parametrize("phase", [Phase.OFF, Phase.DYNAMODB_ONLY])
def test_in_the_first_and_last_phase_webhooks_create_no_objects(phase: Phase) -> None:
    """And existing objects, such as an agent's configuration, are left alone."""
    world = World()
    world.objects.put("runners/AROA:i-1/runner-config.json", b"{}")
    world.go_to(phase)
    receive_all(world)
    assert keys(world) == ["runners/AROA:i-1/runner-config.json"]
    assert (world.reads.get(JOBS, JOB.item) or {})["status"] == "completed"
    assert world.calls == []


@pytest.mark.parametrize("phase", [Phase.DUAL_WRITE, Phase.DUAL_READ])
def test_in_between_both_sides_get_every_webhook(phase: Phase) -> None:
    world = World()
    world.go_to(phase)
    receive_all(world)
    assert keys(world) == KEYS
    assert world.compare()[1] == []
    assert calls_by_name(world) == {"s3_write_ok": 3, "store_write_ok": 3}


def test_in_dual_write_a_failed_store_write_does_not_fail_the_webhook(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, counted and noted in S3; the next backfill adds it and deletes the note."""
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    world.dual.receive(life(7)[0])
    world.store.fails = lambda call: call == "update"
    with caplog.at_level(logging.ERROR):
        receipt = world.dual.receive(life(7)[1])
    assert (receipt.result, receipt.job) == (ReceiptResult.STORED, JOB)
    assert "in S3 but not in the tables" in caplog.text
    assert calls_by_name(world)["store_write_failed"] == 1
    assert len([key for key in keys(world) if key.startswith(UNSTORED)]) == 1
    world.store.fails = lambda _: False
    assert [difference.kind for difference in world.compare()[1]][:1] == ["webhook"]
    assert world.backfill().mended == 1
    assert world.compare()[1] == []
    assert not [key for key in keys(world) if key.startswith(UNSTORED)]


def test_a_bug_in_the_store_write_does_not_fail_the_webhook(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.go_to(Phase.DUAL_WRITE)

    def broken(_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(world.tracker, "receive", broken)
    with caplog.at_level(logging.ERROR):
        assert world.dual.receive(life(7)[0]).result is ReceiptResult.STORED
    assert "ZeroDivisionError" in caplog.text


def test_a_webhook_that_cannot_be_noted_is_not_acknowledged() -> None:
    """S3 has the webhook but not the note: the gap in the tables would go unnoticed."""
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    world.dual.receive(life(3)[0])
    world.store.fails = lambda call: call == "update"
    puts = iter([False, True, True])
    world.objects.fault = lambda call, when: (call, when) == ("put", "before") and next(puts)
    with pytest.raises(Retryable, match="simulated S3"):
        world.dual.receive(life(7)[0])
    world.objects.fault = lambda _call, _when: False
    world.store.fails = lambda _: False
    world.dual.receive(life(7)[0])
    assert world.compare()[1] == []


def test_while_s3_is_the_source_of_truth_its_failure_fails_the_webhook() -> None:
    """Nothing is acknowledged, and nothing is in the tables that S3 lacks."""
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    world.objects.fault = lambda call, when: (call, when) == ("put", "before")
    with pytest.raises(Retryable, match="simulated S3"):
        world.dual.receive(life(7)[0])
    assert world.store.get(JOBS, JOB.item) is None


def test_a_lost_response_of_s3_does_no_harm() -> None:
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    lost = iter([True])
    world.objects.fault = lambda call, when: (call, when) == ("put", "after") and next(lost, False)
    assert world.dual.receive(life(7)[0]).result is ReceiptResult.STORED
    assert world.compare()[1] == []


def test_in_dual_read_both_sides_must_store_a_webhook() -> None:
    """The tables are read first: a missing webhook would go unnoticed."""
    world = World()
    world.go_to(Phase.DUAL_READ)
    world.store.fails = lambda call: call == "update"
    with pytest.raises(StoreUnavailable):
        world.dual.receive(life(7)[0])
    world.store.fails = lambda _: False
    world.dual.receive(life(7)[0])
    assert world.compare()[1] == []


def test_an_event_without_an_object_is_stored_only_in_the_tables() -> None:
    """There a failure fails the webhook: S3 does not have it."""
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    run = delivery("workflow_run", sample("workflow_run"), CREATED)
    world.dual.receive(run)
    assert keys(world) == []
    world.store.fails = lambda call: call == "update"
    with pytest.raises(StoreUnavailable):
        world.dual.receive(delivery("workflow_run", sample("workflow_run"), CREATED, 2))


def test_an_unusable_webhook_is_recorded_as_usual() -> None:
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    payload = json.loads(life(7)[0].body) | {"workflow_job": None}
    assert world.dual.receive(delivery("workflow_job", payload, CREATED)).result is ReceiptResult.UNUSABLE
    assert keys(world) == []


# Reads


def test_in_dual_write_a_job_is_read_from_s3() -> None:
    """Even if the tables lack it or lag behind; facts without a webhook come from them."""
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    world.dual.receive(life(7)[0])
    scheduled = InternalEvent(
        JOB, InternalType.SCHEDULED, CREATED.plus(9), 1, None, attributes={"instance_type": "m7i.large"}
    )
    world.tracker.record_event(scheduled)
    world.store.fails = lambda call: call == "update"
    for sent in life(7)[1:]:
        world.dual.receive(sent)
    found = world.reads.get(JOBS, JOB.item) or {}
    assert (found["status"], found["instance_type"]) == ("completed", "m7i.large")
    world.store.fails = lambda call: call == "get"
    assert (world.reads.get(JOBS, JOB.item) or {})["status"] == "completed"


def test_in_dual_write_s3_wins_where_the_tables_lack_something() -> None:
    """Even if they have marked the webhook as seen."""
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    receive_all(world)
    item = world.store.get(JOBS, JOB.item)
    world.store.put(JOBS, {name: item[name] for name in item if name not in ("status", "rk", "conclusion")})
    found = world.reads.get(JOBS, JOB.item) or {}
    assert (found["status"], found["conclusion"], found["dl"]) == ("completed", "success", item["dl"])


def test_in_dual_read_s3_is_read_only_if_the_tables_lack_the_job() -> None:
    world = World()
    world.go_to(Phase.DUAL_READ)
    receive_all(world)
    world.calls.clear()
    assert world.reads.get(JOBS, JOB.item) is not None
    assert calls_by_name(world) == {"store_read_hit": 1}
    world.store.delete(JOBS, JOB.item)
    found = world.reads.get(JOBS, JOB.item) or {}
    assert found["status"] == "completed"
    assert world.reads.get(JOBS, JobKey(JOB.installation_id, JobId(8)).item) is None
    assert calls_by_name(world) == {"store_read_hit": 1, "store_read_miss": 2, "s3_read_fallback": 1, "s3_read_miss": 1}


def test_in_dual_read_s3_stands_in_for_an_unavailable_store() -> None:
    """For a job in S3; for any other the read fails."""
    world = World()
    world.go_to(Phase.DUAL_READ)
    receive_all(world)
    world.reads.get(RUNS, JOB.item)  # reads the phase
    world.store.fails = lambda call: call == "get"
    assert (world.reads.get(JOBS, JOB.item) or {})["status"] == "completed"
    with pytest.raises(StoreUnavailable):
        world.reads.get(JOBS, JobKey(JOB.installation_id, JobId(8)).item)


def test_everything_else_goes_to_the_store() -> None:
    world = World()
    world.go_to(Phase.DUAL_READ)
    receive_all(world)
    assert world.reads.batch_get(JOBS, [JOB.item]) == world.store.batch_get(JOBS, [JOB.item])
    assert [status for status in STATUSES if world.objects.get(LAYOUT.key(JOB, status))]
    world.reads.delete(JOBS, JOB.item)
    assert world.store.get(JOBS, JOB.item) is None


def test_attached_machines_are_not_lost_by_a_read_of_both() -> None:
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    world.dual.receive(life(7)[0])
    world.tracker.record_event(InternalEvent(JOB, InternalType.SCHEDULED, CREATED.plus(9), 1, None))
    world.tracker.record_event(
        InternalEvent(JOB, InternalType.ATTACHED, CREATED.plus(9.5), 1, InstanceId("i-0123456789abcdef0"))
    )
    assert (world.reads.get(JOBS, JOB.item) or {})["instance_id"] == "i-0123456789abcdef0"


# Figures


def test_figures_are_summed_over_instances_by_phase() -> None:
    world = World()
    ledgers = [DailyCounts(world.store, world.clock) for _ in range(2)]
    for ledger in ledgers:
        for _ in range(3):
            ledger(StorageCall(2, "read", "store", "hit", 0.004))
        ledger(StorageCall(2, "read", "s3", "fallback", 0.08))
        ledger(StorageCall(2, "write", "store", "failed", 1.0))
        ledger(StorageCall(3, "read", "store", "hit", 0.002))
    world.clock.advance(EVERY_SECONDS)
    for ledger in ledgers:
        ledger(StorageCall(2, "write", "store", "ok", 0.01))
    sums = call_totals(world.store, world.clock.now(), 2)
    assert (sums.hit_rate, sums.error_rate, sums.fallbacks) == (6 / 8, 0.5, 2)
    assert (sums.mean_ms("read", "store"), sums.mean_ms("read", "s3")) == (4.0, 80.0)
    assert call_totals(world.store, world.clock.now(), 3).hit_rate == 1
    assert call_totals(world.store, world.clock.now(), 4).hit_rate is None


def test_figures_that_could_not_be_stored_are_stored_later() -> None:
    world = World()
    ledger = DailyCounts(world.store, world.clock)
    world.store.fails = lambda _: True
    ledger(StorageCall(1, "write", "store", "failed", 0.1))
    ledger.flush()
    world.store.fails = lambda _: False
    ledger.flush()
    assert call_totals(world.store, world.clock.now(), 1).counts["store_write_failed"] == 1


def test_only_one_webhook_per_interval_waits_for_counts_that_hang() -> None:
    world = World()
    ledger: Any = DailyCounts(world.store, world.clock)
    tries: list[Any] = []

    def hang(flush: Any) -> None:
        tries.append(flush)
        raise StoreUnavailable("test: it hangs")

    ledger._with_timeout = hang
    for periods in (1, 2):
        world.clock.advance(EVERY_SECONDS)
        for _ in range(5):
            ledger(StorageCall(1, "write", "s3", "ok", 0.1))
        assert len(tries) == periods


def views(world: World) -> JobViews:
    return JobViews(world.reads, world.clock, Viewing(shipped_prices()), StuckLimits())


@pytest.mark.parametrize("phase", [Phase.DUAL_WRITE, Phase.DUAL_READ])
def test_s3_stands_in_for_the_view_of_a_job_while_no_table_responds(phase: Phase) -> None:
    """Only `workflow_id` is unknown meanwhile: it is stored with the run, which S3 does not have."""
    world = World()
    world.go_to(phase)
    receive_all(world)
    world.store.fails = lambda call: call in ("get", "batch_get", "query")
    shown = views(world).job("1", "7", {})
    assert (shown.status, shown.conclusion, shown.workflow_id) == ("completed", "success", None)
    world.store.fails = lambda _: False
    with pytest.raises(NotFound):
        views(world).job("1", "8", {})


@pytest.mark.parametrize("phase", [Phase.DUAL_WRITE, Phase.DUAL_READ])
def test_s3_does_not_wait_for_as_long_as_the_store_retries(phase: Phase) -> None:
    """Both reads of a job's view have a timeout; without one, this test would wait for the store forever."""
    world = World()
    world.go_to(phase)
    receive_all(world)
    responds = Event()
    world.store.meet = lambda call, when: when == "before" and call in ("get", "batch_get") and responds.wait()
    world.reads = DualReads(world.store, world.bucket, world.watch, world.clock, world.calls.append, 0.01)
    try:
        assert views(world).job("1", "7", {}).status == "completed"
    finally:
        responds.set()
    assert calls_by_name(world)["s3_read_stood_in"] == 1


def test_a_single_read_that_fell_back_to_s3_blocks_the_last_phase() -> None:
    """No other call follows it, and the process is still running."""
    world = World()
    world.go_to(Phase.DUAL_READ)
    world.older(life(7)[0], "queued", 1, 7)
    counts = DailyCounts(world.store, world.clock)
    reads = DualReads(world.store, world.bucket, world.watch, world.clock, counts)
    assert reads.get(JOBS, JOB.item) is not None
    status = migration_status(world.store, world.objects, Phase.OFF, world.clock.now())
    assert any("found a job in S3 but not in the tables" in reason for reason in status.against_next())
