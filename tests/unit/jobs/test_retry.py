"""Failed jobs of an interrupted attempt are retried: once, on on-demand machines, and in no other case."""

import dataclasses
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.adapters.memory import memory_store
from holdfast.jobs.cost.prices import shipped_prices
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import WebhookSecrets, verified_delivery
from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.jobs.read import queries
from holdfast.jobs.read.item_views import Viewing, job_view
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.interrupted_jobs import RETRY_CALLS_MOST, retry_interrupted
from holdfast.jobs.sweep.retry import (
    RESUME_SECONDS,
    RetryPolicy,
    RetryVerdict,
    consider,
    note_key,
    retry_decision,
    wants_on_demand,
)
from holdfast.kernel.ids import InstallationId, InstanceId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHubRefused, GitHubUnavailable
from holdfast.ports.store import Item, Query
from holdfast.ports.store.tables import LOGS
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.github_objects import JobPlan, SimJob, SimRun
from holdfast.simulator.world.timeline import Timeline
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.payloads import CREATED
from tests.simulation.hooks import Instead
from tests.support.simulated_github import UnreliableGitHub

INSTALLATION = InstallationId(7)
VIEWING = Viewing(shipped_prices())
SECRETS = WebhookSecrets.from_text("secret")


class Stage:
    def __init__(self, *plans: JobPlan) -> None:
        self.clock = Timeline(CREATED)
        self.store = memory_store(self.clock)
        self.tracker = Tracker(self.store, self.clock, "here")
        self.github = UnreliableGitHub(self.clock, random.Random(1), SECRETS.signature_of, self.deliver)
        self.run: SimRun = self.github.start_run(INSTALLATION, "a/b", plans or [JobPlan("one"), JobPlan("two")])
        self.clock.sleep(10)

    def deliver(self, headers: Mapping[str, str], body: bytes) -> int:
        self.tracker.receive(verified_delivery(headers, body, SECRETS))
        return 200

    @property
    def key(self) -> RunKey:
        return RunKey(INSTALLATION, self.run.id, 1)

    def send(self, job: SimJob, kind: InternalType, attempt: int = 1, lifecycle: str = "spot") -> None:
        attributes = {"instance_lifecycle": lifecycle} if "scheduled" in kind else {}
        instance = InstanceId(f"i-{job.id:017x}")
        key = JobKey(INSTALLATION, job.id)
        self.tracker.record_event(InternalEvent(key, kind, self.clock.now(), attempt, instance, attributes))

    def life(self, job: SimJob, conclusion: str, *, interrupted: bool) -> None:
        self.send(job, InternalType.SCHEDULED)
        self.github.start(job, "runner")
        self.clock.sleep(30)
        if interrupted:
            self.send(job, InternalType.INTERRUPTED)
        self.github.finish(job, conclusion)
        self.clock.sleep(30)

    def end(self, first: tuple[str, bool] = ("success", False), second: tuple[str, bool] = ("failure", True)) -> None:
        for job, (conclusion, interrupted) in zip(self.github.jobs_of(self.run), (first, second), strict=False):
            self.life(job, conclusion, interrupted=interrupted)

    def consider(self, policy: RetryPolicy | None = None, gate: CallGate | None = None) -> RetryVerdict:
        gate = gate or CallGate(lambda _call, _moment: None)
        store, github = gate.wrapped(self.store, "store"), gate.wrapped(self.github, "github")
        return consider(store, github, self.key, policy or RetryPolicy(), self.clock.now()).verdict


def test_an_interruption_concerns_the_job_that_runs_on_the_machine() -> None:
    """GitHub gave each job the other's machine, and EC2 reclaimed the one that was launched for the first."""
    stage = Stage()
    first, second = stage.github.jobs_of(stage.run)
    for job, other in ((first, second), (second, first)):
        stage.send(job, InternalType.SCHEDULED)
        stage.send(job, InternalType.ATTACHED)
        stage.github.start(job, f"runs-on--i-{other.id:017x}--x7Qd")
    stage.clock.sleep(30)
    stage.send(first, InternalType.INTERRUPTED)
    stage.send(first, InternalType.INTERRUPTED)
    views = [job_view(queries.job(stage.store, JobKey(INSTALLATION, job.id)) or {}, VIEWING) for job in (first, second)]
    assert [view.was_interrupted for view in views] == [False, True]
    stage.github.finish(second, "failure")
    stage.github.finish(first, "success")
    stage.clock.sleep(30)
    assert stage.consider() is RetryVerdict.RETRY
    notes = stage.store.query(Query(LOGS, f"github#interrupted#{INSTALLATION}")).items
    assert str(second.id) in [note["sk"] for note in notes]


