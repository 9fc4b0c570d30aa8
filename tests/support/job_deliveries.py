"""Webhook deliveries of one job's life."""

from typing import Any

from holdfast.jobs.intake.internal_events import InternalEvent, InternalType
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import Delivery
from holdfast.jobs.model.keys import DeploymentKey, JobKey
from holdfast.kernel.ids import DeploymentId, InstallationId, InstanceId, JobId
from tests.payloads import CREATED, INSTALLATION_ID, JOB_ID, delivery, job_payload, sample

INSTALLATION = InstallationId(INSTALLATION_ID)
JOB = JobKey(INSTALLATION, JobId(JOB_ID))
DEPLOYMENT = DeploymentKey(INSTALLATION, DeploymentId(1_600_000_001))
Said = Delivery | InternalEvent


def job(action: str, seconds: float, number: int = 0, **fields: Any) -> Delivery:
    at = CREATED.plus(seconds)
    started = CREATED.plus(fields.pop("started")) if "started" in fields else None
    return delivery("workflow_job", job_payload(action, at=at, started=started, **fields), at, number)


def run(action: str, seconds: float, conclusion: str | None = None, **fields: Any) -> Delivery:
    payload = sample("workflow_run")
    at = CREATED.plus(seconds)
    payload["action"] = action
    payload["workflow_run"] |= {"status": action, "conclusion": conclusion, "updated_at": at.iso_seconds(), **fields}
    return delivery("workflow_run", payload, at)


def review(action: str, seconds: float, **fields: Any) -> Delivery:
    return delivery(
        "deployment_review", sample("deployment_review") | {"action": action, **fields}, CREATED.plus(seconds)
    )


def internal(kind: InternalType, seconds: float, attempt: int = 1, key: JobKey = JOB) -> InternalEvent:
    instance = InstanceId(f"i-0123456789abcde{attempt:02d}")
    attributes = {"instance_type": "m7i.xlarge", "instance_lifecycle": "spot"} if kind is InternalType.SCHEDULED else {}
    return InternalEvent(key, kind, CREATED.plus(seconds), attempt, instance, attributes)


def plain() -> list[Said]:
    return [
        run("requested", -2),
        job("queued", 0.4),
        internal(InternalType.SCHEDULED, 2),
        internal(InternalType.ATTACHED, 4),
        job("in_progress", 31.2),
        job("completed", 90.9, started=31, conclusion="failure"),
        run("completed", 95, "failure"),
    ]


def gated() -> list[Said]:
    gate = DEPLOYMENT.deployment_id
    return [
        job("queued", 0.4, deployment=gate),
        job("waiting", 1.9, deployment=gate),
        review("approved", 180),
        job("queued", 180.1, deployment=gate),
        job("in_progress", 211.2, deployment=gate),
        job("completed", 270.9, started=211, deployment=gate),
    ]


def say(tracker: Tracker, said: Said) -> None:
    if isinstance(said, Delivery):
        tracker.receive(said)
    else:
        tracker.record_event(said)
