"""Reruns the failed jobs of a run after spot interruptions, never twice for one attempt of the run.

    nothing ─ claim ─▶ intended ─ GitHub accepts ──▶ requested
                          ├────── GitHub refuses ──▶ refused
                          └────── daily limit met ─▶ refused

The claim is a conditional write on the run, made before the request to GitHub. A process that finds `intended` cannot
know whether the request was made: it takes over the claim, reads the run's attempt, and requests a rerun only if the
attempt has not changed. The jobs of the next attempt get on-demand machines.

A note leads to the run (`interrupted_jobs.py`). The claim is written in one transaction with a note, and no note is
removed while a claim is open: another process may have judged the run just before, and be about to remove its note.

The daily limit is counted after the claim, by the name of the attempt, so a resumed claim is not counted twice.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.jobs.model.durations import moments_of
from holdfast.jobs.model.facts import FAILED, KEPT_SECONDS
from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.jobs.model.machines import is_taken_down, with_own_machine
from holdfast.jobs.read.run_jobs import run_with_jobs
from holdfast.jobs.read.run_views import is_complete
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.polling import poll_run
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import JobId, joined_key
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHub, GitHubRefused, GitHubUnavailable, RateLimited, RunSeen
from holdfast.ports.store import Item, Key, PutItem, Store, UpdateItem, attr
from holdfast.ports.store.tables import JOBS, LOGS, RUNS, STATE

INTENDED: Final = "intended"
RESUME_SECONDS: Final = 60  # until then, the process that made the claim may still be working
PAGES_MOST: Final = 6  # of 100 jobs each
_COUNT_KEPT_SECONDS: Final = 3 * 86_400
NOTE_KEPT_SECONDS: Final = 7 * 86_400  # a job runs five days at most


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a run is rerun. GitHub allows 50 attempts; more than a few do not help."""

    is_enabled: bool = True
    attempts_most: int = 3
    per_repository_and_day_most: int = 20
    quiet_seconds: int = 120
    with_deployments: bool = False


class RetryVerdict(StrEnum):
    RETRY = "retry"
    NOT_YET = "not_yet"
    NO = "no"


@dataclass(frozen=True, slots=True)
class RetryDecision:
    verdict: RetryVerdict
    because: str
    jobs: tuple[JobId, ...] = ()


def retry_decision(run: Item, key: RunKey, failed: Sequence[Item], policy: RetryPolicy, now: Instant) -> RetryDecision:
    """Whether to rerun the failed jobs of this attempt. `failed` are their items."""
    if not policy.is_enabled:
        return RetryDecision(RetryVerdict.NO, "automatic retry is disabled")
    if "retry" in run:
        state = run["retry"].get("state")
        # The process that made the claim may have crashed: an open claim is not settled.
        verdict = RetryVerdict.NOT_YET if state == INTENDED else RetryVerdict.NO
        return RetryDecision(verdict, f"this attempt was handled before: {state}")
    if not run.get("failed"):
        return RetryDecision(RetryVerdict.NO, "no job has failed")
    if policy.per_repository_and_day_most < 1:
        return RetryDecision(RetryVerdict.NO, "automatic retry is disabled: AUTO_RETRY_DAILY is 0")
    if key.run_attempt >= policy.attempts_most:
        return RetryDecision(RetryVerdict.NO, f"attempt {key.run_attempt} of at most {policy.attempts_most}")
    if not _is_over(run, failed, policy, now):
        return RetryDecision(RetryVerdict.NOT_YET, "the attempt has not completed")
    others = [job for job in failed if not failed_by_interruption(job)]
    if others or len(failed) < len(run["failed"]):
        return RetryDecision(RetryVerdict.NO, "a job failed without an interruption")
    if not policy.with_deployments and any("deployment_id" in job for job in failed):
        return RetryDecision(RetryVerdict.NO, "a failed job has a deployment, which is not rerun automatically")
    return RetryDecision(
        RetryVerdict.RETRY, "EC2 reclaimed the machines of all failed jobs", tuple(sorted(run["failed"]))
    )


