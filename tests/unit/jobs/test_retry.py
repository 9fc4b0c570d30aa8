"""Failed jobs of an attempt that spot took down are run again: once, on on-demand, and not otherwise."""

import random
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.adapters.memory import memory_store
from holdfast.jobs import queries
from holdfast.jobs.budget import Budget
from holdfast.jobs.ingest import Tracker
from holdfast.jobs.internal import InternalEvent, InternalType
from holdfast.jobs.interrupted import RETRY_CALLS_MOST, retry_interrupted
from holdfast.jobs.keys import JobKey, RunKey
from holdfast.jobs.retry import RESUME_SECONDS, RetryPolicy, Verdict, consider, decided, note_key, wants_on_demand
from holdfast.jobs.webhook import WebhookSecrets, admitted
from holdfast.kernel.ids import InstallationId, InstanceId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHubRefused, GitHubUnavailable
from holdfast.ports.store import Item
from holdfast.ports.store.tables import LOGS
from holdfast.simulator.gate import Gate, Killed, Moment, PortCall
from holdfast.simulator.github import SimulatedGitHub
from holdfast.simulator.github_objects import JobPlan, SimJob, SimRun
from holdfast.simulator.timeline import Timeline
from tests.payloads import CREATED

INSTALLATION = InstallationId(7)
SECRETS = WebhookSecrets.from_text("secret")


class Stage:
    def __init__(self, *plans: JobPlan) -> None:
        self.clock = Timeline(CREATED)
        self.store = memory_store(self.clock)
        self.tracker = Tracker(self.store, self.clock, "here")
        self.github = SimulatedGitHub(self.clock, random.Random(1), SECRETS.signature_of, self.deliver)
        self.run: SimRun = self.github.start_run(INSTALLATION, "a/b", plans or [JobPlan("one"), JobPlan("two")])
        self.clock.sleep(10)

    def deliver(self, headers: Mapping[str, str], body: bytes) -> int:
        self.tracker.receive(admitted(headers, body, SECRETS))
        return 200

    @property
    def key(self) -> RunKey:
        return RunKey(INSTALLATION, self.run.id, 1)

    def tell(self, job: SimJob, kind: InternalType, attempt: int = 1, lifecycle: str = "spot") -> None:
        attributes = {"instance_lifecycle": lifecycle} if "scheduled" in kind else {}
        instance = InstanceId(f"i-{job.id:016x}")
        key = JobKey(INSTALLATION, job.id)
        self.tracker.tell(InternalEvent(key, kind, self.clock.now(), attempt, instance, attributes))

    def life(self, job: SimJob, conclusion: str, *, interrupted: bool) -> None:
        self.tell(job, InternalType.SCHEDULED)
        self.github.start(job, "runner")
        self.clock.sleep(30)
        if interrupted:
            self.tell(job, InternalType.INTERRUPTED)
        self.github.finish(job, conclusion)
        self.clock.sleep(30)

    def end(self, first: tuple[str, bool] = ("success", False), second: tuple[str, bool] = ("failure", True)) -> None:
        for job, (conclusion, interrupted) in zip(self.github.jobs_of(self.run), (first, second), strict=False):
            self.life(job, conclusion, interrupted=interrupted)

    def consider(self, policy: RetryPolicy | None = None, gate: Gate | None = None) -> Verdict:
        gate = gate or Gate(lambda _call, _moment: None)
        store, github = gate.wrapped(self.store, "store"), gate.wrapped(self.github, "github")
        return consider(store, github, self.key, policy or RetryPolicy(), self.clock.now()).verdict


def test_a_run_that_spot_took_down_is_run_again_once() -> None:
    stage = Stage()
    stage.end()
    assert stage.consider() is Verdict.RETRY
    assert stage.run.attempt == 2
    stage.clock.sleep(10)
    assert stage.consider() is Verdict.NO
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
        (("success", False), ("success", False), Verdict.NO),
        (("success", False), ("failure", False), Verdict.NO),
        (("failure", False), ("failure", True), Verdict.NO),
        (("failure", True), ("timed_out", True), Verdict.RETRY),
        (("cancelled", False), ("failure", True), Verdict.RETRY),
        (("success", True), ("success", True), Verdict.NO),
    ],
)
def test_only_what_an_interruption_explains_is_run_again(
    first: tuple[str, bool], second: tuple[str, bool], verdict: Verdict
) -> None:
    stage = Stage()
    stage.end(first, second)
    assert stage.consider() is verdict


