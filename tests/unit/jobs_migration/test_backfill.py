"""Backfilling from S3: killed at any call, twice, and during live webhooks."""

import random
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from holdfast.adapters.sqlite import SqliteStore, sqlite_rows
from holdfast.jobs.figures.calendar import first_unsealed
from holdfast.jobs.figures.counting import Counting
from holdfast.jobs.figures.stored_calendar import read_calendar
from holdfast.jobs.intake.tracker import installations
from holdfast.jobs.migration.backfill import BackfillOptions
from holdfast.jobs.migration.backfill_progress import last_backfill
from holdfast.jobs.migration.phases import SETTLED_SECONDS, Phase, move, stored_phase
from holdfast.jobs.migration.scan import BATCH, TRIES_MOST
from holdfast.jobs.migration.status import wait_for_dual_write
from holdfast.jobs.model.keys import DeploymentKey, JobKey, RunKey
from holdfast.kernel.errors import NeedsOperator, Retryable
from holdfast.kernel.ids import DeploymentId, InstallationId, JobId, RunId
from holdfast.ports.store import Item, Query, every_item
from holdfast.ports.store.tables import JOB_EVENTS, TABLES
from tests.support.job_tables import Tables, tables
from tests.support.migration_world import Death, Killed, World, fill_older, life, statuses

ONE = InstallationId(1)


def filled(jobs: range, **options: Any) -> World:
    world = World(**options)
    fill_older(world, jobs)
    world.go_to(Phase.DUAL_WRITE)
    return world


def everything(world: World, jobs: range) -> Tables:
    runs = {RunKey(ONE, RunId(job // 3 + 1), 1) for job in jobs}
    waited = [DeploymentKey(ONE, DeploymentId(900_000 + job)) for job in jobs if job % 5 == 0]
    return tables(world.store, [JobKey(ONE, JobId(job)) for job in jobs], sorted(runs), waited)


def history(world: World, jobs: range) -> list[Item]:
    keys = [JobKey(ONE, JobId(job)).partition for job in jobs]
    return [entry for key in keys for entry in every_item(world.store, Query(JOB_EVENTS, key))]


def test_after_a_backfill_the_tables_have_everything_from_s3() -> None:
    world = filled(range(1, 41))
    done = world.backfill()
    assert (done.jobs, done.objects, done.total, done.written) == (40, 128, 128, 128)
    assert world.compare()[1] == []
    assert installations(world.store) == [1]


def test_after_a_backfill_the_figures_of_its_days_are_counted_again() -> None:
    """A count before it ran has found no jobs, and would not look at those days again."""
    world = filled(range(1, 41))
    counting = Counting(world.store, world.clock, ONE)
    counting.run_pass()
    before = read_calendar(world.store, ONE)
    world.backfill(BackfillOptions(is_dry_run=True))
    assert read_calendar(world.store, ONE) == before
    world.backfill()
    after = read_calendar(world.store, ONE)
    assert before is not None
    assert after is not None
    assert after.frontier == first_unsealed(world.clock.now()) < before.frontier


def test_on_sqlite_a_job_is_one_transaction_with_the_same_result(tmp_path: Path) -> None:
    jobs = range(1, 11)
    in_memory = filled(jobs)
    in_memory.backfill()
    world = filled(jobs)
    rows = sqlite_rows(tmp_path / "x.db", world.clock, tables=TABLES)
    with closing(SqliteStore(rows, world.clock)) as world.store:
        before = rows.commits
        world.backfill()
        others = 4  # the progress: started, a batch, finished; and the installation
        assert rows.commits - before <= len(jobs) + others
        assert everything(world, jobs) == everything(in_memory, jobs)
        assert {entry["deliveries"] for entry in history(world, jobs)} == {1}
        assert world.compare()[1] == []


def test_a_second_run_writes_nothing() -> None:
    """And does not count existing deliveries as repeated ones."""
    world = filled(range(1, 11))
    world.backfill()
    before = everything(world, range(1, 11))
    writes: list[str] = []
    world.store.meet = lambda call, when: writes.append(call) if when == "before" and call == "update" else None
    done = world.backfill()
    assert (done.written, done.there) == (0, done.objects)
    assert writes == []
    assert everything(world, range(1, 11)) == before
    assert {entry["deliveries"] for entry in history(world, range(1, 11))} == {1}


def meetings(jobs: range) -> int:
    world, death = filled(jobs), Death()
    world.mortal(death)
    world.backfill()
    return death.met


KILLED = range(4, 6)


def test_killed_at_any_call_it_resumes_and_ends_the_same() -> None:
    """Before and after every call to S3 and to the store."""
    whole = filled(KILLED)
    whole.backfill()
    expected = everything(whole, KILLED)
    number = meetings(KILLED)
    assert number > 60
    for at in range(number):
        world = filled(KILLED)
        world.mortal(Death(at))
        with pytest.raises(Killed):
            world.backfill()
        world.mortal(Death())
        world.backfill()
        assert everything(world, KILLED) == expected, at
        assert {entry["deliveries"] for entry in history(world, KILLED)} == {1}, at
        assert world.compare()[1] == [], at


def test_it_resumes_where_it_stopped() -> None:
    """Earlier objects are not read again."""
    jobs = range(1, 2 * BATCH // 3 + 2)
    world = filled(jobs)
    world.mortal(Death(BATCH * 10))
    with pytest.raises(Killed):
        world.backfill()
    world.mortal(Death())
    half = last_backfill(world.store)
    assert half is not None
    assert 0 < half.objects < half.total
    assert half.finished is None
    calls: list[tuple[str, str]] = []

    def count(call: str, when: str) -> bool:
        calls.append((call, when))
        return False

    world.objects.fault = count
    done = world.backfill()
    assert done.run == half.run
    assert calls.count(("get", "before")) == half.total - half.objects
    assert (done.objects, done.finished is not None) == (done.total, True)
    assert world.compare()[1] == []


def test_two_concurrent_backfills_do_no_harm() -> None:
    world = filled(range(1, 61))
    runs = [Thread(target=world.backfill, args=(BackfillOptions(workers=3),)) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert world.compare()[1] == []
    assert {entry["deliveries"] for entry in history(world, range(1, 61))} == {1}


@pytest.mark.parametrize("seed", range(20))
def test_live_webhooks_may_arrive_at_any_call(seed: int) -> None:
    """For jobs in S3 and for new ones, behind the cursor and ahead of it; and repeated, as GitHub may send them."""
    chance = random.Random(seed)
    world = filled(range(1, 13))
    live = [sent for job in range(6, 18) for sent in life(job, failed=job % 7 == 0)]
    chance.shuffle(live)

    def meet(_call: str, when: str) -> None:
        if when == "before" and live and chance.random() < 0.2:
            sent = live.pop()
            world.store.meet = lambda *_: None  # no webhook within a webhook
            world.dual.receive(sent)
            world.store.meet = meet

    world.store.meet = meet
    world.backfill()
    world.store.meet = lambda *_: None
    for sent in live:
        world.dual.receive(sent)
    assert world.compare()[1] == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_temporary_failures_are_retried(when: str) -> None:
    world = filled(range(1, 6))
    chance = random.Random(3)
    world.objects.fault = lambda _call, at: at == when and chance.random() < 0.05
    world.store.fails = lambda call: call == "update" and chance.random() < 0.05
    world.backfill()
    world.objects.fault = lambda _call, _when: False
    world.store.fails = lambda _: False
    assert world.clock.slept_seconds
    assert world.compare()[1] == []


def test_an_unavailable_bucket_is_retried_a_limited_number_of_times() -> None:
    """Each page is retried by itself; retrying the whole list too would keep an operator waiting for minutes."""
    world = filled(range(1, 3))
    calls: list[str] = []

    def away(call: str, when: str) -> bool:
        calls.append(call)
        return when == "before"

    world.objects.fault = away
    with pytest.raises(Retryable):
        world.backfill()
    assert calls == ["page"] * TRIES_MOST


def test_a_dry_run_changes_nothing_and_reports_what_it_would_do() -> None:
    world = filled(range(1, 6))
    before = everything(world, range(1, 6))
    done = world.backfill(BackfillOptions(workers=1, is_dry_run=True))
    assert (done.written, done.objects) == (16, 16)
    assert everything(world, range(1, 6)) == before
    assert last_backfill(world.store) is None


def test_the_rate_limit_is_kept() -> None:
    world = filled(range(1, 31))
    started = world.clock.now()
    done = world.backfill(BackfillOptions(workers=1, objects_per_second=10))
    assert world.clock.now().seconds_since(started) >= done.objects / 10 - 1


def test_expired_jobs_are_left_in_s3() -> None:
    world = filled(range(1, 6))
    world.clock.advance(91 * 86_400)
    fill_older(world, range(6, 8))
    done = world.backfill()
    assert (done.expired, done.written) == (16, 6)
    assert world.compare()[0].expired == 5


def test_an_object_that_is_not_a_webhook_is_counted_and_reported() -> None:
    world = filled(range(1, 3))
    world.objects.put("webhooks/1/1/index.html", b"hello")
    world.objects.put("webhooks/1/3/queued.json", b"{")
    done = world.backfill()
    assert (done.unusable, done.written) == (2, 6)
    assert set(done.unusable_keys) == {"webhooks/1/1/index.html", "webhooks/1/3/queued.json"}


def test_it_waits_until_every_instance_writes_to_both_and_says_so() -> None:
    world = World()
    printed: list[str] = []
    with pytest.raises(NeedsOperator, match="the phase is off: webhooks that arrive during the backfill"):
        wait_for_dual_write(world.store, world.clock, printed.append, is_dry_run=False)
    move(world.store, stored_phase(world.store), Phase.DUAL_WRITE, world.clock.now(), "test")
    world.clock.advance(5)
    wait_for_dual_write(world.store, world.clock, printed.append, is_dry_run=False)
    assert world.clock.slept_seconds == [SETTLED_SECONDS - 5]
    wait_for_dual_write(world.store, world.clock, printed.append, is_dry_run=False)
    assert len(world.clock.slept_seconds) == 1
    assert printed == ["waiting 15 s until every instance writes to both sides"]


def test_a_repeated_webhook_is_still_counted_as_repeated() -> None:
    """Only the backfill's own reads are not."""
    world = filled(range(1, 2))
    world.backfill()
    (status, sent), *_ = statuses(life(1))
    assert status == "queued"
    world.dual.receive(sent)
    world.dual.receive(sent)
    world.backfill()
    assert sorted(entry["deliveries"] for entry in history(world, range(1, 2))) == [1, 1, 1, 2]
