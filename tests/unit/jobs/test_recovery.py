"""Lost webhooks are found again: by GitHub's log of deliveries, and by asking about runs that are under way."""

import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.jobs import queries
from holdfast.jobs.budget import Budget
from holdfast.jobs.fresh import fresh_run
from holdfast.jobs.ingest import Tracker
from holdfast.jobs.keys import JobKey, RunKey
from holdfast.jobs.polling import poll_run, poll_runs
from holdfast.jobs.recovery import LOG_SECONDS, cursor_key, is_worth_asking, sweep_deliveries
from holdfast.jobs.webhook import WebhookSecrets, admitted
from holdfast.kernel.ids import InstallationId, RunId
from holdfast.ports.github import DeliveryRecord, RateLimited
from holdfast.ports.store import attr
from holdfast.ports.store.tables import RUNS, STATE
from holdfast.simulator.gate import Gate, Killed, Moment, PortCall
from holdfast.simulator.github import SimulatedGitHub
from holdfast.simulator.github_objects import GitHubHabits, JobPlan, SimRun
from holdfast.simulator.timeline import Timeline
from tests.payloads import CREATED

INSTALLATION = InstallationId(7)
SECRETS = WebhookSecrets.from_text("secret")
APP = 42


class Stage:
    """A tracker, and a GitHub that sends to it."""

    def __init__(self, seed: int = 1, habits: GitHubHabits | None = None) -> None:
        self.clock = Timeline(CREATED)
        self.store = memory_store(self.clock)
        self.tracker = Tracker(self.store, self.clock, "here")
        self.answers: list[int] = []
        self.is_up = True
        self.github = SimulatedGitHub(self.clock, random.Random(seed), SECRETS.signature_of, self.deliver, habits)

    def deliver(self, headers: Mapping[str, str], body: bytes) -> int:
        if not self.is_up:
            return 503
        self.tracker.receive(admitted(headers, body, SECRETS))
        return 200

    def sweep(self, calls: int = 1000) -> list[int]:
        swept = sweep_deliveries(self.store, self.github, APP, self.clock.now(), Budget(calls))
        self.clock.sleep(60)
        return swept.redelivered

    def status(self, job: int) -> str | None:
        found = queries.job(self.store, JobKey(INSTALLATION, job))  # type: ignore[arg-type]
        return found.get("status") if found else None


def test_what_was_lost_while_we_were_down_is_asked_for() -> None:
    stage = Stage()
    stage.is_up = False
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one"), JobPlan("two")])
    stage.clock.sleep(60)
    stage.is_up = True
    assert len(stage.sweep()) == 3
    assert [stage.status(job.id) for job in stage.github.jobs_of(run)] == ["queued", "queued"]
    assert stage.sweep() == [], "what succeeded is not asked for again"


def test_a_sweep_reads_only_what_is_new() -> None:
    stage = Stage()
    stage.github.start_run(INSTALLATION, "a/b", [JobPlan(str(number)) for number in range(250)])
    stage.clock.sleep(60)
    first = sweep_deliveries(stage.store, stage.github, APP, stage.clock.now(), Budget(100))
    again = sweep_deliveries(stage.store, stage.github, APP, stage.clock.now(), Budget(100))
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
def test_a_sweep_that_is_cut_short_goes_on_where_it_stopped(calls: int) -> None:
    """A page has a hundred records. All of them may have failed, and there may be calls for a few of them only."""
    stage, run = after_an_outage(deliveries=250)
    asked = [number for _ in range(8 + 400 // (calls - 1)) for number in stage.sweep(calls)]
    assert {stage.status(job.id) for job in stage.github.jobs_of(run)} == {"queued"}
    assert len(asked) < 250 + 20, "few are asked for twice"
    assert stage.sweep(20) == []


def test_what_a_sweep_did_counts_although_github_had_enough_of_it() -> None:
    """It takes ten requests, and then none until later: a page has more failures than that."""
    stage, run = after_an_outage(deliveries=150)
    for _ in range(20):
        asked = count()

        def tired(call: PortCall, moment: Moment, asked: Iterator[int] = asked) -> None:
            if call.method == "redeliver" and moment is Moment.BEFORE and next(asked) >= 10:
                raise RateLimited("enough", stage.clock.now().plus(60))

        with suppress(RateLimited):
            sweep_deliveries(
                stage.store, Gate(tired).wrapped(stage.github, "github"), APP, stage.clock.now(), Budget(100)
            )
        stage.clock.sleep(60)
    assert {stage.status(job.id) for job in stage.github.jobs_of(run)} == {"queued"}


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
@pytest.mark.parametrize("victim", range(12))
def test_a_sweep_killed_at_any_call_loses_nothing(victim: int, moment: Moment) -> None:
    stage = Stage()
    stage.is_up = False
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan(str(number)) for number in range(4)])
    stage.clock.sleep(60)
    stage.is_up = True

    def hook(call: PortCall, here: Moment) -> None:
        if call.number == victim and here is moment:
            raise Killed

    gate = Gate(hook)
    store, github = gate.wrapped(stage.store, "store"), gate.wrapped(stage.github, "github")
    with suppress(Killed):
        sweep_deliveries(store, github, APP, stage.clock.now(), Budget(100))
    stage.sweep()
    assert {stage.status(job.id) for job in stage.github.jobs_of(run)} == {"queued"}


