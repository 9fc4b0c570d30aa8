"""The API's own description, at /api/openapi.json. Made of the same schemas as the pages under docs/schema."""

import re
from dataclasses import dataclass
from typing import Any, Final

from holdfast.console.schemas import SCHEMAS


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the API: what it does, what it answers, and who may."""

    method: str
    path: str
    does: str
    answer: str
    query: tuple[tuple[str, str], ...] = ()
    secured_by: str | None = None
    errors: tuple[int, ...] = (503,)
    headers: tuple[str, ...] = ()


_LISTING: Final = (
    ("limit", "How many at most."),
    ("cursor", "Of the page before: where to go on."),
)
_INSTALLATION: Final = ("installation_id", "Of the GitHub App; may be left out where only one is known.")
_SPAN: Final = (("since", "A time, such as 2026-01-15T10:00:00Z."), ("until", "A time."))
_REPOSITORY: Final = ("repo", "owner/name.")
_JOB: Final = "/api/jobs/{installation_id}/{job_id}"
_JOB_CALLS: Final = (
    Call(
        "get",
        "/api/jobs",
        "Jobs, the newest first; a page may be short, and the cursor tells whether more follow.",
        "jobs",
        (
            _INSTALLATION,
            ("status", "queued, waiting, scheduled, in_progress or completed."),
            _REPOSITORY,
            *_SPAN,
            ("pool", "The pool of its runner."),
            ("label", "One of its labels."),
            ("workflow", "The workflow's name."),
            ("conclusion", "How it ended."),
            ("job_name", "The job's name."),
            *_LISTING,
        ),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/jobs/stuck",
        "Jobs that are where they are for too long, the oldest first.",
        "stuck-jobs",
        (_INSTALLATION, ("status", "Only those that are stuck in it."), *_LISTING),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/jobs/stats",
        "How often jobs succeed, how long they take and wait. Seven days back, unless asked.",
        "job-stats",
        (_INSTALLATION, _REPOSITORY, *_SPAN, *_LISTING),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/costs",
        "What the jobs' machines cost, the dearest group first. Thirty days back, unless asked.",
        "costs",
        (("by", "repo, workflow, team, pool or day."), _INSTALLATION, _REPOSITORY, *_SPAN, *_LISTING),
        errors=(400, 404, 503),
    ),
    Call("get", _JOB, "One job.", "job", errors=(400, 404, 503)),
    Call(
        "get",
        f"{_JOB}/explain",
        "Where the job is, since when, why, and what will happen next: in words.",
        "job-explained",
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        f"{_JOB}/events",
        "What happened to the job, in its order.",
        "job-events",
        (("day", "A date, such as 2026-01-15."), ("event_type", "Such as webhook_queued."), *_LISTING),
        errors=(400, 404, 503),
    ),
    Call(
        "post",
        f"{_JOB}/events",
        "What the runner fleet did for the job: type, at, attempt, instance_id, attributes. Twice is as good as once.",
        "event-told",
        secured_by="operator",
        errors=(400, 401, 413, 503),
    ),
    Call(
        "get",
        "/api/runs/{installation_id}/{run_id}/{run_attempt}",
        "One attempt of a run, and its jobs.",
        "run",
        _LISTING,
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/deployments/{installation_id}/{deployment_id}",
        "A deployment, and the jobs that wait or waited for it.",
        "deployment",
        errors=(400, 404, 503),
    ),
)
_BOARD_CALLS: Final = (
    Call(
        "get",
        "/api/jobs/queue",
        "The first 200 jobs that wait for a runner, each with what it waits for, and its place among all that wait.",
        "job-queue",
        (
            _INSTALLATION,
            _REPOSITORY,
            ("workflow", "The workflow's name."),
            ("label", "One of its labels."),
            *_SPAN,
        ),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/deployments",
        "Jobs that wait for an approval, by the deployment that they wait for.",
        "deployments",
        (_INSTALLATION,),
        errors=(400, 404, 503),
    ),
    Call(
        "get",
        "/api/overview",
        "What is happening now, in words and numbers: cluster, jobs, cost, alerts.",
        "overview",
        errors=(400, 503),
    ),
    Call(
        "get",
        "/api/cluster/now",
        "The cluster as its page shows it: nodes with their pods, the action under way, the time line, the rules.",
        "cluster-now",
        (("hours", "Of the time line: 1, 3, 6 or 24."),),
        errors=(400, 503),
    ),
    Call(
        "get",
        "/api/cluster/decisions",
        "The last ticks before a moment, the newest first, with their rules in groups.",
        "cluster-decisions",
        (("until", "A time, such as 2026-01-15T10:00:00Z."), ("acted", "yes: only ticks that did something.")),
        errors=(400, 503),
    ),
    Call(
        "get",
        "/api/events",
        "What happened in the cluster on a day, the newest first: 200 at a time.",
        "events",
        (
            ("q", "Only what has all these words in it."),
            ("day", "A day of the last thirty, in UTC, such as 2026-01-15; without it the last 24 hours."),
            ("skip", "So many of the newest are left out."),
        ),
        errors=(400, 503),
    ),
    Call(
        "get",
        "/api/simulator",
        "The simulated world's time and speed, faults that can be ordered, and the newest run. Only there in it.",
        "simulator",
        errors=(400, 503),
    ),
    Call(
        "post",
        "/api/simulator/run",
        "Start a run of the simulator: seed, seeds, faults (none, mild or wild), scenario. One at a time.",
        "simulator-run",
        secured_by="operator",
        errors=(400, 401, 403, 413, 503),
    ),
    Call(
        "post",
        "/api/simulator/stop",
        "End the run that is under way.",
        "simulator-run",
        secured_by="operator",
        errors=(400, 401, 403, 413, 503),
    ),
)
WEBHOOK: Final = Call(
    "post",
    "/webhooks/github",
    "A webhook of GitHub's, as it sends it. 200: its effect is durable, or it has none, and it need not come again.",
    "webhook-taken",
    headers=("X-GitHub-Event", "X-GitHub-Delivery", "X-Hub-Signature-256"),
    errors=(400, 401, 408, 413, 415, 503),
)
CALLS: Final = (
    Call("get", "/api/cluster", "What the cluster is doing, and the last tick's rules.", "cluster"),
    Call(
        "get",
        "/api/decisions",
        "What each tick saw, what each rule said, what was done; the oldest first. An hour back, unless asked.",
        "decisions",
        (("since", "A time, such as 2026-01-15T10:00:00Z."), ("until", "A time."), ("cursor", "Of the page before.")),
        errors=(400, 503),
    ),
    Call(
        "post",
        "/api/pause",
        "Begin nothing new until resumed. A pause that stands already stays as it is: done is then false.",
        "switched",
        secured_by="operator",
        errors=(400, 401, 413, 503),
    ),
    Call(
        "post",
        "/api/resume",
        "End a pause: with `since`, only the one that was shown with it. If there is none, done is false.",
        "switched",
        secured_by="operator",
        errors=(400, 401, 413, 503),
    ),
    Call(
        "post",
        "/events/aws",
        "An event of EC2's, as EventBridge sends it. Only there if EVENTS_SECRET is set.",
        "event-taken",
        secured_by="events",
        errors=(400, 401, 413, 503),
    ),
    WEBHOOK,
    *_JOB_CALLS,
    *_BOARD_CALLS,
)
_SECURED: Final = {
    "events": "EVENTS_SECRET.",
    "operator": "CONSOLE_TOKEN, or the token in daemon.json of the data directory.",
}
_MEANINGS: Final = {
    400: "The request is not understood.",
    401: "The token, or the signature, is missing or wrong.",
    403: "Readers may only look, and other sites may not even ask.",
    404: "It is not known, or has expired.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    415: "The body is not JSON, or is encoded.",
    503: "The store does not answer, or an operator is needed.",
}


def openapi(version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method] = _operation(call)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": version},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": text} for name, text in _SECURED.items()
            },
        },
    }


def _operation(call: Call) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": call.does,
        "responses": {
            "200": _response("Done.", call.answer),
            **{str(status): _response(_MEANINGS[status], "error") for status in call.errors},
        },
    }
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"}}
        for name in re.findall(r"{(\w+)}", call.path)
    ]
    in_query = [
        {"name": name, "in": "query", "description": text, "schema": {"type": "string"}} for name, text in call.query
    ]
    in_headers = [
        {"name": name, "in": "header", "required": True, "schema": {"type": "string"}} for name in call.headers
    ]
    if found := in_path + in_query + in_headers:
        operation["parameters"] = found
    if call.headers:
        body = {"application/json": {"schema": {"type": "object"}}}
        operation["requestBody"] = {"required": True, "description": "GitHub's payload.", "content": body}
    if call.secured_by:
        operation["security"] = [{call.secured_by: []}]
    return operation


def _response(text: str, schema: str) -> dict[str, Any]:
    return {
        "description": text,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }
