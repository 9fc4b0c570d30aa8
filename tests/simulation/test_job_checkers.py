"""Each checker of the job tracker can fail: on a scene made for it, where it alone does, and on broken code."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.entrypoints.simulation.program import HoldfastProgram
from holdfast.jobs.model.job import quick
from holdfast.jobs.sweep.polling import PollResult
from holdfast.jobs.sweep.retry import RetryDecision, RetryVerdict, consider
from holdfast.kernel.ids import InstallationId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Key, Table
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, RUNS, STATE
from holdfast.simulator.checkers import JOBS as JOB_CHECKERS
from holdfast.simulator.proof.effects import EffectRecorder
from holdfast.simulator.proof.facts import Facts
from holdfast.simulator.proof.faults import ScriptedFaults
from holdfast.simulator.proof.github.job_facts import JobFacts
from holdfast.simulator.proof.github.plans import INTERRUPTED, GitHubPlan, JobScript, RunScript
from holdfast.simulator.proof.numbers import Numbers
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.proof.run import Run
from holdfast.simulator.proof.scenarios import SCENARIOS
from holdfast.simulator.proof.story import Story
from holdfast.simulator.proof.swarm import Setup
from holdfast.simulator.world.github_objects import JobPlan, SimJob, SimRun, Webhook
from holdfast.simulator.world.timeline import Timeline
from tests.support.simulated_github import UnreliableGitHub

START = Instant.from_iso("2026-01-15T08:00:00Z")


class Scene:
    """A run of two jobs at GitHub, one done and one waiting for a review, all of it stored."""

    def __init__(self) -> None:
        self.timeline = Timeline(START)
        self.store = memory_store(self.timeline)
        chance = random.Random(1)
        self.github = UnreliableGitHub(self.timeline, chance, lambda _: "", lambda _headers, _body: 200)
        facts = Facts(Numbers(), self.timeline.now, lambda _: [])
        self.jobs = facts.jobs = JobFacts(self.github, self.store, GitHubPlan())
        self.recorder = EffectRecorder(facts, Story(), JOB_CHECKERS)
        self.by = Process("sweep-1", 1, START)
        plans = [JobPlan("test"), JobPlan("deploy", "production")]
        self.run = self.github.start_run(InstallationId(7), "acme/api", plans)
        self.job, self.gated = self.run.jobs
        self.github.finish(self.job, "success")
        self.timeline.sleep(10)
        for job in self.run.jobs:
            self.write_job(job)
            self.write_event(job)
            self.write(RUNS, f"7#{self.run.id}#1", f"job#{job.id}")
        self.write_run(status="in_progress", rk=2)
        self.write(DEPLOYMENTS, f"7#{self.gated.deployment_id}", status="pending")

    @property
    def broken(self) -> set[str]:
        return {violation.invariant for violation, _ in self.recorder.violations}

    def write(self, table: Table, partition: str, sort: str = "v", **values: Any) -> None:
        key = table.key_of({"PK": partition, "SK": sort})
        old = self.store.get(table, key)
        new = {**(old or {}), "PK": partition, "SK": sort, **values}
        new = {name: value for name, value in new.items() if value != frozenset()}  # no store keeps an empty set
        self.store.put(table, new)
        self.recorder.item_written(self.by, table.name, old, new)

    def write_job(self, job: SimJob, **values: Any) -> None:
        usual = {
            "status": job.status,
            "rk": 3 if job.status == "completed" else 1,
            "dl": frozenset({"mark"}),
            "created_at": job.created.iso_seconds(),
            "GSI1-PK": f"7#{values.get('status', job.status)}",
            "GSI2-PK": "7#acme/api",
            "GSI3-PK": f"7#{job.run_id}#{job.run_attempt}",
        }
        if job.conclusion:
            usual["conclusion"] = job.conclusion
        self.write(JOBS, f"7#{job.id}", **{**usual, **values})

    def write_event(self, job: SimJob, sort: str = "1#queued", delivery: str = "") -> None:
        self.write(JOB_EVENTS, f"7#{job.id}", sort, delivery=delivery or f"delivery of {job.id}")

    def write_run(self, attempt: int = 1, **values: Any) -> None:
        self.write(RUNS, f"7#{self.run.id}#{attempt}", **values)

    def sent(self, event: str, job: SimJob | None = None) -> Webhook:
        return Webhook(1, event, "completed", "a delivery", b"", self.run, 1, job)

    def interrupt_all(self) -> None:
        """EC2 interrupts the machine of the gated job's neighbour, which fails with it."""
        self.job.conclusion = "failure"
        self.github.finish(self.gated, "success")
        self.timeline.sleep(10)
        self.jobs.interrupted.add(self.job.id)
        self.write_job(self.job)
        self.write_job(self.gated)
        self.write(RUNS, f"7#{self.run.id}#1", rk=3)

    def fill_the_day(self, retries: int, repository: str = "acme/api") -> None:
        """That many other runs were re-run today."""
        for number in range(retries):
            other = SimRun(RunId(10_000 + number), InstallationId(7), repository, START, 0)
            self.github.runs[other.id] = other
            self.jobs.rerun[other.id, 1] = START

    def heal(self, seconds: float = 7200) -> None:
        self.timeline.sleep(seconds)
        self.recorder.healed()


