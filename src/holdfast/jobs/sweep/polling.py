"""Finds jobs whose webhooks were lost, by asking GitHub's API about the runs in progress.

A sweep takes some jobs that have not ended, the oldest first, and lists all jobs of their runs. What GitHub reports is
recorded like any other event, unless it is known already. The position is durable, so that every run has its turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.jobs.intake.payloads import Installation, JobPayload, Repository, WorkflowJob
from holdfast.jobs.intake.record import count_end, record, recount
from holdfast.jobs.intake.webhook import short_mark
from holdfast.jobs.model.facts import JobEvent, Status, polled_facts
from holdfast.jobs.model.job import rank, rank_ms
from holdfast.jobs.model.keys import JobKey, RunKey, run_key_of
from holdfast.jobs.model.run import startup_failure_end
from holdfast.jobs.read.item_views import repository_of
from holdfast.jobs.read.queries import FoundItems, Paging, Span, jobs_by_status
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstallationId, joined_key
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHub, GitHubRefused, GitHubUnavailable, JobSeen, RateLimited
from holdfast.ports.store import Item, Key, Store, remove_all, set_all
from holdfast.ports.store.tables import JOBS, RUNS, STATE

QUIET_SECONDS: Final = 120  # webhooks of younger jobs may still arrive
RUNS_MOST: Final = 20
_STATUSES: Final = (Status.QUEUED, Status.WAITING, Status.SCHEDULED, Status.IN_PROGRESS)


@dataclass
class CallBudget:
    """How many calls to GitHub may still be made. Work that is left over waits for the next sweep."""

    calls: int

    def spend(self) -> bool:
        """Spend one call; False if none is left."""
        if self.calls <= 0:
            return False
        self.calls -= 1
        return True


@dataclass(frozen=True, slots=True)
class PollResult:
    """How many runs were polled, and which jobs were corrected. `refused`: GitHub's reason, if it refused a run."""

    runs: int
    found: Sequence[JobKey]
    refused: str = ""


def position_key(installation: InstallationId) -> Key:
    return Key(joined_key("github", "runs", installation))


def poll_runs(
    store: Store, github: GitHub, installation: InstallationId, now: Instant, budget: CallBudget, received_by: str
) -> PollResult:
    """Poll some runs that have unfinished jobs, from where the last sweep stopped."""
    position = store.get(STATE, position_key(installation)) or {}
    status = _STATUSES[position.get("status", 0) % len(_STATUSES)]
    try:
        page = _page(store, installation, status, now, position.get("cursor") or None)
    except BadRequest:
        if not position.get("cursor"):
            raise
        position = {"status": position.get("status", 0)}  # the cursor is no longer valid: start again
        page = _page(store, installation, status, now, None)
    runs = {run_key_of(job["GSI3-PK"]): repository_of(job) for job in page.items if "GSI3-PK" in job}
    names = [str(key) for key in runs]
    # By name: runs leave the page as their jobs progress, and a position would skip others.
    first = names.index(position["next"]) if position.get("next") in names else 0
    found: list[JobKey] = []
    polled = 0
    refused = ""
    for number, (key, repository) in enumerate(list(runs.items())[first:], first):
        if repository is None:
            continue
        if not budget.spend():
            # A run with many jobs takes many calls: the page may need more calls than one sweep has.
            _stop_at(store, installation, position, names[number])
            break
        polled += 1
        try:
            found += poll_run(store, github, key, repository, now, budget, received_by)
        except GitHubRefused as error:
            refused = str(error)  # a repository without access does not stop the others
        except RateLimited:
            _stop_at(store, installation, position, names[number])  # do not poll the earlier runs again
            raise
        except GitHubUnavailable:
            # Nor does a run for which GitHub always fails: the next sweep begins after it.
            if number + 1 < len(names):
                _stop_at(store, installation, position, names[number + 1])
            else:
                _move_on(store, installation, position, page.cursor)
            raise
    else:
        _move_on(store, installation, position, page.cursor)
    return PollResult(polled, found, refused)


def _page(store: Store, installation: InstallationId, status: Status, now: Instant, cursor: str | None) -> FoundItems:
    span = Span(until=now.plus(-QUIET_SECONDS))
    return jobs_by_status(store, installation, status, span, Paging(RUNS_MOST, cursor, is_newest_first=False))


def poll_run(
    store: Store, github: GitHub, key: RunKey, repository: str, now: Instant, budget: CallBudget, received_by: str
) -> list[JobKey]:
    """List the jobs of one attempt of a run, and record what is new."""
    found: list[JobKey] = []
    run = store.get(RUNS, key.item) or {}
    page = 1
    while seen := github.jobs_of_run(key.installation_id, repository, key.run_id, key.run_attempt, page):
        keys = [JobKey(key.installation_id, job.id) for job in seen]
        known = store.batch_get(JOBS, [each.item for each in keys], consistent=True)
        for job_key, job, item in zip(keys, seen, known, strict=True):
            event = polled_event(key, repository, job, now)
            if item is None or is_news(item, event):
                count_end(store, event)
                recorded = record(store, event, received_by)
                if item is not None and event.end is None:
                    # A crash may have left an earlier event of the job uncounted in the run.
                    recount(store, event, recorded.job, run)
                found.append(job_key)
            elif recount(store, event, item, run):
                found.append(job_key)
            elif item.get("status") != Status.COMPLETED:
                # A crash may have left the end of a job unrecorded whose run failed to start.
                end = startup_failure_end(key, run, job.id, now)
                if end is not None:
                    count_end(store, end)
                    record(store, end, received_by)
                    found.append(job_key)
        if len(seen) < 100 or not budget.spend():
            break
        page += 1
    return found


def polled_event(run: RunKey, repository: str, job: JobSeen, now: Instant) -> JobEvent:
    """A job from GitHub's API, as an event. A queued or waiting status holds as of now."""
    reported = WorkflowJob(
        **{name: getattr(job, name) for name in WorkflowJob.__struct_fields__ if name != "labels"},
        labels=list(job.labels),
    )
    action = job.status if job.status in set(Status) else Status.WAITING
    payload = JobPayload(
        repository=Repository(full_name=repository),
        workflow_job=reported,
        action=str(action),
        installation=Installation(run.installation_id),
    )
    mark = short_mark("api", str(job.id), job.status, job.conclusion or "", job.runner_name or "")
    return polled_facts(payload, reported, now, mark)


def is_news(known: Item, event: JobEvent) -> bool:
    """Whether the job has progressed, or changed between queued and waiting."""
    if event.status is None or "created_at" not in known or "status" not in known:
        return True
    phase, known_phase = rank(event.status, 0), known.get("rk", 0) - rank_ms(known)
    if phase == known_phase:
        return bool(known["status"] != event.status)
    return bool(phase > known_phase)


def _move_on(store: Store, installation: InstallationId, position: Item, cursor: str | None) -> None:
    status = position.get("status", 0) % len(_STATUSES)
    next_status = status if cursor else (status + 1) % len(_STATUSES)
    moved = set_all({"status": next_status, "cursor": cursor or ""})
    update = moved + remove_all("next", "skip")  # `skip` was written by older versions
    store.update(STATE, position_key(installation), update)


def _stop_at(store: Store, installation: InstallationId, position: Item, run: str) -> None:
    """Continue next time on the same page, at this run."""
    update = set_all({"status": position.get("status", 0), "cursor": position.get("cursor", ""), "next": run})
    store.update(STATE, position_key(installation), update)