def test_a_job_that_fails_by_itself_on_anothers_machine_is_not_retried() -> None:
    stage = Stage()
    first, second = stage.github.jobs_of(stage.run)
    stage.send(first, InternalType.SCHEDULED)
    stage.send(first, InternalType.ATTACHED)
    stage.github.start(first, f"runs-on--i-{second.id:017x}--x7Qd")
    stage.send(first, InternalType.INTERRUPTED)
    stage.github.finish(first, "failure")
    stage.github.finish(second, "success")
    stage.clock.sleep(300)
    assert stage.consider() is RetryVerdict.NO


def test_an_interrupted_run_is_retried_once() -> None:
    stage = Stage()
    stage.end()
    assert stage.consider() is RetryVerdict.RETRY
    assert stage.run.attempt == 2
    stage.clock.sleep(10)
    assert stage.consider() is RetryVerdict.NO
    assert stage.run.attempt == 2
    assert [job.name for job in stage.github.jobs_of(stage.run)] == ["two"]


def test_the_next_attempt_gets_on_demand_machines() -> None:
    stage = Stage()
    stage.end()
    stage.consider()
    assert wants_on_demand(stage.store, replace(stage.key, run_attempt=2))
    assert not wants_on_demand(stage.store, stage.key)
    assert not wants_on_demand(stage.store, replace(stage.key, run_attempt=3))


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (("success", False), ("success", False), RetryVerdict.NO),
        (("success", False), ("failure", False), RetryVerdict.NO),
        (("failure", False), ("failure", True), RetryVerdict.NO),
        (("failure", True), ("timed_out", True), RetryVerdict.RETRY),
        (("cancelled", False), ("failure", True), RetryVerdict.RETRY),
        (("success", True), ("success", True), RetryVerdict.NO),
    ],
)
def test_only_failures_explained_by_an_interruption_are_retried(
    first: tuple[str, bool], second: tuple[str, bool], verdict: RetryVerdict
) -> None:
    stage = Stage()
    stage.end(first, second)
    assert stage.consider() is verdict


def test_nothing_is_retried_before_the_attempt_is_over() -> None:
    stage = Stage()
    stage.life(stage.github.jobs_of(stage.run)[0], "failure", interrupted=True)
    assert stage.consider() is RetryVerdict.NOT_YET
    stage.life(stage.github.jobs_of(stage.run)[1], "success", interrupted=False)
    assert stage.consider() is RetryVerdict.RETRY


def test_an_interruption_of_an_earlier_machine_explains_nothing() -> None:
    stage = Stage(JobPlan("one"))
    [job] = stage.github.jobs_of(stage.run)
    stage.send(job, InternalType.SCHEDULED)
    stage.send(job, InternalType.INTERRUPTED)
    stage.send(job, InternalType.RESCHEDULED, attempt=2, lifecycle="on-demand")
    stage.github.start(job, "runner")
    stage.clock.sleep(30)
    stage.github.finish(job, "failure")
    stage.clock.sleep(30)
    assert stage.consider() is RetryVerdict.NO


def test_deployments_are_retried_only_with_the_setting_for_it() -> None:
    stage = Stage(JobPlan("deploy", environment="production"))
    [job] = stage.github.jobs_of(stage.run)
    stage.github.approve(job)
    stage.clock.sleep(10)
    stage.life(job, "failure", interrupted=True)
    assert stage.consider() is RetryVerdict.NO
    assert stage.consider(RetryPolicy(with_deployments=True)) is RetryVerdict.RETRY