BREAKS: dict[str, Callable[[Scene], None]] = {}


def breaks(checker: str) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    def registered(scene: Callable[[Scene], None]) -> Callable[[Scene], None]:
        assert checker not in BREAKS
        BREAKS[checker] = scene
        return scene

    return registered


@breaks("OncePerDelivery")
def _(scene: Scene) -> None:
    scene.write_event(scene.job, delivery="another delivery")


@breaks("NoFactLost")
def _(scene: Scene) -> None:
    scene.recorder.acknowledged(scene.by, scene.sent("workflow_job", scene.job))


@breaks("StatusMonotone")
def _(scene: Scene) -> None:
    scene.write_job(scene.job, status="in_progress", rk=2)


@breaks("CountersExact")
def _(scene: Scene) -> None:
    for gate in ("1#production", "2#production"):
        scene.write(RUNS, f"7#{scene.run.id}#1", f"job#{scene.gated.id}", gates=frozenset({gate}))


@breaks("IndexAgrees")
def _(scene: Scene) -> None:
    scene.write_job(scene.job, **{"GSI1-PK": "7#queued"})


@breaks("AttemptIsolated")
def _(scene: Scene) -> None:
    scene.write_job(scene.job, **{"GSI3-PK": f"7#{scene.run.id}#2"})


@breaks("TenantIsolated")
def _(scene: Scene) -> None:
    scene.write_job(scene.job, **{"GSI2-PK": "8#acme/api"})


@breaks("DecisionOnce")
def _(scene: Scene) -> None:
    deployment = f"7#{scene.gated.deployment_id}"
    scene.write(DEPLOYMENTS, deployment, status="rejected")
    scene.write(DEPLOYMENTS, deployment, status="approved")


@breaks("ItemBound")
def _(scene: Scene) -> None:
    scene.write_job(scene.job, labels="x" * 4096)


@breaks("RunDoneOnce")
def _(scene: Scene) -> None:
    for state in ("intended", "requested", "refused"):
        scene.write_run(retry={"state": state})


@breaks("RetryOnce")
def _(scene: Scene) -> None:
    scene.interrupt_all()
    scene.recorder.rerun_requested(scene.by, scene.run, 1)


@breaks("RetryJust")
def _(scene: Scene) -> None:
    scene.interrupt_all()
    scene.jobs.interrupted.clear()
    scene.write_run(retry={"state": "intended"})
    scene.recorder.rerun_requested(scene.by, scene.run, 1)


@breaks("RetryCapped")
def _(scene: Scene) -> None:
    scene.interrupt_all()
    scene.write_run(retry={"state": "intended"})
    scene.fill_the_day(20)
    scene.recorder.rerun_requested(scene.by, scene.run, 1)


@breaks("RetryOnDemand")
def _(scene: Scene) -> None:
    scene.interrupt_all()
    scene.write_run(retry={"state": "intended"})
    scene.recorder.rerun_requested(scene.by, scene.run, 1)
    scene.github.rerun(scene.run)
    scene.recorder.scheduled(scene.by, scene.run.jobs[-1], "spot")


@breaks("RetryLive")
def _(scene: Scene) -> None:
    scene.interrupt_all()
    scene.heal()


@breaks("CursorKept")
def _(scene: Scene) -> None:
    scene.github.deliver = lambda _headers, _body: 503
    scene.github.start(scene.gated, "runner")
    scene.timeline.sleep(10)
    last = scene.github.log[-1].id
    scene.recorder.state_written(scene.by, "github#cursor#42", "cluster", None, {"high": last})


@breaks("NoSilentStuck")
def _(scene: Scene) -> None:
    scene.write_job(scene.gated, status="queued")
    scene.heal()


def test_every_checker_has_a_scene_in_which_it_fails() -> None:
    assert set(BREAKS) == {checker.name for checker in JOB_CHECKERS}


@pytest.mark.parametrize("name", BREAKS)
def test_a_checker_alone_fails_on_the_violation_it_is_there_for(name: str) -> None:
    scene = Scene()
    assert scene.broken == set()
    BREAKS[name](scene)
    assert scene.broken == {name}


def test_a_correctly_stored_run_violates_nothing() -> None:
    scene = Scene()
    scene.heal()
    assert scene.broken == set()


# In the end: the same invariants, when no checker saw the wrong write