def test_nothing_is_run_again_before_the_attempt_is_over() -> None:
    stage = Stage()
    stage.life(stage.github.jobs_of(stage.run)[0], "failure", interrupted=True)
    assert stage.consider() is Verdict.NOT_YET
    stage.life(stage.github.jobs_of(stage.run)[1], "success", interrupted=False)
    assert stage.consider() is Verdict.RETRY


def test_an_interruption_before_the_machine_that_it_ran_on_explains_nothing() -> None:
    stage = Stage(JobPlan("one"))
    [job] = stage.github.jobs_of(stage.run)
    stage.tell(job, InternalType.SCHEDULED)
    stage.tell(job, InternalType.INTERRUPTED)
    stage.tell(job, InternalType.RESCHEDULED, attempt=2, lifecycle="on-demand")
    stage.github.start(job, "runner")
    stage.clock.sleep(30)
    stage.github.finish(job, "failure")
    stage.clock.sleep(30)
    assert stage.consider() is Verdict.NO


def test_deployments_are_run_again_only_by_choice() -> None:
    stage = Stage(JobPlan("deploy", environment="production"))
    [job] = stage.github.jobs_of(stage.run)
    stage.github.approve(job)
    stage.clock.sleep(10)
    stage.life(job, "failure", interrupted=True)
    assert stage.consider() is Verdict.NO
    assert stage.consider(RetryPolicy(with_deployments=True)) is Verdict.RETRY


def test_caps_hold() -> None:
    stage = Stage()
    stage.end()
    assert stage.consider(RetryPolicy(is_enabled=False)) is Verdict.NO
    assert stage.consider(RetryPolicy(attempts_most=1)) is Verdict.NO
    assert stage.consider(RetryPolicy(per_repository_and_day_most=0)) is Verdict.NO
    assert stage.run.attempt == 1


def test_a_day_that_is_full_is_told_on_the_run_and_holds_for_its_repository_alone() -> None:
    stage, policy = Stage(), RetryPolicy(per_repository_and_day_most=1)
    stage.end()
    assert stage.consider(policy) is Verdict.RETRY
    stage.run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one"), JobPlan("two")])
    stage.clock.sleep(10)
    stage.end()
    assert stage.consider(policy) is Verdict.NO
    retry = (queries.run(stage.store, stage.key) or {})["retry"]
    assert retry["state"] == "refused"
    assert retry["because"] == "today's cap of its repository is reached: AUTO_RETRY_DAILY=1"
    assert not wants_on_demand(stage.store, replace(stage.key, run_attempt=2))
    stage.run = stage.github.start_run(INSTALLATION, "a/c", [JobPlan("one"), JobPlan("two")])
    stage.clock.sleep(10)
    stage.end()
    assert stage.consider(policy) is Verdict.RETRY


def test_the_next_day_begins_anew() -> None:
    stage, policy = Stage(), RetryPolicy(per_repository_and_day_most=1)
    for _ in range(2):
        stage.run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one"), JobPlan("two")])
        stage.clock.sleep(10)
        stage.end()
        assert stage.consider(policy) is Verdict.RETRY
        stage.clock.sleep(86_400)


def test_a_claim_that_is_taken_up_after_midnight_counts_on_its_own_day_alone() -> None:
    stage, policy = Stage(), RetryPolicy(per_repository_and_day_most=1)
    stage.end()
    midnight = Instant.from_iso(f"{stage.clock.now().plus(86_400).date()}T00:00:00Z")
    stage.clock.sleep(midnight.seconds_since(stage.clock.now()) - 30)

    def die(call: PortCall, _moment: Moment) -> None:
        if call.method == "rerun_failed_jobs":
            raise Killed

    with pytest.raises(Killed):
        stage.consider(policy, Gate(die))
    stage.clock.sleep(RESUME_SECONDS + 1)
    assert stage.consider(policy) is Verdict.RETRY
    stage.run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one"), JobPlan("two")])
    stage.clock.sleep(10)
    stage.end()
    assert stage.consider(policy) is Verdict.RETRY, "the new day has its own"


