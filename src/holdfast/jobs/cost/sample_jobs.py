"""Sample jobs of any size, with everything that GitHub's App sends in their lives: to measure the tracker's own cost.

run          requested, in progress, completed: one webhook each for all jobs of the run
job          queued; with a deployment waiting, and queued again; then in progress and completed
deployment   created, its status waiting, a protection rule, and a review for all jobs of the run
machine      scheduled, attached, terminated, from the runner fleet
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec import structs

from holdfast.jobs.cost.prices import shipped_prices
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType, internal_event
from holdfast.jobs.intake.payloads import JobPayload, decoded
from holdfast.jobs.intake.webhook import Delivery
from holdfast.jobs.model.facts import JobEvent, job_event
from holdfast.jobs.model.job import folded
from holdfast.jobs.model.keys import JobKey
from holdfast.jobs.read.item_views import Viewing, job_view
from holdfast.kernel.ids import InstallationId, InstanceId, JobId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item
from holdfast.ports.store.values import item_bytes

INSTALLATION: Final = InstallationId(12_345_678)
FIRST_JOB: Final = 43_012_345_678
_RUN_ID: Final = 17_123_456_789
_FIRST_DEPLOYMENT: Final = 1_600_000_001
_LABELS_BYTES: Final = 600
_REPOSITORY: Final = "acme-corporation/backend-service"
_BEGIN: Final = Instant.from_iso("2026-01-15T10:00:00Z")
# Attributes of a job's view that the full layout does not store.
_NOT_STORED: Final = frozenset(
    {"stages_in_ms", "scheduling_attempt", "usage_in_dollars_is_estimate", "approval_duration_in_ms"}
)

SampleEvent = Delivery | InternalEvent


@dataclass(frozen=True, slots=True)
class JobShape:
    """A job's size in the full layout (every attribute stored), jobs per run, and whether they wait for approval."""

    size_bytes: int = 1331
    jobs: int = 20
    has_deployment: bool = False


def sample_events(number: int, shape: JobShape, padding: str) -> list[tuple[str, SampleEvent | None]]:
    """The job's life, step by step. None: an event of the run, which comes with its first job."""
    key = JobKey(INSTALLATION, JobId(FIRST_JOB + number))
    later = 180.0 if shape.has_deployment else 0.0

    def job(action: str, seconds: float, name: str = "") -> tuple[str, SampleEvent | None]:
        return name or action, _job(number, action, seconds, shape, padding)

    plan = {"instance_type": "m7i.xlarge", "instance_lifecycle": "spot", "pool_name": "small-x64"}
    instance = InstanceId(f"i-{key.job_id:017x}")

    def of_run(name: str, event: Delivery) -> tuple[str, SampleEvent | None]:
        return name, event if number == 0 else None

    gate = [
        ("deployment", _deployment(number, "deployment", 0.5, {"action": "created"})),
        job("waiting", 0.6),
        ("deployment status", _deployment(number, "deployment_status", 0.7, _waiting(number))),
        ("protection rule", _deployment(number, "deployment_protection_rule", 0.8, _rule(number))),
        of_run("approved", _review(shape)),
        job("queued", later + 0.4, "queued again"),
    ]
    return [
        of_run("run requested", _run("requested", -2)),
        job("queued", 0.4),
        *(gate if shape.has_deployment else []),
        of_run("run in progress", _run("in_progress", later + 1)),
        ("scheduled", InternalEvent(key, InternalType.SCHEDULED, _BEGIN.plus(later + 2), 1, None, plan)),
        ("attached", InternalEvent(key, InternalType.ATTACHED, _BEGIN.plus(later + 4), 1, instance)),
        job("in_progress", later + 31.2),
        job("completed", later + 90.9),
        ("terminated", InternalEvent(key, InternalType.TERMINATED, _BEGIN.plus(later + 95), 1, instance)),
        of_run("run completed", _run("completed", later + 96)),
    ]


def _job(number: int, action: str, seconds: float, shape: JobShape, padding: str) -> Delivery:
    at = _BEGIN.plus(seconds)
    runs = action in ("in_progress", "completed")
    later = 180 if shape.has_deployment else 0
    job: dict[str, Any] = {
        "id": FIRST_JOB + number,
        "run_id": _RUN_ID,
        "run_attempt": 1,
        "status": action,
        "name": _name(number),
        "workflow_name": "Continuous integration",
        "head_sha": "4bf92f3577b34da6a3ce929d0e0e47363a1c9b2d",
        "head_branch": "feature/refunds",
        "created_at": _BEGIN.iso_seconds(),
        "started_at": _BEGIN.plus(later + 31 if runs else 0).iso_seconds(),
        "labels": ["self-hosted", *_pieces(padding[:_LABELS_BYTES])],
    }
    if runs:
        name = f"runs-on--i-{FIRST_JOB + number:017x}--x7Qd"
        job |= {"runner_id": 4711 + number, "runner_name": name, "runner_group_id": 2}
    if action == "completed":
        job |= {"conclusion": "success", "completed_at": at.iso_seconds()}
    payload: dict[str, Any] = {"action": action, "workflow_job": job, "repository": _repository(padding)}
    if shape.has_deployment:
        payload["deployment"] = {
            "id": _FIRST_DEPLOYMENT + number,
            "environment": "production",
            "created_at": _BEGIN.iso_seconds(),
            "updated_at": at.iso_seconds(),
        }
    return Delivery("workflow_job", f"{action}-{number}-{seconds}", "99", body_of(payload))