def test_a_delivery_stored_twice_in_a_history_is_found_in_the_end() -> None:
    scene = Scene()
    scene.write_event(scene.job, "2#queued")
    assert scene.broken == set()
    scene.heal()
    assert scene.broken == {"OncePerDelivery"}


def test_a_job_that_was_never_stored_is_found_in_the_end() -> None:
    scene = Scene()
    lost = scene.github.add_job(scene.run, JobPlan("lost"))
    scene.write(RUNS, f"7#{scene.run.id}#1", f"job#{lost.id}")
    scene.heal()
    assert scene.broken == {"NoFactLost"}


def test_a_review_that_was_never_stored_is_found_in_the_end() -> None:
    scene = Scene()
    scene.github.approve(scene.gated)
    scene.write_job(scene.gated)
    scene.heal()
    assert scene.broken == {"NoFactLost"}


def test_a_job_that_is_not_counted_is_found_in_the_end() -> None:
    scene = Scene()
    scene.store.delete(RUNS, Key(f"7#{scene.run.id}#1", f"job#{scene.gated.id}"))
    scene.heal()
    assert scene.broken == {"CountersExact"}


def test_an_unsettled_claim_is_found_in_the_end() -> None:
    scene = Scene()
    scene.write_run(retry={"state": "intended"})
    scene.heal()
    assert scene.broken == {"RunDoneOnce"}


def test_recent_changes_need_not_be_stored_yet() -> None:
    scene = Scene()
    scene.github.add_job(scene.run, JobPlan("new"))
    scene.heal(60)
    assert scene.broken == set()


def test_a_cursor_that_moves_backwards_is_found() -> None:
    scene = Scene()
    scene.recorder.state_written(scene.by, "github#cursor#42", "cluster", {"high": 9}, {"high": 8})
    assert scene.broken == {"CursorKept"}


def test_a_failed_delivery_that_was_never_requested_again_is_found_in_the_end() -> None:
    """Even if no cursor passed it: it may have appeared in the log late."""
    scene = Scene()
    failed = scene.github.log[-1]
    scene.github.log.append(replace(failed, id=1, guid="late", status_code=0))
    scene.heal(60)
    assert scene.broken == set(), "the next sweep may still request it"
    scene = Scene()
    scene.github.log.append(replace(failed, id=1, guid="late", status_code=0))
    scene.heal()
    assert "CursorKept" in scene.broken


def test_a_process_that_slept_through_an_attempt_may_request_the_next_one() -> None:
    """GitHub has no fencing."""
    scene = Scene()
    scene.interrupt_all()
    scene.timeline.sleep(60)
    scene.recorder.rerun_requested(scene.by, scene.run, 1)
    assert scene.broken == set()


@pytest.mark.parametrize(
    ("others", "repository", "retry", "broken"),
    [
        (20, "acme/api", {"state": "refused"}, set()),
        (19, "acme/api", {"state": "refused"}, {"RetryLive"}),
        (20, "acme/web", {"state": "refused"}, {"RetryLive"}),
        (20, "acme/api", {}, {"RetryLive"}),
    ],
)
def test_a_run_without_a_retry_is_excused_only_by_a_recorded_full_day(
    others: int, repository: str, retry: dict[str, str], broken: set[str]
) -> None:
    scene = Scene()
    scene.interrupt_all()
    if retry:
        scene.write_run(retry={"state": "intended"})
        scene.write_run(retry=retry)
    scene.fill_the_day(others, repository)
    scene.heal()
    assert scene.broken == broken


@pytest.mark.parametrize(("known_seconds", "broken"), [(None, set()), (10, set()), (40, {"RetryLive"})])
def test_an_interruption_on_anothers_machine_excuses_only_before_the_start_is_stored(
    known_seconds: float | None, broken: set[str]
) -> None:
    """The tracker finds the job on a machine by the name of its runner, in an index that is up to 20 s old."""
    scene = Scene()
    scene.interrupt_all()
    now = scene.timeline.now()
    if known_seconds is not None:
        item = {"PK": scene.jobs.key_of(scene.job), "runner_name": "runner"}
        scene.jobs.job_written(item, now.plus(-known_seconds))
    scene.jobs.interruption_reported(scene.job, now)
    scene.heal()
    assert scene.broken == broken


def test_a_full_day_excuses_no_run_of_another_day() -> None:
    scene = Scene()
    scene.fill_the_day(20)
    scene.timeline.sleep(86_400)
    scene.interrupt_all()
    for state in ("intended", "refused"):
        scene.write_run(retry={"state": state})
    scene.heal()
    assert scene.broken == {"RetryLive"}


# Broken code


