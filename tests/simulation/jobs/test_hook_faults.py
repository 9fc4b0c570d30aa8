"""Faults of GitHub and of the runner fleet: each happens in a run, and does what its name says."""

from dataclasses import replace

from holdfast.entrypoints.simulation.program import HoldfastProgram
from holdfast.simulator.proof.faults import DrawnFaults, FaultKind
from holdfast.simulator.proof.github.job_facts import JobFacts
from holdfast.simulator.proof.github.plans import GitHubPlan, JobScript, RunScript
from holdfast.simulator.proof.run import Run
from holdfast.simulator.proof.scenarios import SCENARIOS


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


def test_two_hooks_send_each_event_under_two_ids_and_the_log_has_the_apps_alone() -> None:
    plain, once = lived("plain-job", FaultKind.SKEW)
    run, jobs = lived("plain-job", FaultKind.HOOK_TARGETS)
    assert run.github is not None
    assert plain.github is not None
    assert run.github.delivered == 2 * plain.github.delivered
    assert len(run.github.log) == run.github.delivered // 2
    for job in jobs.github.jobs.values():
        # The bodies are equal, so each is one event; only a job's wait in the queue may be reported twice.
        types = [entry["event_type"] for entry in jobs.history(job)]
        assert types.count("webhook_completed") == 1
        assert types.count("webhook_in_progress") == int(job.started is not None)
        assert len(deliveries(jobs, job.name)) == len(deliveries(once, job.name)) + 1


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
    counted = facts.run_item(large, 1)
    assert (len(counted["done"]), len(counted["failed"])) == (256, 128)