@pytest.mark.parametrize(
    ("status", "is_redelivery", "age_seconds", "expected"),
    [
        (200, False, 0, False),
        (0, False, 0, True),
        (503, True, 0, True),
        (401, False, 0, True),
        (401, True, 0, False),
        (408, True, 0, True),
        (400, False, 0, False),
        (413, False, 0, False),
        (503, False, LOG_SECONDS + 1, False),
    ],
)
def test_what_is_worth_asking_for(status: int, is_redelivery: bool, age_seconds: float, expected: bool) -> None:
    record = DeliveryRecord(1, "not a uuid", CREATED, is_redelivery, status, "workflow_job")
    assert is_worth_asking(record, CREATED.plus(age_seconds)) is expected


def test_a_rate_limit_is_told_and_costs_nothing() -> None:
    stage = Stage(habits=GitHubHabits(calls_per_hour=0))
    with pytest.raises(RateLimited):
        stage.sweep()
    assert stage.store.get(STATE, cursor_key(APP)) is None


def polled(stage: Stage, times: int = 8) -> int:
    """How many jobs were found to be otherwise; four statuses have their turn."""
    found = 0
    for _ in range(times):
        found += len(poll_runs(stage.store, stage.github, INSTALLATION, stage.clock.now(), Budget(50), "here").found)
    return found


def test_runs_of_many_jobs_do_not_keep_the_others_from_being_asked_about() -> None:
    """Each takes three calls, and there are four a sweep."""
    stage = Stage()
    runs = [stage.github.start_run(INSTALLATION, "a/b", [JobPlan(str(n)) for n in range(201)]) for _ in range(4)]
    for run in runs:
        for job in run.jobs[1:]:
            stage.github.finish(job, "success")
    stage.clock.sleep(60)
    stage.is_up = False
    late = [stage.github.add_job(run, JobPlan("late")) for run in runs]
    for run in runs:
        run.jobs.insert(0, run.jobs.pop())  # on the first page that is asked for
    stage.clock.sleep(600)
    stage.is_up = True
    for _ in range(60):
        poll_runs(stage.store, stage.github, INSTALLATION, stage.clock.now(), Budget(4), "here")
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
    assert polled(stage) == 0, "what is known is not written again"


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


def test_a_job_released_while_nobody_listened_is_queued_again() -> None:
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
    gate = Gate(lambda _call, _moment: None)
    github = gate.wrapped(stage.github, "github")
    poll_runs(stage.store, github, INSTALLATION, stage.clock.now(), Budget(3), "here")
    assert len(gate.calls) == 3


def test_the_log_begins_where_github_says() -> None:
    """Deliveries that GitHub no longer has are not asked for."""
    stage = Stage()
    stage.is_up = False
    stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    stage.clock.sleep(LOG_SECONDS + 3600)
    stage.is_up = True
    assert stage.sweep() == []


def test_a_runs_status_is_asked_for_only_where_the_store_does_not_know_it() -> None:
    stage = Stage()
    gate = Gate(lambda _call, _moment: None)
    github = gate.wrapped(stage.github, "github")
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    [job] = stage.github.jobs_of(run)

    def status() -> object:
        found = fresh_run(stage.store, github, RunKey(INSTALLATION, run.id, 1), "a/b", stage.clock.now(), Budget(1))
        return found.get("status") if found else None

    stage.clock.sleep(5)
    assert (status(), len(gate.calls)) == ("queued", 0), "the webhook has just told"
    stage.is_up = False
    stage.github.start(job, "runner")
    stage.clock.sleep(60)
    assert (status(), len(gate.calls)) == ("in_progress", 1)
    assert (status(), len(gate.calls)) == ("in_progress", 1), "GitHub was asked a moment ago"
    stage.github.finish(job, "success")
    stage.clock.sleep(60)
    assert (status(), len(gate.calls)) == ("completed", 2)
    stage.clock.sleep(86_400)
    assert (status(), len(gate.calls)) == ("completed", 2), "what is over stays so"


def test_what_the_store_knows_is_given_where_github_does_not_answer() -> None:
    stage = Stage()
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    stage.clock.sleep(300)
    key = RunKey(INSTALLATION, run.id, 1)
    stage.github.habits = GitHubHabits(calls_per_hour=0)
    for budget in (Budget(0), Budget(1)):
        found = fresh_run(stage.store, stage.github, key, "a/b", stage.clock.now(), budget)
        assert found is not None
        assert found["status"] == "queued"
    unknown = RunKey(INSTALLATION, RunId(1), 1)
    assert fresh_run(stage.store, stage.github, unknown, "a/b", stage.clock.now(), Budget(0)) is None


def test_what_failed_and_then_succeeded_is_not_asked_for() -> None:
    """Somebody has asked for it by hand: the log has both attempts, the newer one first."""
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


def test_what_failed_again_since_the_sweep_began_is_not_settled_by_that() -> None:
    """A sweep was cut short before it came to the older attempt; the newer one is not its business, but the next's."""
    stage = Stage()
    stage.is_up = False
    stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    stage.clock.sleep(60)
    older, newer = sorted(record.id for record in stage.github.log)
    assert stage.sweep(calls=2) == [newer]
    stage.github.redeliver(older)  # by hand, and we are still down
    stage.clock.sleep(60)
    stage.is_up = True
    assert older in stage.sweep()


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
@pytest.mark.parametrize("victim", range(16))
def test_a_job_found_in_a_run_that_never_started_is_counted_wherever_one_is_killed(victim: int, moment: Moment) -> None:
    """Nobody sends again what was asked for: once the job has ended, its run must have it."""
    stage = Stage()
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("known")])
    stage.clock.sleep(60)
    stage.is_up = False
    hidden = stage.github.add_job(run, JobPlan("hidden"))
    stage.clock.sleep(60)
    stage.is_up = True
    stage.github.fail_to_start(run)
    stage.clock.sleep(300)

    def hook(call: PortCall, here: Moment) -> None:
        if call.number == victim and here is moment:
            raise Killed

    key = RunKey(INSTALLATION, run.id, 1)
    with suppress(Killed):
        store = Gate(hook).wrapped(stage.store, "store")
        poll_run(store, stage.github, key, "a/b", stage.clock.now(), Budget(5), "here")
    polled(stage)
    found = queries.run(stage.store, key)
    assert found is not None
    if stage.status(hidden.id) is not None:  # else its webhook is still to come
        assert stage.status(hidden.id) == "completed"
        assert hidden.id in found["done"]
        assert hidden.id in found["failed"]
        assert hidden.id not in found.get("open", ())


def test_a_job_that_its_run_does_not_have_is_counted_when_it_is_asked_about() -> None:
    """Its first webhook was cut short between the job and the run, and those that came after it were lost."""
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
    poll_run(stage.store, stage.github, key, "a/b", stage.clock.now(), Budget(5), "here")
    found = queries.run(stage.store, key)
    assert found is not None
    assert (stage.status(job.id), found["open"]) == ("in_progress", {job.id})