def failed_by_interruption(job: Item) -> bool:
    """Whether the job failed because its machine was interrupted: the last one, not one of an earlier attempt."""
    return (
        job.get("conclusion") in FAILED
        and bool(job.get("was_interrupted"))
        and is_taken_down(job)
        and with_own_machine(job).get("instance_lifecycle", "spot") == "spot"
    )


def _is_over(run: Item, failed: Sequence[Item], policy: RetryPolicy, now: Instant) -> bool:
    """Whether all jobs ended, and GitHub reported the end or no new job came for a while: runs pause between stages."""
    if run.get("status") == "completed":
        return not run.get("open")
    ends = [moments.completed for moments in map(moments_of, failed) if moments.completed is not None]
    return is_complete(run) and bool(ends) and now.seconds_since(max(ends)) >= policy.quiet_seconds


def consider(store: Store, github: GitHub, key: RunKey, policy: RetryPolicy, now: Instant) -> RetryDecision:
    """Check the run, and rerun it if it qualifies. Safe to repeat at any time."""
    run = run_with_jobs(store, key)
    if run is None:
        return RetryDecision(RetryVerdict.NO, "unknown run")
    retry = run.get("retry", {})
    if retry.get("state") == INTENDED:
        if now.seconds_since(Instant.from_iso(retry["at"])) < RESUME_SECONDS:
            return RetryDecision(RetryVerdict.NOT_YET, "another process is handling it")
        return _resumed(store, github, key, run, policy, now)
    decision = retry_decision(run, key, _failed_jobs(store, key, run), policy, now)
    if decision.verdict is not RetryVerdict.RETRY:
        return decision
    # The webhook of another failure may be lost: list all jobs from GitHub, then decide again.
    pages = CallBudget(PAGES_MOST)  # for those after the first: one is left if the list was complete
    poll_run(store, github, key, run.get("repo_full_name", ""), now, pages, "retry")
    if not pages.spend():
        # What is not listed may have failed, and its webhook be lost.
        return RetryDecision(RetryVerdict.NO, f"too many jobs to check all of them: {100 * PAGES_MOST} or more")
    run = run_with_jobs(store, key) or {}
    decision = retry_decision(run, key, _failed_jobs(store, key, run), policy, now)
    if decision.verdict is not RetryVerdict.RETRY:
        return decision
    seen = github.run(key.installation_id, run.get("repo_full_name", ""), key.run_id)
    if _has_moved(seen, key):
        # GitHub would rerun the latest attempt, whatever the reason of its failure.
        return RetryDecision(RetryVerdict.NO, f"already rerun: attempt {key.run_attempt} is not the latest")
    if seen is not None and seen.status != "completed":
        # GitHub would refuse: some job that we do not know of is still in progress.
        return RetryDecision(RetryVerdict.NOT_YET, "GitHub reports that the attempt has not completed")
    return _claimed(store, github, key, run, decision, policy, now)


def note_key(job: JobKey) -> Key:
    return Key(joined_key("github", "interrupted", job.installation_id), str(job.job_id))


def note_of(job: JobKey, now: Instant) -> Item:
    """The note that the job's run must be checked once the job has ended."""
    key = note_key(job)
    return {"pk": key.partition, "sk": str(key.sort), "ttl": now.epoch_seconds + NOTE_KEPT_SECONDS}


def _failed_jobs(store: Store, key: RunKey, run: Item) -> list[Item]:
    keys = [JobKey(key.installation_id, JobId(number)).item for number in sorted(run.get("failed", ()))]
    return [job for job in store.batch_get(JOBS, keys, consistent=True) if job is not None] if keys else []


def _claimed(
    store: Store, github: GitHub, key: RunKey, run: Item, decision: RetryDecision, policy: RetryPolicy, now: Instant
) -> RetryDecision:
    claim = {"state": INTENDED, "at": now.iso(), "day": now.date(), "jobs": list(decision.jobs)}
    # The run has no item of its own if workflow_run was never reported.
    update = attr("retry").set_to(claim) + attr("ttl").set_if_absent(now.epoch_seconds + KEPT_SECONDS)
    claimed = UpdateItem(RUNS, key.item, update, attr("retry").is_absent())
    note = note_of(JobKey(key.installation_id, decision.jobs[0]), now)
    try:
        store.transact([claimed, PutItem(LOGS, note)])
    except WriteConflict:
        return RetryDecision(RetryVerdict.NOT_YET, "another process is handling it")
    return _carried_out(store, github, key, {**run, "retry": claim}, policy, now, is_resumed=False)


