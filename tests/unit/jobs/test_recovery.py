"""Lost webhooks are recovered: from GitHub's delivery log, and by polling runs in progress."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest

from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.jobs.read import queries
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.live_run import current_run
from holdfast.jobs.sweep.lost_webhooks import LOG_SECONDS, cursor_key, is_worth_redelivery, sweep_deliveries
from holdfast.jobs.sweep.polling import poll_run, poll_runs
from holdfast.kernel.ids import RunId
from holdfast.ports.github import DeliveryRecord, RateLimited
from holdfast.ports.store import attr
from holdfast.ports.store.tables import RUNS, STATE
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.github_objects import JobPlan, SimRun
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.payloads import CREATED, delivery_id
from tests.support.recovery_stage import APP, INSTALLATION, Stage
from tests.support.simulated_github import GitHubHabits


def test_webhooks_lost_during_downtime_are_redelivered() -> None:
    stage = Stage()
    stage.is_up = False
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one"), JobPlan("two")])
    stage.clock.sleep(60)
    stage.is_up = True
    assert len(stage.sweep()) == 3
    assert [stage.status(job.id) for job in stage.github.jobs_of(run)] == ["queued", "queued"]
    assert stage.sweep() == [], "successful deliveries are not requested again"


def test_a_sweep_reads_only_what_is_new() -> None:
    stage = Stage()
    stage.github.start_run(INSTALLATION, "a/b", [JobPlan(str(number)) for number in range(250)])
    stage.clock.sleep(1200)
    first = sweep_deliveries(stage.store, stage.github, APP, stage.clock.now(), CallBudget(100))
    again = sweep_deliveries(stage.store, stage.github, APP, stage.clock.now(), CallBudget(100))
    assert (first.examined, first.is_done) == (251, True)
    assert (again.examined, again.is_done) == (0, True)


def after_an_outage(deliveries: int) -> tuple[Stage, SimRun]:
    stage = Stage(habits=GitHubHabits(calls_per_hour=10**6))
    stage.is_up = False
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan(str(number)) for number in range(deliveries - 1)])
    stage.clock.sleep(60)
    stage.is_up = True
    return stage, run


@pytest.mark.parametrize("calls", [2, 7, 25, 100, 120])
def test_an_interrupted_sweep_resumes_where_it_stopped(calls: int) -> None:
    """A page has a hundred records. All of them may have failed, with calls left for only a few."""
    stage, run = after_an_outage(deliveries=250)
    asked = [number for _ in range(8 + 400 // (calls - 1)) for number in stage.sweep(calls)]
    assert {stage.status(job.id) for job in stage.github.jobs_of(run)} == {"queued"}
    assert len(asked) < 250 + 20, "few are requested twice"
    assert stage.sweep(20) == []


def test_the_progress_of_a_rate_limited_sweep_counts() -> None:
    """GitHub accepts ten requests, and then none until later: a page has more failures than that."""
    stage, run = after_an_outage(deliveries=150)
    for _ in range(20):
        asked = count()

        def tired(call: PortCall, moment: CallPoint, asked: Iterator[int] = asked) -> None:
            if call.method == "redeliver" and moment is CallPoint.BEFORE and next(asked) >= 10:
                raise RateLimited("enough", stage.clock.now().plus(60))

        with suppress(RateLimited):
            sweep_deliveries(
                stage.store, CallGate(tired).wrapped(stage.github, "github"), APP, stage.clock.now(), CallBudget(100)
            )
        stage.clock.sleep(60)
    assert {stage.status(job.id) for job in stage.github.jobs_of(run)} == {"queued"}


@pytest.mark.parametrize("moment", [CallPoint.BEFORE, CallPoint.AFTER])
@pytest.mark.parametrize("victim", range(12))
def test_a_sweep_killed_at_any_call_loses_nothing(victim: int, moment: CallPoint) -> None:
    stage = Stage()
    stage.is_up = False
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan(str(number)) for number in range(4)])
    stage.clock.sleep(60)
    stage.is_up = True

    def hook(call: PortCall, here: CallPoint) -> None:
        if call.number == victim and here is moment:
            raise Killed

    gate = CallGate(hook)
    store, github = gate.wrapped(stage.store, "store"), gate.wrapped(stage.github, "github")
    with suppress(Killed):
        sweep_deliveries(store, github, APP, stage.clock.now(), CallBudget(100))
    stage.sweep()
    assert {stage.status(job.id) for job in stage.github.jobs_of(run)} == {"queued"}


@pytest.mark.parametrize(
    ("status", "is_redelivery", "age_seconds", "expected"),
    [
        (200, False, 0, False),
        (0, False, 0, True),
        (500, False, 0, True),
        (500, True, 0, True),
        (503, True, 0, True),
        (499, True, 0, False),
        (401, False, 0, True),
        (401, True, 0, False),
        (408, True, 0, True),
        (400, False, 0, False),
        (413, False, 0, False),
        (503, False, LOG_SECONDS + 1, False),
    ],
)
def test_only_relevant_failed_deliveries_are_requested_again(
    status: int, is_redelivery: bool, age_seconds: float, expected: bool
) -> None:
    record = DeliveryRecord(1, "not a uuid", CREATED, is_redelivery, status, "workflow_job")
    assert is_worth_redelivery(record, CREATED.plus(age_seconds)) is expected


def test_a_first_delivery_that_came_days_late_is_requested_again() -> None:
    """GitHub redelivers for three days after the first attempt, however old the event is."""
    event = CREATED.plus(-LOG_SECONDS + 60)
    record = DeliveryRecord(1, delivery_id(event), CREATED, is_redelivery=False, status_code=500, event="workflow_job")
    for attempt in (record, replace(record, is_redelivery=True)):
        assert is_worth_redelivery(attempt, CREATED.plus(120))
        assert not is_worth_redelivery(attempt, CREATED.plus(LOG_SECONDS + 1))


def test_a_delivery_that_always_fails_is_not_requested_for_ever() -> None:
    """Each redelivery is a record of its own, with a new time; its id keeps the event's."""
    latest = CREATED.plus(2 * LOG_SECONDS)
    record = DeliveryRecord(9, delivery_id(CREATED), latest, is_redelivery=True, status_code=500, event="workflow_job")
    assert is_worth_redelivery(record, latest)
    assert not is_worth_redelivery(record, latest.plus(1))


