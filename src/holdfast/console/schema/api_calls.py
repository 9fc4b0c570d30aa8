"""The operations of the API, as the OpenAPI document lists them."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Call:
    """One operation of the API: what it does, the schema of its answer, and the token it needs."""

    method: str
    path: str
    does: str
    answer: str
    query: tuple[tuple[str, str], ...] = ()
    secured_by: str | None = None
    errors: tuple[int, ...] = (503,)
    headers: tuple[str, ...] = ()


_LISTING: Final = (
    ("limit", "Return at most this many."),
    ("cursor", "Continue after the previous page."),
)
_INSTALLATION: Final = ("installation_id", "GitHub App installation; required if there is more than one.")
_SPAN: Final = (("since", "A time, such as 2026-01-15T10:00:00Z."), ("until", "A time."))
_REPOSITORY: Final = ("repo", "owner/name.")
_JOB: Final = "/api/jobs/{installation_id}/{job_id}"
_JOB_CALLS: Final = (
    Call(
        "get",
        "/api/jobs",
        "List jobs, newest first. A page may have fewer than `limit`; there are more if it has a cursor.",
        "jobs",
        (
            _INSTALLATION,
            ("status", "queued, waiting, scheduled, in_progress or completed."),
            ("repo", "owner/name of a repository; or any part of the name."),
            *_SPAN,
            ("pool", "The runner's pool."),
            ("label", "A runner label that it requests, or any part of one."),
            ("workflow", "The workflow's name, or any part of it."),
            ("conclusion", "The job's conclusion."),
            ("job_name", "The job's name, or any part of it."),
            ("instance_id", "The machine of its runner."),
            *_LISTING,
        ),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/jobs/stuck",
        "List stuck jobs, oldest first.",
        "stuck-jobs",
        (_INSTALLATION, ("status", "Only jobs stuck in this status."), *_LISTING),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/jobs/stats",
        "Success rates, run times and queue times, over the last 7 days by default.",
        "job-stats",
        (_INSTALLATION, _REPOSITORY, *_SPAN, *_LISTING),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/costs",
        "What the jobs' machines cost, the most expensive group first, over the last 30 days by default.",
        "costs",
        (("by", "repo, workflow, team, pool or day."), _INSTALLATION, _REPOSITORY, *_SPAN, *_LISTING),
        errors=(400, 404, 503),
    ),
    Call("get", _JOB, "One job.", "job", errors=(400, 404, 503)),
    Call(
        "get",
        f"{_JOB}/explain",
        "Explain a job's status: since when, why, and what happens next.",
        "job-explained",
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        f"{_JOB}/events",
        "The job's history, oldest first.",
        "job-events",
        (("day", "A date, such as 2026-01-15."), ("event_type", "Such as webhook_queued."), *_LISTING),
        errors=(400, 404, 503),
    ),
    Call(
        "post",
        f"{_JOB}/events",
        "Record an event of the runner fleet: type, at, attempt, instance_id, attributes. Idempotent.",
        "event-told",
        secured_by="operator",
        errors=(400, 401, 413, 503),
    ),
    Call(
        "get",
        "/api/runs/{installation_id}/{run_id}/{run_attempt}",
        "One attempt of a run and its jobs.",
        "run",
        _LISTING,
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/deployments/{installation_id}/{deployment_id}",
        "A deployment and its jobs.",
        "deployment",
        errors=(400, 404, 503),
    ),
)
_CONSOLE_CALLS: Final = (
    Call(
        "get",
        "/api/jobs/queue",
        "The first 200 jobs that wait for a runner, with their position and what they wait for.",
        "job-queue",
        (
            _INSTALLATION,
            _REPOSITORY,
            ("workflow", "The workflow's name."),
            ("label", "A runner label that it requests."),
            *_SPAN,
        ),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/deployments",
        "Jobs that wait for an approval, by deployment.",
        "deployments",
        (_INSTALLATION,),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/overview",
        "What happens now, in words and numbers: cluster, jobs, cost, alerts.",
        "overview",
        errors=(400, 503),
    ),
    Call(
        "get",
        "/api/cluster/now",
        "The cluster now: nodes with their pods, the action in progress, the time line, the rules.",
        "cluster-now",
        (("hours", "How far the time line goes back: 1, 3, 6 or 24."),),
        errors=(400, 503),
    ),
    Call(
        "get",
        "/api/cluster/decisions",
        "The last ticks before a time, newest first, with their rules in groups.",
        "cluster-decisions",
        (("until", "A time, such as 2026-01-15T10:00:00Z."), ("acted", "yes: only ticks that acted.")),
        errors=(400, 503),
    ),
    Call(
        "get",
        "/api/events",
        "The cluster's events of a day, newest first, 200 at a time.",
        "events",
        (
            ("q", "Only events that contain all these words."),
            ("day", "A day of the last 30, in UTC, such as 2026-01-15. Default: the last 24 hours."),
            ("skip", "Skip this many of the newest."),
        ),
        errors=(400, 503),
    ),
    Call(
        "get",
        "/api/simulator",
        "The simulated world: its time and speed, faults to inject, and the newest run. Only in a simulated world.",
        "simulator",
        errors=(400, 503),
    ),
    Call(
        "post",
        "/api/simulator/run",
        "Start a run of the simulator with seed, seeds, faults (none, mild or wild) and scenario. One at a time.",
        "simulator-run",
        secured_by="operator",
        errors=(400, 401, 403, 413, 503),
    ),
    Call(
        "post",
        "/api/simulator/stop",
        "Stop the run in progress.",
        "simulator-run",
        secured_by="operator",
        errors=(400, 401, 403, 413, 503),
    ),
)
WEBHOOK: Final = Call(
    "post",
    "/webhooks/github",
    "Receive a webhook from GitHub. 200: it is stored, or has no effect, and need not be redelivered.",
    "webhook-taken",
    headers=("X-GitHub-Event", "X-GitHub-Delivery", "X-Hub-Signature-256"),
    errors=(400, 401, 408, 413, 415, 503),
)
CALLS: Final = (
    Call("get", "/api/cluster", "The cluster's state, and the last tick with its rules.", "cluster"),
    Call(
        "get",
        "/api/decisions",
        "What each tick observed, what its rules said and what it did, oldest first. Default: the last hour.",
        "decisions",
        (
            ("since", "A time, such as 2026-01-15T10:00:00Z."),
            ("until", "A time."),
            ("cursor", "Continue after the previous page."),
        ),
        errors=(400, 503),
    ),
    Call(
        "post",
        "/api/pause",
        "Start no new action until resumed. If the cluster is already paused, nothing changes and `done` is false.",
        "switched",
        secured_by="operator",
        errors=(400, 401, 413, 503),
    ),
    Call(
        "post",
        "/api/resume",
        "End a pause; with `since`, only the one that began then. If there is none, `done` is false.",
        "switched",
        secured_by="operator",
        errors=(400, 401, 413, 503),
    ),
    Call(
        "post",
        "/events/aws",
        "Receive an EC2 event from EventBridge. Only if EVENTS_SECRET is set.",
        "event-taken",
        secured_by="events",
        errors=(400, 401, 413, 503),
    ),
    WEBHOOK,
    *_JOB_CALLS,
    *_CONSOLE_CALLS,
)