def test_the_limits_on_retries_hold() -> None:
    stage = Stage()
    stage.end()
    assert stage.consider(RetryPolicy(is_enabled=False)) is RetryVerdict.NO
    assert stage.consider(RetryPolicy(attempts_most=1)) is RetryVerdict.NO
    assert stage.consider(RetryPolicy(per_repository_and_day_most=0)) is RetryVerdict.NO
    assert stage.run.attempt == 1


def test_a_reached_daily_limit_is_stored_with_the_run_and_applies_to_its_repository_only() -> None:
    stage, policy = Stage(), RetryPolicy(per_repository_and_day_most=1)
    stage.end()
    assert stage.consider(policy) is RetryVerdict.RETRY
    stage.run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one"), JobPlan("two")])
    stage.clock.sleep(10)
    stage.end()
    assert stage.consider(policy) is RetryVerdict.NO
    retry = (queries.run(stage.store, stage.key) or {})["retry"]
    assert retry["state"] == "refused"
    assert retry["because"] == "the repository's daily limit is reached: AUTO_RETRY_DAILY=1"
    assert not wants_on_demand(stage.store, replace(stage.key, run_attempt=2))
    stage.run = stage.github.start_run(INSTALLATION, "a/c", [JobPlan("one"), JobPlan("two")])
    stage.clock.sleep(10)
    stage.end()
    assert stage.consider(policy) is RetryVerdict.RETRY


def test_the_daily_limit_is_reset_the_next_day() -> None:
    stage, policy = Stage(), RetryPolicy(per_repository_and_day_most=1)
    for _ in range(2):
        stage.run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one"), JobPlan("two")])
        stage.clock.sleep(10)
        stage.end()
        assert stage.consider(policy) is RetryVerdict.RETRY
        stage.clock.sleep(86_400)


def test_a_claim_resumed_after_midnight_counts_for_the_day_it_was_made() -> None:
    stage, policy = Stage(), RetryPolicy(per_repository_and_day_most=1)
    stage.end()
    midnight = Instant.from_iso(f"{stage.clock.now().plus(86_400).date()}T00:00:00Z")
    stage.clock.sleep(midnight.seconds_since(stage.clock.now()) - 30)

    def die(call: PortCall, _moment: CallPoint) -> None:
        if call.method == "rerun_failed_jobs":
            raise Killed

    with pytest.raises(Killed):
        stage.consider(policy, CallGate(die))
    stage.clock.sleep(RESUME_SECONDS + 1)
    assert stage.consider(policy) is RetryVerdict.RETRY
    stage.run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one"), JobPlan("two")])
    stage.clock.sleep(10)
    stage.end()
    assert stage.consider(policy) is RetryVerdict.RETRY, "the new day has its own limit"


@pytest.mark.parametrize("how", ["killed before", "killed after", "answer lost"])
@pytest.mark.parametrize("victim", range(14))
def test_a_run_is_retried_once_after_a_kill_at_any_call(victim: int, how: str) -> None:
    """It also counts only once towards the daily limit."""
    stage = Stage()
    stage.end()

    def hook(call: PortCall, moment: CallPoint) -> None:
        if call.number == victim and moment is (CallPoint.BEFORE if how == "killed before" else CallPoint.AFTER):
            raise GitHubUnavailable("no answer") if how == "answer lost" and call.port == "github" else Killed

    for gate in (CallGate(hook), None, None):
        with suppress(Killed, GitHubUnavailable):
            stage.consider(RetryPolicy(per_repository_and_day_most=1), gate)
        stage.clock.sleep(RESUME_SECONDS + 1)
        assert stage.run.attempt <= 2
    assert stage.run.attempt == 2
    found = queries.run(stage.store, stage.key)
    assert found is not None
    assert found["retry"]["state"] == "requested"


def test_a_failure_whose_webhook_was_lost_is_found_before_anything_is_retried() -> None:
    """The second job failed by itself; its webhooks never arrived, those of its run did."""
    stage = Stage()
    first, second = stage.github.jobs_of(stage.run)
    stage.life(first, "failure", interrupted=True)
    stage.github.deliver = lambda _headers, _body: 503
    stage.github.start(second, "runner")
    stage.github.finish(second, "failure")
    stage.clock.sleep(10)
    stage.github.deliver = stage.deliver
    for record in stage.github.log[-1:]:
        stage.github.redeliver(record.id)  # the run's end
    stage.clock.sleep(600)
    assert stage.consider() is not RetryVerdict.RETRY
    assert stage.run.attempt == 1


