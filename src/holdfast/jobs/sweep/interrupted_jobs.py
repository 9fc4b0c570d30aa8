"""Jobs whose spot machine was interrupted: noted when it happens, and checked until their run is settled.

No index finds them, and a scan of all ended jobs would find them late. A note that stays unsettled expires.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from holdfast.jobs.intake.webhook import short_mark
from holdfast.jobs.model.facts import FAILED
from holdfast.jobs.model.keys import JobKey, RunKey, run_key_of
from holdfast.jobs.read.run_jobs import run_with_jobs
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.retry import INTENDED, PAGES_MOST, RetryPolicy, RetryVerdict, consider, note_key, note_of
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import InstallationId, JobId, joined_key
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHub, GitHubRefused
from holdfast.ports.store import CheckItem, DeleteItem, Item, Query, Store, attr, every_item
from holdfast.ports.store.tables import JOBS, LOGS, RUNS

RETRY_CALLS_MOST: Final = PAGES_MOST + 2  # to GitHub, by one `consider`: pages of jobs, the run, and the request
_MOST: Final = 1000


@dataclass
class RetryResult:
    """The runs that were rerun; and GitHub's reason, if it refused one."""

    runs: list[RunKey] = field(default_factory=list)
    refused: str = ""


def note_interrupted(store: Store, job: JobKey, now: Instant) -> None:
    """Note that the job's run must be checked once the job has ended."""
    store.put(LOGS, note_of(job, now))


def retry_interrupted(
    store: Store, github: GitHub, installation: InstallationId, policy: RetryPolicy, now: Instant, budget: CallBudget
) -> RetryResult:
    """Rerun the noted runs that qualify, within the budget."""
    retried = RetryResult()
    if not policy.is_enabled:
        return retried
    over: set[RunKey] = set()
    waiting: set[RunKey] = set()  # checked in this sweep: once per run, not per job
    # In another order each time: runs that GitHub refuses may use up all calls, and stay noted.
    notes = sorted(_noted(store, installation), key=lambda note: short_mark(now.iso(), str(note[0])))
    for job_key, job in notes:
        run = _ended_run(store, job_key, job)
        if run is None or run in waiting:
            continue
        if run not in over and job is not None and job.get("conclusion") in FAILED:
            if budget.calls < RETRY_CALLS_MOST:
                break
            budget.calls -= RETRY_CALLS_MOST
            try:
                verdict = consider(store, github, run, policy, now).verdict
            except GitHubRefused as error:
                retried.refused = str(error)
                waiting.add(run)
                continue
            if verdict is RetryVerdict.NOT_YET:
                waiting.add(run)
                continue
            if verdict is RetryVerdict.RETRY:
                retried.runs.append(run)
            over.add(run)
        _remove_note(store, run, job_key)
    return retried


def _remove_note(store: Store, run: RunKey, job: JobKey) -> None:
    """Remove the note of a run that is settled. It stays while a claim on the run is open."""
    is_settled = attr("retry")["state"].differs_from(INTENDED)
    with suppress(WriteConflict):
        store.transact([CheckItem(RUNS, run.item, is_settled), DeleteItem(LOGS, note_key(job))])


def _ended_run(store: Store, key: JobKey, job: Item | None) -> RunKey | None:
    """The job's run, once all its jobs have ended and the run counts them as done."""
    if job is None or job.get("status") != "completed" or "GSI3-PK" not in job:
        return None
    found = run_key_of(job["GSI3-PK"])
    run = run_with_jobs(store, found) or {}
    return found if key.job_id in run.get("done", ()) and not run.get("open") else None


def _noted(store: Store, installation: InstallationId) -> Iterator[tuple[JobKey, Item | None]]:
    notes = every_item(store, Query(LOGS, joined_key("github", "interrupted", installation)))
    keys = [JobKey(installation, JobId(int(note["sk"]))) for note in islice(notes, _MOST)]
    jobs = store.batch_get(JOBS, [key.item for key in keys], consistent=True) if keys else []
    return zip(keys, jobs, strict=True)