@pytest.mark.parametrize("how", ["killed before", "killed after", "answer lost"])
@pytest.mark.parametrize("victim", range(14))
def test_killed_at_any_call_it_is_run_again_once_in_the_end(victim: int, how: str) -> None:
    """Nor does it use up the day: what takes up the claim is counted once."""
    stage = Stage()
    stage.end()

    def hook(call: PortCall, moment: Moment) -> None:
        if call.number == victim and moment is (Moment.BEFORE if how == "killed before" else Moment.AFTER):
            raise GitHubUnavailable("no answer") if how == "answer lost" and call.port == "github" else Killed

    for gate in (Gate(hook), None, None):
        with suppress(Killed, GitHubUnavailable):
            stage.consider(RetryPolicy(per_repository_and_day_most=1), gate)
        stage.clock.sleep(RESUME_SECONDS + 1)
        assert stage.run.attempt <= 2
    assert stage.run.attempt == 2
    found = queries.run(stage.store, stage.key)
    assert found is not None
    assert found["retry"]["state"] == "requested"


def test_a_failure_whose_webhook_was_lost_is_known_before_anything_is_run_again() -> None:
    """The second job failed by itself; its webhooks never came, and the run's did."""
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
    assert stage.consider() is not Verdict.RETRY
    assert stage.run.attempt == 1


def test_a_refusal_is_final() -> None:
    stage = Stage()
    stage.end()

    def refuse(call: PortCall, moment: Moment) -> None:
        if call.method == "rerun_failed_jobs" and moment is Moment.BEFORE:
            raise GitHubRefused("somebody has begun another attempt by hand", 403)

    assert stage.consider(gate=Gate(refuse)) is Verdict.NO
    stage.clock.sleep(600)
    assert stage.consider() is Verdict.NO
    assert stage.run.attempt == 1


def test_github_is_not_asked_while_it_says_that_the_attempt_is_not_over() -> None:
    """It would refuse, and a refusal is final. We may lack a job that it has not told us of."""
    stage = Stage()
    stage.end()
    stage.run.status = "in_progress"
    assert stage.consider() is Verdict.NOT_YET
    stage.run.status = "completed"
    assert stage.consider() is Verdict.RETRY
    assert stage.run.attempt == 2


def test_a_claim_of_another_process_is_left_alone_for_a_while() -> None:
    stage = Stage()
    stage.end()

    def die(call: PortCall, moment: Moment) -> None:
        if call.method == "rerun_failed_jobs":
            raise Killed

    with pytest.raises(Killed):
        stage.consider(gate=Gate(die))
    assert stage.consider() is Verdict.NOT_YET
    assert stage.run.attempt == 1


def test_two_who_take_up_a_claim_at_once_do_not_settle_it_as_refused() -> None:
    """One of them has it run again and dies; the other, refused for that, would say that it was not."""
    stage = Stage()
    stage.end()

    def killed_at(method: str, when: Moment) -> Gate:
        def die(call: PortCall, moment: Moment) -> None:
            if call.method == method and moment is when:
                raise Killed

        return Gate(die)

    with pytest.raises(Killed):
        stage.consider(gate=killed_at("rerun_failed_jobs", Moment.BEFORE))
    stage.clock.sleep(RESUME_SECONDS + 1)

    def meanwhile(call: PortCall, moment: Moment) -> None:
        if call.port == "github" and call.method == "run" and moment is Moment.AFTER:
            with suppress(Killed):
                stage.consider(gate=killed_at("rerun_failed_jobs", Moment.AFTER))

    stage.consider(gate=Gate(meanwhile))
    stage.clock.sleep(RESUME_SECONDS + 1)
    stage.consider()
    assert stage.run.attempt == 2
    assert (queries.run(stage.store, stage.key) or {})["retry"]["state"] == "requested"