@pytest.mark.parametrize(("jobs", "verdict"), [(560, RetryVerdict.RETRY), (700, RetryVerdict.NO)])
def test_a_run_is_retried_only_if_all_its_jobs_can_be_listed(jobs: int, verdict: RetryVerdict) -> None:
    """We know two jobs, of which one was interrupted. GitHub lists many others, and one of them may have failed."""
    stage = Stage()
    stage.end()
    real = stage.github.jobs_of_run(INSTALLATION, "a/b", stage.run.id, 1)
    others = [dataclasses.replace(real[0], id=JobId(10_000 + number)) for number in range(jobs - len(real))]
    listed, calls = [*real, *others], Counter[str]()

    def jobs_of_run(*given: Any) -> Any:
        return listed[(given[-1] - 1) * 100 : given[-1] * 100]

    def counted(call: PortCall, moment: CallPoint) -> None:
        calls[call.method] += call.port == "github" and moment is CallPoint.BEFORE

    github = CallGate(counted).wrapped(Instead(stage.github, jobs_of_run=jobs_of_run), "github")
    stage.clock.sleep(600)
    decision = consider(stage.store, github, stage.key, RetryPolicy(), stage.clock.now())
    assert decision.verdict is verdict
    assert stage.run.attempt == (2 if verdict is RetryVerdict.RETRY else 1)
    if verdict is RetryVerdict.RETRY:
        assert calls["jobs_of_run"] + calls["run"] + calls["rerun_failed_jobs"] == RETRY_CALLS_MOST
    else:
        assert "too many jobs" in decision.because


def test_a_refusal_is_final() -> None:
    stage = Stage()
    stage.end()

    def refuse(call: PortCall, moment: CallPoint) -> None:
        if call.method == "rerun_failed_jobs" and moment is CallPoint.BEFORE:
            raise GitHubRefused("somebody has begun another attempt by hand", 403)

    assert stage.consider(gate=CallGate(refuse)) is RetryVerdict.NO
    stage.clock.sleep(600)
    assert stage.consider() is RetryVerdict.NO
    assert stage.run.attempt == 1


def test_no_rerun_is_requested_while_github_reports_the_attempt_as_unfinished() -> None:
    """It would refuse, and a refusal is final. We may lack a job whose webhook was lost."""
    stage = Stage()
    stage.end()
    stage.run.status = "in_progress"
    assert stage.consider() is RetryVerdict.NOT_YET
    stage.run.status = "completed"
    assert stage.consider() is RetryVerdict.RETRY
    assert stage.run.attempt == 2


def test_a_claim_of_another_process_is_left_alone_for_a_while() -> None:
    stage = Stage()
    stage.end()

    def die(call: PortCall, moment: CallPoint) -> None:
        if call.method == "rerun_failed_jobs":
            raise Killed

    with pytest.raises(Killed):
        stage.consider(gate=CallGate(die))
    assert stage.consider() is RetryVerdict.NOT_YET
    assert stage.run.attempt == 1


def test_two_processes_that_resume_a_claim_do_not_settle_it_as_refused() -> None:
    """One of them retries the run and dies; the other, refused because of that, would store a refusal."""
    stage = Stage()
    stage.end()

    def killed_at(method: str, when: CallPoint) -> CallGate:
        def die(call: PortCall, moment: CallPoint) -> None:
            if call.method == method and moment is when:
                raise Killed

        return CallGate(die)

    with pytest.raises(Killed):
        stage.consider(gate=killed_at("rerun_failed_jobs", CallPoint.BEFORE))
    stage.clock.sleep(RESUME_SECONDS + 1)

    def meanwhile(call: PortCall, moment: CallPoint) -> None:
        if call.port == "github" and call.method == "run" and moment is CallPoint.AFTER:
            with suppress(Killed):
                stage.consider(gate=killed_at("rerun_failed_jobs", CallPoint.AFTER))

    stage.consider(gate=CallGate(meanwhile))
    stage.clock.sleep(RESUME_SECONDS + 1)
    stage.consider()
    assert stage.run.attempt == 2
    assert (queries.run(stage.store, stage.key) or {})["retry"]["state"] == "requested"


