"""Run again what a spot machine took down. Decided purely; claimed durably; never twice for one attempt of a run.

    nothing ─ claim ─▶ intended ─ GitHub accepts ─▶ requested
                          ├────── GitHub refuses ─▶ refused
                          └────── the day is full ─▶ refused

The claim is a conditional write on the run, made before GitHub is asked. Whoever finds `intended` cannot know whether
GitHub was asked: it takes the claim over, reads the run's attempt, and asks only if that has not moved. The jobs of the
next attempt get on-demand machines.

A note leads to the run (`interrupted.py`). The claim is written together with one, and no note is taken away while a
claim is open: another process may have seen the run just before, and be done with it.

The day's cap is counted after the claim, by name: whoever takes up a claim counts it no second time.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.jobs.budget import Budget
from holdfast.jobs.durations import moments_of
from holdfast.jobs.facts import FAILED
from holdfast.jobs.keys import JobKey, RunKey
from holdfast.jobs.polling import poll_run
from holdfast.jobs.views import is_complete
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import JobId, joined_key
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHub, GitHubRefused, GitHubUnavailable, RateLimited, RunSeen
from holdfast.ports.store import Item, Key, PutItem, Store, UpdateItem, attr
from holdfast.ports.store.tables import JOBS, LOGS, RUNS, STATE

INTENDED: Final = "intended"
RESUME_SECONDS: Final = 60  # whoever claimed it may still be at it
_POLL_CALLS: Final = 5  # of 100 jobs each
_COUNT_KEPT_SECONDS: Final = 3 * 86_400
NOTE_KEPT_SECONDS: Final = 7 * 86_400  # a job runs five days at most


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a run is run again. GitHub allows 50 attempts; more than a few help nobody."""

    is_enabled: bool = True
    attempts_most: int = 3
    per_repository_and_day_most: int = 20
    quiet_seconds: int = 120
    with_deployments: bool = False


class Verdict(StrEnum):
    RETRY = "retry"
    NOT_YET = "not_yet"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Decision:
    verdict: Verdict
    because: str
    jobs: tuple[JobId, ...] = ()


def decided(run: Item, key: RunKey, failed: Sequence[Item], policy: RetryPolicy, now: Instant) -> Decision:
    """Whether to run the failed jobs of this attempt again. `failed` are the items of the run's failed jobs."""
    if not policy.is_enabled:
        return Decision(Verdict.NO, "auto-retry is switched off")
    if "retry" in run:
        state = run["retry"].get("state")
        # Whoever claimed it meanwhile may have died over it: it is not dealt with before it is settled.
        verdict = Verdict.NOT_YET if state == INTENDED else Verdict.NO
        return Decision(verdict, f"this attempt was dealt with: {state}")
    if not run.get("failed"):
        return Decision(Verdict.NO, "no job has failed")
    if policy.per_repository_and_day_most < 1:
        return Decision(Verdict.NO, "no run of a repository is run again: AUTO_RETRY_DAILY is 0")
    if key.run_attempt >= policy.attempts_most:
        return Decision(Verdict.NO, f"attempt {key.run_attempt} of at most {policy.attempts_most}")
    if not _is_over(run, failed, policy, now):
        return Decision(Verdict.NOT_YET, "the attempt is not over")
    others = [job for job in failed if not was_taken_down(job)]
    if others or len(failed) < len(run["failed"]):
        return Decision(Verdict.NO, "a job failed that no interruption explains")
    if not policy.with_deployments and any("deployment_id" in job for job in failed):
        return Decision(Verdict.NO, "a failed job has a deployment, and those are not run again by themselves")
    return Decision(Verdict.RETRY, "EC2 took the machines of all failed jobs", tuple(sorted(run["failed"])))


def was_taken_down(job: Item) -> bool:
    """Whether the machine that the job ran on was taken: not one that it had been given before."""
    return (
        job.get("conclusion") in FAILED
        and bool(job.get("was_interrupted"))
        and job.get("interrupted_attempt") == job.get("scheduling_attempt")
        and job.get("instance_lifecycle", "spot") == "spot"
    )


def _is_over(run: Item, failed: Sequence[Item], policy: RetryPolicy, now: Instant) -> bool:
    """No job is open, and GitHub said that it is over, or none has come for a while: a run may pause between stages."""
    if run.get("status") == "completed":
        return not run.get("open")
    ends = [moments.completed for moments in map(moments_of, failed) if moments.completed is not None]
    return is_complete(run) and bool(ends) and now.seconds_since(max(ends)) >= policy.quiet_seconds


def consider(store: Store, github: GitHub, key: RunKey, policy: RetryPolicy, now: Instant) -> Decision:
    """Look at the run, and run it again if it is to be. Repeating this at any time does no harm."""
    run = store.get(RUNS, key.item)
    if run is None:
        return Decision(Verdict.NO, "the run is not known")
    retry = run.get("retry", {})
    if retry.get("state") == INTENDED:
        if now.seconds_since(Instant.from_iso(retry["at"])) < RESUME_SECONDS:
            return Decision(Verdict.NOT_YET, "another process is at it")
        return _resumed(store, github, key, run, policy, now)
    decision = decided(run, key, _failed_jobs(store, key, run), policy, now)
    if decision.verdict is not Verdict.RETRY:
        return decision
    # A failure whose webhook was lost would not be seen: GitHub is asked for all jobs, and it is decided once more.
    poll_run(store, github, key, run.get("repo_full_name", ""), now, Budget(_POLL_CALLS), "retry")
    run = store.get(RUNS, key.item) or {}
    decision = decided(run, key, _failed_jobs(store, key, run), policy, now)
    if decision.verdict is not Verdict.RETRY:
        return decision
    seen = github.run(key.installation_id, run.get("repo_full_name", ""), key.run_id)
    if _has_moved(seen, key):
        # GitHub would run the latest attempt again, whatever that one failed of.
        return Decision(Verdict.NO, f"somebody has run it again: attempt {key.run_attempt} is not the latest")
    if seen is not None and seen.status != "completed":
        # It would refuse: what it has not told us of, or tells us of later, is still under way.
        return Decision(Verdict.NOT_YET, "GitHub says that the attempt is not over")
    return _claimed(store, github, key, run, decision, policy, now)


