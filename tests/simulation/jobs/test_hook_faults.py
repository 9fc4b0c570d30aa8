"""Faults of GitHub and of the runner fleet: each happens in a run, and does what its name says."""

from collections import Counter
from dataclasses import replace

import pytest

from holdfast.entrypoints.simulation.program import HoldfastProgram
from holdfast.kernel.instants import Instant
from holdfast.simulator.proof.faults import DrawnFaults, FaultKind
from holdfast.simulator.proof.github.job_facts import JobFacts
from holdfast.simulator.proof.github.plans import INTERRUPTED, GitHubPlan, JobScript, RunScript
from holdfast.simulator.proof.run import Run
from holdfast.simulator.proof.scenarios import SCENARIOS
from tools.planted.scripts import NamedFaults


def lived(scenario: str, kind: FaultKind) -> tuple[Run, JobFacts]:
    """The scenario with this fault wherever it can happen; nothing breaks."""
    run = Run(HoldfastProgram(), SCENARIOS[scenario](), DrawnFaults(1, {kind: 1.0}))
    outcome = run.outcome()
    assert outcome.invariants == []
    assert outcome.faults[kind] > 0
    facts = run.recorder.facts.jobs
    assert facts is not None
    return run, facts


def deliveries(jobs: JobFacts, name: str) -> set[str]:
    """The ids of the deliveries in the history of the job with this name."""
    found = next(job for job in jobs.github.jobs.values() if job.name == name)
    return {entry["delivery"] for entry in jobs.history(found) if "delivery" in entry}


@pytest.mark.parametrize(("size", "entries"), [(0.1, 1), (0.9, 2)])
def test_two_hooks_send_each_event_under_two_ids_and_the_log_has_the_apps_alone(size: float, entries: int) -> None:
    """Equal bodies are one event. An organisation's hook names no installation, so its body is another one."""
    plain, _ = lived("plain-job", FaultKind.SKEW)
    draws = {(FaultKind.HOOK_TARGETS, f"hook-{number}"): size for number in range(100)}
    run = Run(HoldfastProgram(), SCENARIOS["plain-job"](), NamedFaults({}, draws))
    assert run.outcome().invariants == []
    jobs = run.recorder.facts.jobs
    assert run.github is not None
    assert plain.github is not None
    assert jobs is not None
    assert run.github.delivered > plain.github.delivered
    assert len(run.github.log) == plain.github.delivered
    for job in (job for job in jobs.github.jobs.values() if job.started is not None):
        types = [entry["event_type"] for entry in jobs.history(job)]
        assert types.count("webhook_completed") == entries
    assert {table_key.partition("#")[0] for table_key, _ in jobs.recorded} == {"7"}


def test_all_webhooks_of_a_run_that_ended_days_ago_are_tracked_as_its_own() -> None:
    """They arrive at once, after those of runs that began later."""
    setup = replace(SCENARIOS["plain-job"](), safety_seconds=3600)
    run = Run(HoldfastProgram(), setup, DrawnFaults(1, {FaultKind.HOOK_DAYS_LATE: 1.0}))
    assert run.outcome().invariants == []
    jobs = run.recorder.facts.jobs
    assert jobs is not None
    (past,) = [job for job in jobs.github.jobs.values() if job.name == "nightly"]
    item = jobs.job_item(past) or {}
    assert (item["status"], item["conclusion"]) == ("completed", "failure")
    assert past.completed is not None
    assert Instant.from_iso(item["completed_at"]).seconds_since(past.completed) < 1
    assert setup.start.seconds_since(past.completed) > 80_000


def test_the_job_on_a_stolen_machine_is_the_one_that_its_interruption_takes_down() -> None:
    """Two jobs get each other's machines, and EC2 reclaims one: the job on it is re-run, by the runner's name."""
    jobs = (JobScript("a", (INTERRUPTED, "success"), run_seconds=300), JobScript("b", run_seconds=400))
    setup = replace(SCENARIOS["plain-job"](), heal_seconds=3600, github=GitHubPlan((RunScript(5, (jobs,)),)))
    run = Run(HoldfastProgram(), setup, DrawnFaults(1, {FaultKind.RUNNER_STOLEN: 1.0}))
    assert run.outcome().invariants == []
    facts = run.recorder.facts.jobs
    assert facts is not None
    [tracked] = facts.github.runs.values()
    first, second = tracked.jobs_of(1)
    assert (tracked.attempt, facts.interrupted, facts.unseen) == (2, {first.id}, set())
    mine, other = facts.job_item(first) or {}, facts.job_item(second) or {}
    assert other["instance_id"] in mine["runner_name"]
    assert mine["instance_id"] in other["runner_name"]


def test_a_webhook_that_comes_an_hour_late_changes_no_job_back() -> None:
    _, jobs = lived("plain-job", FaultKind.HOOK_HOURS_LATE)
    for job in jobs.github.jobs.values():
        assert (jobs.job_item(job) or {}).get("status") == job.status == "completed"


def test_a_rescheduled_job_has_the_second_runner_whatever_the_first_one_says_later() -> None:
    _, jobs = lived("plain-job", FaultKind.RESCHEDULED)
    ran = [job for job in jobs.github.jobs.values() if job.started is not None]
    assert ran
    for job in ran:
        item = jobs.job_item(job) or {}
        assert item["scheduling_attempt"] == 2
        assert int(item["instance_id"].removeprefix("i-"), 16) == job.id + (1 << 40)


def test_the_events_of_a_deployment_are_taken_beside_those_of_its_job() -> None:
    run, _ = lived("gated-job", FaultKind.DEPLOYMENT_EVENTS)
    sent = "\n".join(run.story.lines())
    assert "deployment created of" in sent
    assert "deployment_status created of" in sent


def test_a_failed_delivery_that_appears_in_the_log_late_is_requested_all_the_same() -> None:
    run, _ = lived("lost-webhook", FaultKind.LOG_LATE)
    assert run.github is not None
    ids = [record.id for record in run.github.log]
    assert ids != sorted(ids), "it is in the log after records with higher ids"
    lost = {record.guid for record in run.github.log if not record.is_success}
    assert lost <= run.github.redelivered


def test_a_matrix_of_256_jobs_is_tracked_whatever_its_webhooks_meet() -> None:
    """GitHub's limit for one matrix: three pages of jobs, and a run whose counters name them all."""
    setup = SCENARIOS["plain-job"]()
    jobs = tuple(JobScript(f"test {number}", ("success", "failure")[number % 2 :]) for number in range(256))
    setup = replace(setup, heal_seconds=3600, github=GitHubPlan((RunScript(5, (jobs,)),)))
    rates = {FaultKind.HOOK_LOST: 0.2, FaultKind.HOOK_LATE: 0.1, FaultKind.HOOK_TWICE: 0.1, FaultKind.KILL_AFTER: 0.01}
    run = Run(HoldfastProgram(), setup, DrawnFaults(1, rates))
    outcome = run.outcome()
    assert outcome.invariants == []
    assert outcome.faults[FaultKind.HOOK_LOST] > 50
    facts = run.recorder.facts.jobs
    assert facts is not None
    [large] = facts.github.runs.values()
    counted = facts.counted_jobs(large, 1).values()
    assert Counter((job["status"], job["conclusion"]) for job in counted) == {
        ("completed", "success"): 128,
        ("completed", "failure"): 128,
    }