def test_a_job_that_succeeded_before_its_interruption_does_not_hide_one_that_failed() -> None:
    stage = Stage()
    stage.end(("success", True), ("failure", True))
    found = retry_interrupted(
        stage.store, stage.github, INSTALLATION, RetryPolicy(), stage.clock.now(), CallBudget(RETRY_CALLS_MOST)
    )
    assert (found.runs, stage.run.attempt) == ([replace(stage.key, run_attempt=1)], 2)


def test_a_claim_made_during_another_sweep_is_resumed_by_the_next() -> None:
    """The slow one finds a claim on its second read. GitHub did not respond to the claimant, so it is not settled."""
    stage = Stage()
    stage.end()

    def no_answer(call: PortCall, moment: CallPoint) -> None:
        if call.method == "rerun_failed_jobs" and moment is CallPoint.BEFORE:
            raise GitHubUnavailable("no answer")

    def slow(call: PortCall, moment: CallPoint) -> None:
        if call.method == "jobs_of_run" and moment is CallPoint.AFTER:
            assert stage.consider(gate=CallGate(no_answer)) is RetryVerdict.NOT_YET

    sweep = partial(retry_interrupted, installation=INSTALLATION, policy=RetryPolicy())
    slowed = CallGate(slow)
    store, github = slowed.wrapped(stage.store, "store"), slowed.wrapped(stage.github, "github")
    assert sweep(store, github, now=stage.clock.now(), budget=CallBudget(99)).runs == []
    stage.clock.sleep(RESUME_SECONDS + 1)
    assert sweep(stage.store, stage.github, now=stage.clock.now(), budget=CallBudget(99)).runs == [stage.key]
    assert stage.run.attempt == 2


@pytest.mark.parametrize("at", ["run", "jobs_of_run"])
def test_a_sweep_that_finds_the_run_rerun_leaves_the_note_to_the_open_claim(at: str) -> None:
    """One claims, and GitHub's response is lost; another, which had read before that, sees a later attempt."""
    stage = Stage()
    stage.end()
    sweep = partial(retry_interrupted, installation=INSTALLATION, policy=RetryPolicy())

    def lose(call: PortCall, moment: CallPoint) -> None:
        if call.method == "rerun_failed_jobs" and moment is CallPoint.AFTER:
            raise GitHubUnavailable("the answer was lost")

    meetings = iter([True])

    def meet(call: PortCall, moment: CallPoint) -> None:
        if call.method == at and moment is CallPoint.BEFORE and next(meetings, False):
            github = CallGate(lose).wrapped(stage.github, "github")
            assert sweep(stage.store, github, now=stage.clock.now(), budget=CallBudget(100)).runs == []

    github = CallGate(meet).wrapped(stage.github, "github")
    assert sweep(stage.store, github, now=stage.clock.now(), budget=CallBudget(100)).runs == []
    assert stage.run.attempt == 2
    run = queries.run(stage.store, stage.key)
    assert run is not None
    assert run["retry"]["state"] == "intended"
    stage.clock.sleep(RESUME_SECONDS)
    assert sweep(stage.store, stage.github, now=stage.clock.now(), budget=CallBudget(100)).runs == [stage.key]
    run = queries.run(stage.store, stage.key)
    assert run is not None
    assert (run["retry"]["state"], stage.run.attempt) == ("requested", 2)


def test_a_claim_is_found_although_its_first_note_was_removed() -> None:
    """By a process that had read earlier, and found nothing to do."""
    stage = Stage()
    stage.end()
    [_, failed] = stage.github.jobs_of(stage.run)

    def meanwhile(call: PortCall, moment: CallPoint) -> None:
        if call.method == "transact" and moment is CallPoint.BEFORE:
            stage.store.delete(LOGS, note_key(JobKey(INSTALLATION, failed.id)))
        if call.method == "rerun_failed_jobs" and moment is CallPoint.AFTER:
            raise GitHubUnavailable("the answer was lost")

    assert stage.consider(gate=CallGate(meanwhile)) is RetryVerdict.NOT_YET
    stage.clock.sleep(RESUME_SECONDS)
    found = retry_interrupted(
        stage.store, stage.github, INSTALLATION, RetryPolicy(), stage.clock.now(), CallBudget(RETRY_CALLS_MOST)
    )
    assert found.runs == [stage.key]