def test_a_rate_limit_is_raised_and_loses_nothing() -> None:
    stage = Stage(habits=GitHubHabits(calls_per_hour=0))
    with pytest.raises(RateLimited):
        stage.sweep()
    assert stage.store.get(STATE, cursor_key(APP)) is None


def polled(stage: Stage, times: int = 8) -> int:
    """How many jobs were corrected; four statuses get their turn."""
    found = 0
    for _ in range(times):
        found += len(
            poll_runs(stage.store, stage.github, INSTALLATION, stage.clock.now(), CallBudget(50), "here").found
        )
    return found


def test_runs_with_many_jobs_do_not_keep_others_from_being_polled() -> None:
    """Each takes three calls, and a sweep has four."""
    stage = Stage()
    runs = [stage.github.start_run(INSTALLATION, "a/b", [JobPlan(str(n)) for n in range(201)]) for _ in range(4)]
    for run in runs:
        for job in run.jobs[1:]:
            stage.github.finish(job, "success")
    stage.clock.sleep(60)
    stage.is_up = False
    late = [stage.github.add_job(run, JobPlan("late")) for run in runs]
    for run in runs:
        run.jobs.insert(0, run.jobs.pop())  # on the first page
    stage.clock.sleep(600)
    stage.is_up = True
    for _ in range(60):
        poll_runs(stage.store, stage.github, INSTALLATION, stage.clock.now(), CallBudget(4), "here")
        stage.clock.sleep(60)
    assert [stage.status(job.id) for job in late] == ["queued"] * 4


def test_a_job_that_was_never_announced_is_found() -> None:
    stage = Stage()
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("known")])
    stage.clock.sleep(60)
    stage.is_up = False
    hidden = stage.github.add_job(run, JobPlan("hidden"))
    stage.github.start(stage.github.jobs_of(run)[0], "runner")
    stage.clock.sleep(300)
    stage.is_up = True
    assert polled(stage) == 2
    assert stage.status(hidden.id) == "queued"
    assert stage.status(stage.github.jobs_of(run)[0].id) == "in_progress"
    found = queries.run(stage.store, RunKey(INSTALLATION, run.id, 1))
    assert found is not None
    assert len(found["open"]) == 2
    assert polled(stage) == 0, "a known state is not written again"


def test_an_end_that_was_lost_is_found() -> None:
    stage = Stage()
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    [job] = stage.github.jobs_of(run)
    stage.clock.sleep(60)
    stage.is_up = False
    stage.github.start(job, "runner")
    stage.github.finish(job, "failure")
    stage.clock.sleep(300)
    stage.is_up = True
    assert polled(stage) == 1
    found = queries.job(stage.store, JobKey(INSTALLATION, job.id))
    assert found is not None
    assert (found["status"], found["conclusion"], found["runner_name"]) == ("completed", "failure", "runner")


def test_a_job_released_during_downtime_is_queued_again() -> None:
    stage = Stage()
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("deploy", environment="production")])
    [job] = stage.github.jobs_of(run)
    stage.clock.sleep(60)
    assert stage.status(job.id) == "waiting"
    stage.is_up = False
    stage.github.approve(job)
    stage.clock.sleep(300)
    stage.is_up = True
    polled(stage)
    assert stage.status(job.id) == "queued"


def test_no_more_calls_are_made_than_the_budget_allows() -> None:
    stage = Stage()
    for _ in range(10):
        stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    stage.clock.sleep(300)
    gate = CallGate(lambda _call, _moment: None)
    github = gate.wrapped(stage.github, "github")
    poll_runs(stage.store, github, INSTALLATION, stage.clock.now(), CallBudget(3), "here")
    assert len(gate.calls) == 3


def test_the_log_begins_where_github_says() -> None:
    """Deliveries that GitHub no longer has are not redelivered."""
    stage = Stage()
    stage.is_up = False
    stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    stage.clock.sleep(LOG_SECONDS + 3600)
    stage.is_up = True
    assert stage.sweep() == []