def _rerun_without_a_claim(_store: Any, github: Any, key: Any, *_: Any) -> RetryDecision:
    github.rerun_failed_jobs(key.installation_id, "acme/api", key.run_id)
    return RetryDecision(RetryVerdict.RETRY, "at once")


def _do_not_record_a_full_day(store: Any, github: Any, key: Any, policy: Any, now: Any) -> RetryDecision:
    """As if the cap were checked before the claim, and the full day never recorded."""
    counted = store.get(STATE, Key(f"github#retries#{key.installation_id}#{now.date()}#acme/api")) or {}
    if len(counted.get("runs", ())) >= policy.per_repository_and_day_most:
        return RetryDecision(RetryVerdict.NO, "the day is full")
    return consider(store, github, key, policy, now)


def _of_one_run(*jobs: JobScript) -> Setup:
    return replace(SCENARIOS["plain-job"](), github=GitHubPlan((RunScript(5, (jobs,)),)))


_MIXED = _of_one_run(JobScript("test", (INTERRUPTED, "success")), JobScript("lint", ("failure",)))
_LATE = replace(_MIXED, github=GitHubPlan((RunScript(5, ((JobScript("test"),),)),), lost=frozenset({"hook-1"})))

_TAKEN = tuple(RunScript(5 + 10 * number, ((JobScript("test", (INTERRUPTED,)),),)) for number in range(24))
_CROWDED = replace(_MIXED, github=GitHubPlan(_TAKEN))  # more than a day's cap of them

# Which checker finds it, in which setup, and what is replaced by what.
BROKEN: dict[str, tuple[str, Setup, str, Callable[..., Any]]] = {
    "the history is not written": (
        "NoFactLost",
        SCENARIOS["plain-job"](),
        "holdfast.jobs.intake.record.write_history",
        lambda *_: None,
    ),
    "a run is not updated with its jobs": (
        "CountersExact",
        SCENARIOS["plain-job"](),
        "holdfast.jobs.intake.record._write_run",
        lambda *_: None,
    ),
    "the last write wins": (
        "StatusMonotone",
        _LATE,
        "holdfast.jobs.intake.record.quick",
        lambda event: (quick(event)[0], None),
    ),
    "reviews are thrown away": (
        "NoFactLost",
        SCENARIOS["gated-job"](),
        "holdfast.jobs.intake.handlers._write_reviews",
        lambda *_: True,
    ),
    "no redelivery is requested": (
        "CursorKept",
        SCENARIOS["lost-webhook"](),
        "holdfast.jobs.sweep.lost_webhooks.is_worth_redelivery",
        lambda *_: False,
    ),
    "GitHub is not queried for runs": (
        "NoSilentStuck",
        SCENARIOS["unannounced-job"](),
        "holdfast.jobs.sweep.github_sweeps.poll_runs",
        lambda *_: PollResult(0, ()),
    ),
    "a run is retried without a claim": (
        "RetryOnce",
        SCENARIOS["interrupted-job"](),
        "holdfast.jobs.sweep.retry._claimed",
        _rerun_without_a_claim,
    ),
    "a run that failed by itself is retried": (
        "RetryJust",
        _MIXED,
        "holdfast.jobs.sweep.retry.failed_by_interruption",
        lambda *_: True,
    ),
    "the next attempt gets spot machines as well": (
        "RetryOnDemand",
        SCENARIOS["interrupted-job"](),
        "holdfast.entrypoints.simulation.program.wants_on_demand",
        lambda *_: False,
    ),
    "the day is never full": (
        "RetryCapped",
        _CROWDED,
        "holdfast.jobs.sweep.retry._is_within_cap",
        lambda *_: True,
    ),
    "the day is full too early": (
        "RetryLive",
        SCENARIOS["interrupted-job"](),
        "holdfast.jobs.sweep.retry._is_within_cap",
        lambda *_: False,
    ),
    "a full day is not reported": (
        "RetryLive",
        _CROWDED,
        "holdfast.jobs.sweep.interrupted_jobs.consider",
        _do_not_record_a_full_day,
    ),
    "an interruption of a job's machine is not recorded": (
        "RetryLive",
        SCENARIOS["interrupted-job"](),
        "holdfast.jobs.intake.tracker.note_interrupted",
        lambda *_: None,
    ),
    "an outcome is forgotten": (
        "RunDoneOnce",
        SCENARIOS["interrupted-job"](),
        "holdfast.jobs.sweep.retry._settled",
        lambda _store, _key, _run, _state, decision: decision,
    ),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_broken_code_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checker, setup, name, wrong = BROKEN[mistake]
    whole = Run(HoldfastProgram(), setup, ScriptedFaults({})).outcome()
    assert whole.invariants == []
    monkeypatch.setattr(name, wrong)
    broken = Run(HoldfastProgram(), setup, ScriptedFaults({}), stop_at_first=False).outcome()
    assert checker in broken.invariants
