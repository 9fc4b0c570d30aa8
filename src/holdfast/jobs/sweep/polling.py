"""Finds jobs whose webhooks were lost, by asking GitHub's API about the runs in progress.

A sweep takes some jobs that have not ended, the oldest first, and lists all jobs of their runs. What GitHub reports is
recorded like any other event, unless it is known already. The position is durable, so that every run has its turn.

A run that GitHub does not know any more, because its repository is gone, is given up after a day, with the reason in
`given_up`. It is polled again if a webhook arrives for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.jobs.intake.payloads import Installation, JobPayload, Repository, WorkflowJob
from holdfast.jobs.intake.record import record, register
from holdfast.jobs.intake.webhook import short_mark
from holdfast.jobs.model.facts import KEPT_SECONDS, JobEvent, Status, polled_facts
from holdfast.jobs.model.job import rank, rank_ms
from holdfast.jobs.model.keys import JobKey, RunKey, run_key_of
from holdfast.jobs.model.run import startup_failure_end
from holdfast.jobs.model.run_jobs import updated
from holdfast.jobs.read.item_views import repository_of
from holdfast.jobs.read.queries import FoundItems, Paging, Span, jobs_by_status
from holdfast.jobs.read.run_jobs import registered_run
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.live_run import current_run
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstallationId, joined_key
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHub, GitHubRefused, GitHubUnavailable, JobSeen, RateLimited
from holdfast.ports.store import Item, Key, Store, attr, remove_all, set_all
from holdfast.ports.store.tables import JOBS, RUNS, STATE

QUIET_SECONDS: Final = 120  # webhooks of younger jobs may still arrive
RUNS_MOST: Final = 20
UNSTARTED_SECONDS: Final = 900  # a run whose jobs start no earlier may have failed to start
GIVE_UP_SECONDS: Final = 86_400
GONE: Final = "GitHub does not know the run any more: its repository is gone, or the App has no access to it"
_STATUSES: Final = (Status.QUEUED, Status.WAITING, Status.SCHEDULED, Status.IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class PollResult:
    """How many runs were polled, and which jobs were corrected. `refused`: GitHub's reason, if it refused a run.

    `given_up`: the runs that GitHub has not known for a day, each with the reason.
    """

    runs: int
    found: Sequence[JobKey]
    refused: str = ""
    given_up: Sequence[str] = ()


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
    items = dict(zip(runs, store.batch_get(RUNS, [key.item for key in runs], consistent=True), strict=True))
    runs = {key: repository for key, repository in runs.items() if not is_given_up(items[key] or {})}
    names = [str(key) for key in runs]
    # By name: runs leave the page as their jobs progress, and a position would skip others.
    first = names.index(position["next"]) if position.get("next") in names else 0
    found: list[JobKey] = []
    polled = 0
    refused = ""
    given_up: list[str] = []
    for number, (key, repository) in enumerate(list(runs.items())[first:], first):
        if repository is None:
            continue
        if not budget.spend():
            # A run with many jobs takes many calls: the page may need more calls than one sweep has.
            _stop_at(store, installation, position, names[number])
            break
        polled += 1
        try:
            jobs = poll_run(store, github, key, repository, now, budget, received_by)
            found += jobs or ()
            given_up += _note_gone(store, key, items[key] or {}, now) if jobs is None else ()
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
    return PollResult(polled, found, refused, given_up)


def _page(store: Store, installation: InstallationId, status: Status, now: Instant, cursor: str | None) -> FoundItems:
    span = Span(until=now.plus(-QUIET_SECONDS))
    paging = Paging(RUNS_MOST, cursor, is_newest_first=False)
    return jobs_by_status(store, installation, status, span, paging, whole=True)  # the index does not hold the run


def poll_run(
    store: Store, github: GitHub, key: RunKey, repository: str, now: Instant, budget: CallBudget, received_by: str
) -> list[JobKey] | None:
    """List the jobs of one attempt of a run, and record what is new. None: GitHub does not know the run."""
    found: list[JobKey] = []
    run = registered_run(store, key) or {}
    page = 1
    while seen := github.jobs_of_run(key.installation_id, repository, key.run_id, key.run_attempt, page):
        if page == 1 and _may_have_failed_to_start(run, seen, now):
            run = updated(run, current_run(store, github, key, repository, now, budget) or {})
        keys = [JobKey(key.installation_id, job.id) for job in seen]
        known = store.batch_get(JOBS, [each.item for each in keys], consistent=True)
        for job_key, job, item in zip(keys, seen, known, strict=True):
            if _record_job(store, polled_event(key, repository, job, now), item, run, now, received_by):
                found.append(job_key)
        if len(seen) < 100 or not budget.spend():
            break
        page += 1
    return found if seen or page > 1 else None


def _record_job(store: Store, event: JobEvent, item: Item | None, run: Item, now: Instant, received_by: str) -> bool:
    """Record what GitHub reports about a job. False: all of it is known."""
    assert event.run is not None  # noqa: S101 -- made from a run; narrows the type
    was_missing = _register_if_missing(store, event, run)
    if item is None or is_news(item, event):
        record(store, event, received_by)
        return True
    if was_missing:
        return True
    # A crash may have left the end of a job unrecorded whose run failed to start; or the run's webhook was lost.
    end = startup_failure_end(event.run, run, event.key.job_id, now)
    if item.get("status") == Status.COMPLETED or end is None:
        return False
    record(store, end, received_by)
    return True


def _register_if_missing(store: Store, event: JobEvent, run: Item) -> bool:
    """Register the job before what GitHub reports of it is recorded: a polled event is never redelivered.

    In the other order, a crash in between may leave an ended job that no sweep looks at, and that its run lacks.
    """
    if event.key.job_id in run.get("jobs", ()):
        return False
    register(store, event)
    return True


def _may_have_failed_to_start(run: Item, seen: Sequence[JobSeen], now: Instant) -> bool:
    """Whether to ask about the run itself: its jobs stay queued if it failed to start, and its webhook may be lost."""
    if run.get("status") == "completed" or any(job.status in ("in_progress", "completed") for job in seen):
        return False
    created = run.get("created_at")
    return created is None or now.seconds_since(Instant.from_iso(created)) > UNSTARTED_SECONDS


def is_given_up(run: Item) -> bool:
    """Whether GitHub did not know the run for a day, and no webhook has arrived since."""
    at = run.get("given_up_at")
    return at is not None and run.get("updated_at", "") <= at


def _note_gone(store: Store, key: RunKey, run: Item, now: Instant) -> list[str]:
    """Note since when GitHub does not know the run; after a day, give it up."""
    since = run.get("gone_at")
    if since is None or run.get("updated_at", "") > since:
        update = set_all({"gone_at": now.iso()}) + remove_all("given_up", "given_up_at")
        noted: list[str] = []
    elif now.seconds_since(Instant.from_iso(since)) < GIVE_UP_SECONDS:
        return []
    else:
        update, noted = set_all({"given_up": GONE, "given_up_at": now.iso()}), [f"run {key}: {GONE}; not polled again"]
    # The run has no item of its own if workflow_run was never reported.
    store.update(RUNS, key.item, update + attr("ttl").set_if_absent(now.epoch_seconds + KEPT_SECONDS))
    return noted


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