def test_a_job_that_ended_well_before_its_machine_was_gone_does_not_hide_one_that_did_not() -> None:
    stage = Stage()
    stage.end(("success", True), ("failure", True))
    found = retry_interrupted(
        stage.store, stage.github, INSTALLATION, RetryPolicy(), stage.clock.now(), Budget(RETRY_CALLS_MOST)
    )
    assert (found.runs, stage.run.attempt) == ([replace(stage.key, run_attempt=1)], 2)


def test_a_claim_that_came_while_another_sweep_looked_is_taken_up_by_the_next() -> None:
    """The slow one finds a claim on its second look. GitHub did not answer the claimant, so it is not dealt with."""
    stage = Stage()
    stage.end()

    def no_answer(call: PortCall, moment: Moment) -> None:
        if call.method == "rerun_failed_jobs" and moment is Moment.BEFORE:
            raise GitHubUnavailable("no answer")

    def slow(call: PortCall, moment: Moment) -> None:
        if call.method == "jobs_of_run" and moment is Moment.AFTER:
            assert stage.consider(gate=Gate(no_answer)) is Verdict.NOT_YET

    sweep = partial(retry_interrupted, installation=INSTALLATION, policy=RetryPolicy())
    slowed = Gate(slow)
    store, github = slowed.wrapped(stage.store, "store"), slowed.wrapped(stage.github, "github")
    assert sweep(store, github, now=stage.clock.now(), budget=Budget(99)).runs == []
    stage.clock.sleep(RESUME_SECONDS + 1)
    assert sweep(stage.store, stage.github, now=stage.clock.now(), budget=Budget(99)).runs == [stage.key]
    assert stage.run.attempt == 2


@pytest.mark.parametrize("at", ["run", "jobs_of_run"])
def test_who_finds_it_run_again_leaves_the_note_to_whoever_claimed_it(at: str) -> None:
    """One claims, and GitHub's answer is lost; another one, who looked before that, sees a later attempt."""
    stage = Stage()
    stage.end()
    sweep = partial(retry_interrupted, installation=INSTALLATION, policy=RetryPolicy())

    def lose(call: PortCall, moment: Moment) -> None:
        if call.method == "rerun_failed_jobs" and moment is Moment.AFTER:
            raise GitHubUnavailable("the answer was lost")

    meetings = iter([True])

    def meet(call: PortCall, moment: Moment) -> None:
        if call.method == at and moment is Moment.BEFORE and next(meetings, False):
            github = Gate(lose).wrapped(stage.github, "github")
            assert sweep(stage.store, github, now=stage.clock.now(), budget=Budget(100)).runs == []

    github = Gate(meet).wrapped(stage.github, "github")
    assert sweep(stage.store, github, now=stage.clock.now(), budget=Budget(100)).runs == []
    assert stage.run.attempt == 2
    run = queries.run(stage.store, stage.key)
    assert run is not None
    assert run["retry"]["state"] == "intended"
    stage.clock.sleep(RESUME_SECONDS)
    assert sweep(stage.store, stage.github, now=stage.clock.now(), budget=Budget(100)).runs == [stage.key]
    run = queries.run(stage.store, stage.key)
    assert run is not None
    assert (run["retry"]["state"], stage.run.attempt) == ("requested", 2)


def test_a_claim_is_found_again_though_the_note_that_led_to_it_was_taken_away() -> None:
    """By one who looked before, and found nothing to be done."""
    stage = Stage()
    stage.end()
    [_, failed] = stage.github.jobs_of(stage.run)

    def meanwhile(call: PortCall, moment: Moment) -> None:
        if call.method == "transact" and moment is Moment.BEFORE:
            stage.store.delete(LOGS, note_key(JobKey(INSTALLATION, failed.id)))
        if call.method == "rerun_failed_jobs" and moment is Moment.AFTER:
            raise GitHubUnavailable("the answer was lost")

    assert stage.consider(gate=Gate(meanwhile)) is Verdict.NOT_YET
    stage.clock.sleep(RESUME_SECONDS)
    found = retry_interrupted(
        stage.store, stage.github, INSTALLATION, RetryPolicy(), stage.clock.now(), Budget(RETRY_CALLS_MOST)
    )
    assert found.runs == [stage.key]


