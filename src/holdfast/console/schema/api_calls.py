"""The operations of the API, as the OpenAPI document lists them."""

from dataclasses import dataclass
from typing import Final

from holdfast.console.schema.parameters import (
    ANY_BODY,
    ANY_TEXT,
    COST_GROUP,
    CURSOR,
    DAY,
    EVENT_TYPE,
    FIGURES,
    INSTALLATION,
    JOB_EVENT_BODY,
    LISTING,
    NO_BODY,
    PAUSE_BODY,
    REPOSITORY,
    REPOSITORY_PART,
    RUN_BODY,
    SINCE,
    SPAN,
    STATUS,
    STUCK_STATUS,
    TIME,
    UNTIL,
    Parameter,
    Schema,
)


@dataclass(frozen=True, slots=True)
class Call:
    """One operation of the API: what it does, the schema of its answer, and the token it needs."""

    method: str
    path: str
    does: str
    answer: str
    query: tuple[Parameter, ...] = ()
    secured_by: str | None = None
    errors: tuple[int, ...] = (503,)
    headers: tuple[str, ...] = ()
    body: Schema | None = None
    needs_body: bool = False


_JOB: Final = "/api/jobs/{installation_id}/{job_id}"
_JOB_CALLS: Final = (
    Call(
        "get",
        "/api/jobs",
        "List jobs, newest first. A page may have fewer than `limit`; there are more if it has a cursor.",
        "jobs",
        (
            INSTALLATION,
            STATUS,
            REPOSITORY_PART,
            *SPAN,
            Parameter("pool", "The runner's pool."),
            Parameter("label", "A runner label that it requests, or any part of one."),
            Parameter("workflow", "The workflow's name, or any part of it."),
            Parameter("conclusion", "The job's conclusion."),
            Parameter("job_name", "The job's name, or any part of it."),
            Parameter("instance_id", "The machine of its runner."),
            *LISTING,
        ),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/jobs/stuck",
        "List stuck jobs, oldest first.",
        "stuck-jobs",
        (INSTALLATION, STUCK_STATUS, *LISTING),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/jobs/stats",
        "Success rates, run times and queue times, over the last 7 days by default.",
        "job-stats",
        (INSTALLATION, REPOSITORY, *SPAN, *FIGURES),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/costs",
        "What the jobs' machines cost, the most expensive group first, over the last 30 days by default.",
        "costs",
        (COST_GROUP, INSTALLATION, REPOSITORY, *SPAN, *FIGURES),
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
        (Parameter("day", "A date, such as 2026-01-15.", DAY), EVENT_TYPE, *LISTING),
        errors=(400, 404, 503),
    ),
    Call(
        "post",
        f"{_JOB}/events",
        "Record an event of the runner fleet: type, at, attempt, instance_id, attributes. Idempotent.",
        "event-told",
        secured_by="operator",
        body=JOB_EVENT_BODY,
        needs_body=True,
        errors=(400, 401, 413, 503),
    ),
    Call(
        "get",
        "/api/runs/{installation_id}/{run_id}/{run_attempt}",
        "One attempt of a run and its jobs.",
        "run",
        LISTING,
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
            INSTALLATION,
            REPOSITORY_PART,
            Parameter("workflow", "The workflow's name."),
            Parameter("label", "A runner label that it requests."),
            *SPAN,
        ),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/deployments",
        "Jobs that wait for an approval, by deployment.",
        "deployments",
        (INSTALLATION,),
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
        (Parameter("hours", "How far the time line goes back, in hours.", {"enum": ["1", "3", "6", "24"]}),),
        errors=(400, 503),
    ),
    Call(
        "get",
        "/api/cluster/decisions",
        "The last ticks before a time, newest first, with their rules in groups.",
        "cluster-decisions",
        (
            Parameter("until", "A time, such as 2026-01-15T10:00:00Z.", TIME),
            Parameter("acted", "yes: only ticks that acted.", {"enum": ["yes"]}),
        ),
        errors=(400, 503),
    ),
    Call(
        "get",
        "/api/events",
        "The cluster's events of a day, newest first, 200 at a time.",
        "events",
        (
            Parameter("q", "Only events that contain all these words.", ANY_TEXT),
            Parameter("day", "A day of the last 30, in UTC, such as 2026-01-15. Default: the last 24 hours.", DAY),
            Parameter("skip", "Skip this many of the newest.", {"type": "integer", "minimum": 0, "maximum": 999_999}),
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
        body=RUN_BODY,
        errors=(400, 401, 403, 413, 503),
    ),
    Call(
        "post",
        "/api/simulator/stop",
        "Stop the run in progress.",
        "simulator-run",
        secured_by="operator",
        body=NO_BODY,
        errors=(400, 401, 403, 413, 503),
    ),
)
WEBHOOK: Final = Call(
    "post",
    "/webhooks/github",
    "Receive a webhook from GitHub. 200: it is stored, or has no effect, and need not be redelivered.",
    "webhook-taken",
    headers=("X-GitHub-Event", "X-GitHub-Delivery", "X-Hub-Signature-256"),
    body=ANY_BODY,
    needs_body=True,
    errors=(400, 401, 403, 408, 413, 415, 503),
)
CALLS: Final = (
    Call("get", "/api/cluster", "The cluster's state, and the last tick with its rules.", "cluster"),
    Call(
        "get",
        "/api/decisions",
        "What each tick observed, what its rules said and what it did, oldest first. Default: the last hour.",
        "decisions",
        (
            SINCE,
            UNTIL,
            CURSOR,
        ),
        errors=(400, 503),
    ),
    Call(
        "post",
        "/api/pause",
        "Start no new action until resumed. If the cluster is already paused, nothing changes and `done` is false.",
        "switched",
        secured_by="operator",
        body=PAUSE_BODY,
        errors=(400, 401, 413, 503),
    ),
    Call(
        "post",
        "/api/resume",
        "End a pause; with `since`, only the one that began then. If there is none, `done` is false.",
        "switched",
        secured_by="operator",
        body=PAUSE_BODY,
        errors=(400, 401, 413, 503),
    ),
    Call(
        "post",
        "/events/aws",
        "Receive an EC2 event from EventBridge. Only if EVENTS_SECRET is set.",
        "event-taken",
        secured_by="events",
        body=ANY_BODY,
        needs_body=True,
        errors=(400, 401, 413, 503),
    ),
    WEBHOOK,
    *_JOB_CALLS,
    *_CONSOLE_CALLS,
)