@pytest.mark.parametrize(
    ("method", "error"), [("rerun_failed_jobs", GitHubUnavailable("502")), ("jobs_of_run", GitHubRefused("no", 403))]
)
def test_a_waiting_run_of_many_interrupted_jobs_is_checked_once_per_sweep(method: str, error: Exception) -> None:
    """Otherwise it would use up the calls of the runs after it."""
    stage = Stage(*[JobPlan(str(number)) for number in range(10)])
    for job in stage.github.jobs_of(stage.run):
        stage.life(job, "failure", interrupted=True)

    def fail(call: PortCall, moment: CallPoint) -> None:
        if call.method == method and moment is CallPoint.BEFORE:
            raise error

    budget = CallBudget(99)
    github = CallGate(fail).wrapped(stage.github, "github")
    assert retry_interrupted(stage.store, github, INSTALLATION, RetryPolicy(), stage.clock.now(), budget).runs == []
    assert budget.calls == 99 - RETRY_CALLS_MOST
    stage.clock.sleep(RESUME_SECONDS + 1)
    found = retry_interrupted(
        stage.store, stage.github, INSTALLATION, RetryPolicy(), stage.clock.now(), CallBudget(RETRY_CALLS_MOST)
    )
    assert found.runs == [stage.key], "it is left for the next sweep"


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        ({"status": "completed", "retry": {"state": "intended"}}, RetryVerdict.NOT_YET),
        ({"status": "completed", "retry": {"state": "refused"}}, RetryVerdict.NO),
        ({"status": "completed", "open": {9}}, RetryVerdict.NOT_YET),
        ({"status": "completed"}, RetryVerdict.RETRY),
        ({"status": "in_progress"}, RetryVerdict.NOT_YET),
        ({"status": "completed", "failed": {1, 2}}, RetryVerdict.NO),
    ],
)
def test_a_run_is_over_when_github_says_so_and_no_job_is_open(run: Item, verdict: RetryVerdict) -> None:
    """A failed job whose item is missing explains nothing either."""
    failed: Item = {
        "conclusion": "failure",
        "was_interrupted": True,
        "interrupted_attempt": 1,
        "scheduling_attempt": 1,
        "completed_at": CREATED.iso_seconds(),
    }
    whole = {"failed": {1}, "done": {1}} | run
    assert (
        retry_decision(whole, RunKey(INSTALLATION, RunId(1), 1), [failed], RetryPolicy(), CREATED.plus(5)).verdict
        is verdict
    )


class Closed:
    """A GitHub that denies us access to a repository."""

    def __init__(self, github: UnreliableGitHub) -> None:
        self._github = github

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._github, name)

        def asked(installation: InstallationId, repository: str, *which: Any) -> Any:
            if repository == "a/closed":
                raise GitHubRefused("no", 403)
            return ask(installation, repository, *which)

        return asked


def test_runs_that_github_refuses_do_not_use_up_all_calls_forever() -> None:
    """We may have no access to a repository, and the notes of its jobs stay for days."""
    stage = Stage()
    closed = [stage.github.start_run(INSTALLATION, "a/closed", [JobPlan("one")]) for _ in range(6)]
    open_ = [stage.github.start_run(INSTALLATION, "a/open", [JobPlan("one")]) for _ in range(2)]
    for run in (*closed, *open_):
        stage.life(stage.github.jobs_of(run)[0], "failure", interrupted=True)

    github: Any = Closed(stage.github)
    found: list[RunKey] = []
    for _ in range(30):
        budget = CallBudget(2 * RETRY_CALLS_MOST)  # for two of the eight
        found += retry_interrupted(stage.store, github, INSTALLATION, RetryPolicy(), stage.clock.now(), budget).runs
        stage.clock.sleep(300)
    assert sorted(key.run_id for key in found) == sorted(run.id for run in open_)