def _run(action: str, seconds: float) -> Delivery:
    run = _run_fields(seconds) | {"name": "Continuous integration", "workflow_id": 78_123_456, "status": action}
    run |= {"head_sha": "4bf92f3577b34da6a3ce929d0e0e47363a1c9b2d", "head_branch": "feature/refunds"}
    run |= {"conclusion": "success" if action == "completed" else None}
    return Delivery("workflow_run", f"run-{action}", "99", body_of({"action": action, "workflow_run": run}))


def _run_fields(seconds: float) -> dict[str, Any]:
    times = {"created_at": _BEGIN.plus(-2).iso_seconds(), "run_started_at": _BEGIN.plus(-2).iso_seconds()}
    return {"id": _RUN_ID, "run_attempt": 1, **times, "updated_at": _BEGIN.plus(seconds).iso_seconds()}


def _deployment(number: int, event: str, seconds: float, more: dict[str, Any]) -> Delivery:
    deployment = {
        "id": _FIRST_DEPLOYMENT + number,
        "environment": "production",
        "created_at": _BEGIN.iso_seconds(),
        "updated_at": _BEGIN.plus(seconds).iso_seconds(),
    }
    payload = {"deployment": deployment, "workflow_run": _run_fields(seconds), **more}
    return Delivery(event, f"{event}-{number}", "99", body_of(payload))


def _waiting(number: int) -> dict[str, Any]:
    status = {"state": "waiting", "environment": "production"}
    return {"action": "created", "deployment_status": status, "check_run": _check_run(number)}


def _rule(number: int) -> dict[str, Any]:
    return {"action": "requested", "environment": "production", "event": "push", "check_run": _check_run(number)}


def _check_run(number: int) -> dict[str, Any]:
    """Its id is that of the job."""
    return {"id": FIRST_JOB + number, "name": _name(number)}


def _name(number: int) -> str:
    return f"integration tests (postgres-16, {number:03d})"


def _review(shape: JobShape) -> Delivery:
    """A person decides about an environment: one review names all jobs that wait for it."""
    named = [{"name": _name(number), "environment": "production"} for number in range(shape.jobs)]
    payload = {"action": "approved", "workflow_run": _run_fields(180), "workflow_job_runs": named}
    return Delivery("deployment_review", "review", "99", body_of({**payload, "environment": "production"}))


def body_of(payload: Mapping[str, Any]) -> bytes:
    return json.dumps({"repository": _repository(""), "installation": {"id": INSTALLATION}, **payload}).encode()


def _repository(padding: str) -> dict[str, Any]:
    rest = _pieces(padding[_LABELS_BYTES:])
    properties = {"team": "payments", "tier": "1"} | {f"p{number}": text for number, text in enumerate(rest)}
    return {"full_name": _REPOSITORY, "private": True, "default_branch": "main", "custom_properties": properties}


def _pieces(text: str) -> list[str]:
    return [text[start : start + 150] for start in range(0, len(text), 150)]


# The size in the full layout


def padding_for(shape: JobShape) -> str:
    """The text that makes a job as large as the shape says."""
    padding = ""
    for _ in range(20):
        missing = shape.size_bytes - full_layout_bytes(_folded(sample_events(0, shape, padding)))
        if missing == 0:
            break
        padding = padding[:missing] if missing < 0 else padding + "x" * missing
    return padding


def _folded(life: Iterable[tuple[str, SampleEvent | None]]) -> Item:
    job: Item | None = None
    for _, event in life:
        if isinstance(event, InternalEvent) or (event is not None and event.event == "workflow_job"):
            job = folded(job, _event(event))
    return {**(job or {}), "PK": JobKey(INSTALLATION, JobId(FIRST_JOB)).partition, "SK": "v"}


def _event(event: SampleEvent) -> JobEvent:
    if isinstance(event, InternalEvent):
        return internal_event(event, _BEGIN)
    return job_event(event, decoded(event.body, JobPayload), _BEGIN)


def full_layout_bytes(job: Item) -> int:
    """The size of the job with every attribute stored."""
    view = structs.asdict(job_view(job, Viewing(shipped_prices())))
    shown = {name: value for name, value in view.items() if value is not None and name not in _NOT_STORED}
    keys = {name: value for name, value in job.items() if name in ("PK", "SK", "GSI1-PK", "GSI2-PK", "GSI3-PK")}
    return item_bytes({**keys, **shown})