@pytest.mark.parametrize(
    ("method", "error"), [("rerun_failed_jobs", GitHubUnavailable("502")), ("jobs_of_run", GitHubRefused("no", 403))]
)
def test_a_run_of_many_interrupted_jobs_that_has_to_wait_is_looked_at_once_a_sweep(
    method: str, error: Exception
) -> None:
    """What it would use up, the runs after it would lack."""
    stage = Stage(*[JobPlan(str(number)) for number in range(10)])
    for job in stage.github.jobs_of(stage.run):
        stage.life(job, "failure", interrupted=True)

    def fail(call: PortCall, moment: Moment) -> None:
        if call.method == method and moment is Moment.BEFORE:
            raise error

    budget = Budget(99)
    github = Gate(fail).wrapped(stage.github, "github")
    assert retry_interrupted(stage.store, github, INSTALLATION, RetryPolicy(), stage.clock.now(), budget).runs == []
    assert budget.calls == 99 - RETRY_CALLS_MOST
    stage.clock.sleep(RESUME_SECONDS + 1)
    found = retry_interrupted(
        stage.store, stage.github, INSTALLATION, RetryPolicy(), stage.clock.now(), Budget(RETRY_CALLS_MOST)
    )
    assert found.runs == [stage.key], "it was left to be looked at again"


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        ({"status": "completed", "retry": {"state": "intended"}}, Verdict.NOT_YET),
        ({"status": "completed", "retry": {"state": "refused"}}, Verdict.NO),
        ({"status": "completed", "open": {9}}, Verdict.NOT_YET),
        ({"status": "completed"}, Verdict.RETRY),
        ({"status": "in_progress"}, Verdict.NOT_YET),
        ({"status": "completed", "failed": {1, 2}}, Verdict.NO),
    ],
)
def test_a_run_is_over_when_github_says_so_and_no_job_is_open(run: Item, verdict: Verdict) -> None:
    """A failed job whose item is not there explains nothing either."""
    failed: Item = {
        "conclusion": "failure",
        "was_interrupted": True,
        "interrupted_attempt": 1,
        "scheduling_attempt": 1,
        "completed_at": CREATED.iso_seconds(),
    }
    whole = {"failed": {1}, "done": {1}} | run
    assert (
        decided(whole, RunKey(INSTALLATION, RunId(1), 1), [failed], RetryPolicy(), CREATED.plus(5)).verdict is verdict
    )


class Closed:
    """GitHub, where a repository is closed to us."""

    def __init__(self, github: SimulatedGitHub) -> None:
        self._github = github

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._github, name)

        def asked(installation: InstallationId, repository: str, *which: Any) -> Any:
            if repository == "a/closed":
                raise GitHubRefused("no", 403)
            return ask(installation, repository, *which)

        return asked


def test_runs_that_github_refuses_to_tell_of_do_not_use_up_the_calls_of_all_others_for_good() -> None:
    """A repository may be closed to us, and its jobs stay noted for days."""
    stage = Stage()
    closed = [stage.github.start_run(INSTALLATION, "a/closed", [JobPlan("one")]) for _ in range(6)]
    open_ = [stage.github.start_run(INSTALLATION, "a/open", [JobPlan("one")]) for _ in range(2)]
    for run in (*closed, *open_):
        stage.life(stage.github.jobs_of(run)[0], "failure", interrupted=True)

    github: Any = Closed(stage.github)
    found: list[RunKey] = []
    for _ in range(30):
        budget = Budget(2 * RETRY_CALLS_MOST)  # for two of the eight
        found += retry_interrupted(stage.store, github, INSTALLATION, RetryPolicy(), stage.clock.now(), budget).runs
        stage.clock.sleep(300)
    assert sorted(key.run_id for key in found) == sorted(run.id for run in open_)