def note_key(job: JobKey) -> Key:
    return Key(joined_key("github", "interrupted", job.installation_id), str(job.job_id))


def note_of(job: JobKey, now: Instant) -> Item:
    """That this job's run is to be looked at when the job has ended."""
    key = note_key(job)
    return {"pk": key.partition, "sk": str(key.sort), "ttl": now.epoch_seconds + NOTE_KEPT_SECONDS}


def _failed_jobs(store: Store, key: RunKey, run: Item) -> list[Item]:
    keys = [JobKey(key.installation_id, JobId(number)).item for number in sorted(run.get("failed", ()))]
    return [job for job in store.batch_get(JOBS, keys, consistent=True) if job is not None] if keys else []


def _claimed(
    store: Store, github: GitHub, key: RunKey, run: Item, decision: Decision, policy: RetryPolicy, now: Instant
) -> Decision:
    claim = {"state": INTENDED, "at": now.iso(), "day": now.date(), "jobs": list(decision.jobs)}
    claimed = UpdateItem(RUNS, key.item, attr("retry").set_to(claim), attr("retry").is_absent())
    note = note_of(JobKey(key.installation_id, decision.jobs[0]), now)
    try:
        store.transact([claimed, PutItem(LOGS, note)])
    except WriteConflict:
        return Decision(Verdict.NOT_YET, "another process is at it")
    return _carried_out(store, github, key, {**run, "retry": claim}, policy, now, is_resumed=False)


def _resumed(store: Store, github: GitHub, key: RunKey, run: Item, policy: RetryPolicy, now: Instant) -> Decision:
    """Take the claim over. Of two who ask GitHub, one is refused, and might settle it as if both were."""
    claim = {**run["retry"], "at": now.iso()}
    try:
        run = store.update(RUNS, key.item, attr("retry").set_to(claim), attr("retry").equals(run["retry"])).new
    except WriteConflict:
        return Decision(Verdict.NOT_YET, "another process is at it")
    return _carried_out(store, github, key, run, policy, now, is_resumed=True)


def _carried_out(
    store: Store, github: GitHub, key: RunKey, run: Item, policy: RetryPolicy, now: Instant, *, is_resumed: bool
) -> Decision:
    repository = run.get("repo_full_name", "")
    jobs = tuple(run["retry"].get("jobs", ()))
    try:
        if is_resumed and _has_moved(github.run(key.installation_id, repository, key.run_id), key):
            return _settled(store, key, run, "requested", Decision(Verdict.RETRY, "GitHub had been asked", jobs))
        day = run["retry"].get("day", now.date())
        if not _is_within_cap(store, key, repository, policy, day, now):
            because = f"today's cap of its repository is reached: AUTO_RETRY_DAILY={policy.per_repository_and_day_most}"
            return _settled(store, key, run, "refused", Decision(Verdict.NO, because))
        github.rerun_failed_jobs(key.installation_id, repository, key.run_id)
    except GitHubRefused as error:
        return _settled(store, key, run, "refused", Decision(Verdict.NO, f"GitHub refused: {error}"))
    except (GitHubUnavailable, RateLimited) as error:
        # Asked or not, nobody knows. The next look reads the run's attempt before it asks again.
        return Decision(Verdict.NOT_YET, f"GitHub gave no answer: {error}")
    return _settled(store, key, run, "requested", Decision(Verdict.RETRY, "EC2 took the machines", jobs))


def _settled(store: Store, key: RunKey, run: Item, state: str, decision: Decision) -> Decision:
    settled = {**run["retry"], "state": state, "because": decision.because}
    with suppress(WriteConflict):  # somebody else has settled it meanwhile: what GitHub did for them is what counts
        store.update(RUNS, key.item, attr("retry").set_to(settled), attr("retry").equals(run["retry"]))
    return decision


def _has_moved(seen: RunSeen | None, key: RunKey) -> bool:
    return seen is not None and seen.run_attempt > key.run_attempt


def _is_within_cap(store: Store, key: RunKey, repository: str, policy: RetryPolicy, day: str, now: Instant) -> bool:
    """Count the attempt against the cap of the day of its claim, once however often; False: the day is full."""
    most = policy.per_repository_and_day_most
    if most < 1:
        return False  # it was switched off meanwhile
    name = joined_key("github", "retries", key.installation_id, day, repository or "unknown")
    mark, counted = f"{key.run_id}#{key.run_attempt}", attr("runs")
    update = counted.add_elements({mark}) + attr("expiresAt").set_to(now.epoch_seconds + _COUNT_KEPT_SECONDS)
    try:
        store.update(STATE, Key(name), update, counted.contains(mark) | ~counted.is_larger_than(most - 1))
    except WriteConflict:
        return False
    return True


def wants_on_demand(store: Store, key: RunKey) -> bool:
    """Whether this attempt exists because spot failed the one before: its jobs then get on-demand machines."""
    if key.run_attempt < 2:
        return False
    before = store.get(RUNS, RunKey(key.installation_id, key.run_id, key.run_attempt - 1).item) or {}
    return before.get("retry", {}).get("state") in (INTENDED, "requested")