def _resumed(store: Store, github: GitHub, key: RunKey, run: Item, policy: RetryPolicy, now: Instant) -> RetryDecision:
    """Take over the claim, so that only one process makes the request: GitHub would refuse the second."""
    claim = {**run["retry"], "at": now.iso()}
    try:
        store.update(RUNS, key.item, attr("retry").set_to(claim), attr("retry").equals(run["retry"]))
    except WriteConflict:
        return RetryDecision(RetryVerdict.NOT_YET, "another process is handling it")
    return _carried_out(store, github, key, {**run, "retry": claim}, policy, now, is_resumed=True)


def _carried_out(
    store: Store, github: GitHub, key: RunKey, run: Item, policy: RetryPolicy, now: Instant, *, is_resumed: bool
) -> RetryDecision:
    repository = run.get("repo_full_name", "")
    jobs = tuple(run["retry"].get("jobs", ()))
    try:
        if is_resumed and _has_moved(github.run(key.installation_id, repository, key.run_id), key):
            return _settled(
                store, key, run, "requested", RetryDecision(RetryVerdict.RETRY, "GitHub had accepted the request", jobs)
            )
        day = run["retry"].get("day", now.date())
        if not _is_within_cap(store, key, repository, policy, day, now):
            because = f"the repository's daily limit is reached: AUTO_RETRY_DAILY={policy.per_repository_and_day_most}"
            return _settled(store, key, run, "refused", RetryDecision(RetryVerdict.NO, because))
        github.rerun_failed_jobs(key.installation_id, repository, key.run_id)
    except GitHubRefused as error:
        return _settled(store, key, run, "refused", RetryDecision(RetryVerdict.NO, f"GitHub refused: {error}"))
    except (GitHubUnavailable, RateLimited) as error:
        # GitHub may or may not have accepted. The next check reads the run's attempt before it requests again.
        return RetryDecision(RetryVerdict.NOT_YET, f"GitHub did not respond: {error}")
    return _settled(store, key, run, "requested", RetryDecision(RetryVerdict.RETRY, "EC2 reclaimed the machines", jobs))


def _settled(store: Store, key: RunKey, run: Item, state: str, decision: RetryDecision) -> RetryDecision:
    settled = {**run["retry"], "state": state, "because": decision.because}
    with suppress(WriteConflict):  # another process has settled it; its result holds
        store.update(RUNS, key.item, attr("retry").set_to(settled), attr("retry").equals(run["retry"]))
    return decision


def _has_moved(seen: RunSeen | None, key: RunKey) -> bool:
    return seen is not None and seen.run_attempt > key.run_attempt


def _is_within_cap(store: Store, key: RunKey, repository: str, policy: RetryPolicy, day: str, now: Instant) -> bool:
    """Count the attempt once against the limit of the day of its claim; False if the limit is reached."""
    most = policy.per_repository_and_day_most
    if most < 1:
        return False  # disabled since the claim
    name = joined_key("github", "retries", key.installation_id, day, repository or "unknown")
    mark, counted = f"{key.run_id}#{key.run_attempt}", attr("runs")
    update = counted.add_elements({mark}) + attr("expiresAt").set_to(now.epoch_seconds + _COUNT_KEPT_SECONDS)
    try:
        store.update(STATE, Key(name), update, counted.contains(mark) | ~counted.is_larger_than(most - 1))
    except WriteConflict:
        return False
    return True


def wants_on_demand(store: Store, key: RunKey) -> bool:
    """Whether we requested this attempt after a spot interruption: its jobs then get on-demand machines."""
    if key.run_attempt < 2:
        return False
    before = store.get(RUNS, RunKey(key.installation_id, key.run_id, key.run_attempt - 1).item) or {}
    return before.get("retry", {}).get("state") in (INTENDED, "requested")
