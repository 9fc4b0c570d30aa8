"""Jobs that were never announced, or whose end was: found by asking GitHub about the runs that are under way.

A sweep takes a few of the jobs that have not ended, the oldest first, and asks for all jobs of their runs. What GitHub
says is recorded as an event like any other; what we know already is not written again. The place is durable, so that in
the end every run has its turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.jobs.budget import Budget
from holdfast.jobs.facts import JobEvent, Status, polled_facts
from holdfast.jobs.job import rank, rank_ms
from holdfast.jobs.keys import JobKey, RunKey, run_key_of
from holdfast.jobs.payloads import Installation, JobPayload, Repository, WorkflowJob
from holdfast.jobs.queries import Found, Paging, Span, jobs_by_status
from holdfast.jobs.record import count_end, record, recount
from holdfast.jobs.run import ended_by_startup_failure
from holdfast.jobs.views import repository_of
from holdfast.jobs.webhook import short_mark
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstallationId, joined_key
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHub, GitHubRefused, GitHubUnavailable, JobSeen, RateLimited
from holdfast.ports.store import Item, Key, Store, remove_all, set_all
from holdfast.ports.store.tables import JOBS, RUNS, STATE

QUIET_SECONDS: Final = 120  # younger jobs' webhooks may still be on their way
RUNS_MOST: Final = 20
_STATUSES: Final = (Status.QUEUED, Status.WAITING, Status.SCHEDULED, Status.IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class Polled:
    """How many runs were asked about, and which jobs turned out to be otherwise than we knew.

    `refused`: why GitHub would not tell of a run, if there was one.
    """

    runs: int
    found: Sequence[JobKey]
    refused: str = ""


def place_key(installation: InstallationId) -> Key:
    return Key(joined_key("github", "runs", installation))


def poll_runs(
    store: Store, github: GitHub, installation: InstallationId, now: Instant, budget: Budget, received_by: str
) -> Polled:
    """Ask about some runs that have jobs under way, beginning where the last sweep stopped."""
    place = store.get(STATE, place_key(installation)) or {}
    status = _STATUSES[place.get("status", 0) % len(_STATUSES)]
    try:
        page = _page(store, installation, status, now, place.get("cursor") or None)
    except BadRequest:
        if not place.get("cursor"):
            raise
        place = {"status": place.get("status", 0)}  # the place is no more: from the beginning
        page = _page(store, installation, status, now, None)
    runs = {run_key_of(job["GSI3-PK"]): repository_of(job) for job in page.items if "GSI3-PK" in job}
    names = [str(key) for key in runs]
    # By name: runs leave the page as they go on, and a number would pass others by.
    first = names.index(place["next"]) if place.get("next") in names else 0
    found: list[JobKey] = []
    asked = 0
    refused = ""
    for number, (key, repository) in enumerate(list(runs.items())[first:], first):
        if repository is None:
            continue
        if not budget.spend():
            # A run of many jobs takes many calls: the page may need more of them than one sweep has.
            _stop_at(store, installation, place, names[number])
            break
        asked += 1
        try:
            found += poll_run(store, github, key, repository, now, budget, received_by)
        except GitHubRefused as error:
            refused = str(error)  # one repository that is closed to us does not stop the others
        except RateLimited:
            _stop_at(store, installation, place, names[number])  # what was asked is not asked again
            raise
        except GitHubUnavailable:
            # Nor does a run that GitHub never gets together: the next sweep begins behind it.
            if number + 1 < len(names):
                _stop_at(store, installation, place, names[number + 1])
            else:
                _move_on(store, installation, place, page.cursor)
            raise
    else:
        _move_on(store, installation, place, page.cursor)
    return Polled(asked, found, refused)


def _page(store: Store, installation: InstallationId, status: Status, now: Instant, cursor: str | None) -> Found:
    span = Span(until=now.plus(-QUIET_SECONDS))
    return jobs_by_status(store, installation, status, span, Paging(RUNS_MOST, cursor, is_newest_first=False))


def poll_run(
    store: Store, github: GitHub, key: RunKey, repository: str, now: Instant, budget: Budget, received_by: str
) -> list[JobKey]:
    """Ask for the jobs of one attempt of a run, and record what we did not know."""
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
                    # What was recorded before may have been cut short before it came to the run.
                    recount(store, event, recorded.job, run)
                found.append(job_key)
            elif recount(store, event, item, run):
                found.append(job_key)
            elif item.get("status") != Status.COMPLETED:
                # Whoever recorded it first may have been cut short before it came to this.
                end = ended_by_startup_failure(key, run, job.id, now)
                if end is not None:
                    count_end(store, end)
                    record(store, end, received_by)
                    found.append(job_key)
        if len(seen) < 100 or not budget.spend():
            break
        page += 1
    return found


def polled_event(run: RunKey, repository: str, job: JobSeen, now: Instant) -> JobEvent:
    """What the API says of a job, as an event. Of queued and waiting it says what is so now."""
    told = WorkflowJob(
        **{name: getattr(job, name) for name in WorkflowJob.__struct_fields__ if name != "labels"},
        labels=list(job.labels),
    )
    action = job.status if job.status in set(Status) else Status.WAITING
    payload = JobPayload(
        repository=Repository(full_name=repository),
        workflow_job=told,
        action=str(action),
        installation=Installation(run.installation_id),
    )
    mark = short_mark("api", str(job.id), job.status, job.conclusion or "", job.runner_name or "")
    return polled_facts(payload, told, now, mark)


def is_news(known: Item, event: JobEvent) -> bool:
    """Whether the job is further than we knew, or waits where we thought it queued, or the other way round."""
    if event.status is None or "created_at" not in known or "status" not in known:
        return True
    phase, known_phase = rank(event.status, 0), known.get("rk", 0) - rank_ms(known)
    if phase == known_phase:
        return bool(known["status"] != event.status)
    return bool(phase > known_phase)


def _move_on(store: Store, installation: InstallationId, place: Item, cursor: str | None) -> None:
    status = place.get("status", 0) % len(_STATUSES)
    next_status = status if cursor else (status + 1) % len(_STATUSES)
    moved = set_all({"status": next_status, "cursor": cursor or ""})
    update = moved + remove_all("next", "skip")  # `skip` is of older versions
    store.update(STATE, place_key(installation), update)


def _stop_at(store: Store, installation: InstallationId, place: Item, run: str) -> None:
    """The same page next time, from this run on."""
    update = set_all({"status": place.get("status", 0), "cursor": place.get("cursor", ""), "next": run})
    store.update(STATE, place_key(installation), update)