def test_a_runs_status_is_requested_only_if_the_store_does_not_know_it() -> None:
    stage = Stage()
    gate = CallGate(lambda _call, _moment: None)
    github = gate.wrapped(stage.github, "github")
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    [job] = stage.github.jobs_of(run)

    def status() -> object:
        found = current_run(
            stage.store, github, RunKey(INSTALLATION, run.id, 1), "a/b", stage.clock.now(), CallBudget(1)
        )
        return found.get("status") if found else None

    stage.clock.sleep(5)
    assert (status(), len(gate.calls)) == ("queued", 0), "the webhook has just arrived"
    stage.is_up = False
    stage.github.start(job, "runner")
    stage.clock.sleep(60)
    assert (status(), len(gate.calls)) == ("in_progress", 1)
    assert (status(), len(gate.calls)) == ("in_progress", 1), "GitHub was queried a moment ago"
    stage.github.finish(job, "success")
    stage.clock.sleep(60)
    assert (status(), len(gate.calls)) == ("completed", 2)
    stage.clock.sleep(86_400)
    assert (status(), len(gate.calls)) == ("completed", 2), "a completed run stays completed"


def test_the_stored_status_is_used_if_github_does_not_respond() -> None:
    stage = Stage()
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    stage.clock.sleep(300)
    key = RunKey(INSTALLATION, run.id, 1)
    stage.github.calls_per_hour = 0
    for budget in (CallBudget(0), CallBudget(1)):
        found = current_run(stage.store, stage.github, key, "a/b", stage.clock.now(), budget)
        assert found is not None
        assert found["status"] == "queued"
    unknown = RunKey(INSTALLATION, RunId(1), 1)
    assert current_run(stage.store, stage.github, unknown, "a/b", stage.clock.now(), CallBudget(0)) is None


def test_a_delivery_that_failed_and_then_succeeded_is_not_redelivered() -> None:
    """It was redelivered by hand: the log has both attempts, the newer one first."""
    stage = Stage()
    stage.is_up = False
    stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    stage.clock.sleep(60)
    stage.is_up = True
    for record in list(stage.github.log):
        stage.github.redeliver(record.id)
    stage.clock.sleep(60)
    assert len(stage.github.log) == 4
    assert stage.sweep() == []


def test_a_failure_repeated_during_a_sweep_does_not_settle_the_first() -> None:
    """A sweep stopped before it requested the newer delivery; its newer attempt is left to the next sweep."""
    stage = Stage()
    stage.is_up = False
    stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    stage.clock.sleep(60)
    older, newer = sorted(record.id for record in stage.github.log)
    assert stage.sweep(calls=2) == [older]
    stage.github.redeliver(newer)  # by a person, while we are still down
    stage.clock.sleep(60)
    stage.is_up = True
    assert newer in stage.sweep()


@pytest.mark.parametrize("moment", [CallPoint.BEFORE, CallPoint.AFTER])
@pytest.mark.parametrize("victim", range(16))
def test_a_job_found_in_a_run_that_never_started_is_counted_after_a_kill_at_any_call(
    victim: int, moment: CallPoint
) -> None:
    """Polled events are never redelivered: once the job has ended, its run must have it."""
    stage = Stage()
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("known")])
    stage.clock.sleep(60)
    stage.is_up = False
    hidden = stage.github.add_job(run, JobPlan("hidden"))
    stage.clock.sleep(60)
    stage.is_up = True
    stage.github.fail_to_start(run)
    stage.clock.sleep(300)

    def hook(call: PortCall, here: CallPoint) -> None:
        if call.number == victim and here is moment:
            raise Killed

    key = RunKey(INSTALLATION, run.id, 1)
    with suppress(Killed):
        store = CallGate(hook).wrapped(stage.store, "store")
        poll_run(store, stage.github, key, "a/b", stage.clock.now(), CallBudget(5), "here")
    polled(stage)
    found = queries.run(stage.store, key)
    assert found is not None
    if stage.status(hidden.id) is not None:  # otherwise its webhook is yet to come
        assert stage.status(hidden.id) == "completed"
        assert hidden.id in found["done"]
        assert hidden.id in found["failed"]
        assert hidden.id not in found.get("open", ())


def test_a_job_missing_from_its_run_is_counted_when_polled() -> None:
    """The handler of its first webhook was killed between the job and the run, and later webhooks were lost."""
    stage = Stage()
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    [job] = stage.github.jobs_of(run)
    stage.clock.sleep(60)
    key = RunKey(INSTALLATION, run.id, 1)
    stage.store.update(RUNS, key.item, attr("open").drop_elements({job.id}))
    stage.is_up = False
    stage.github.start(job, "runner")
    stage.clock.sleep(300)
    assert stage.status(job.id) == "queued"
    poll_run(stage.store, stage.github, key, "a/b", stage.clock.now(), CallBudget(5), "here")
    found = queries.run(stage.store, key)
    assert found is not None
    assert (stage.status(job.id), found["open"]) == ("in_progress", {job.id})
