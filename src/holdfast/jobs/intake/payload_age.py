"""The age of a delivery. An old one is a replay: GitHub redelivers for three days, GHES for seven.

The delivery id is not signed, so the payload's own times count as well. A job may wait 30 days for an approval, and no
time in its payload need say so: only the time of a start or an end is taken as it is.
"""

from typing import Final

from holdfast.jobs.intake.payloads import (
    DeploymentPayload,
    JobPayload,
    RunPayload,
    WorkflowJob,
)
from holdfast.jobs.intake.senders import RepositoryPayload
from holdfast.jobs.intake.webhook import Delivery, WebhookRefusal, WebhookRefused
from holdfast.jobs.model.times import is_too_old, parsed
from holdfast.kernel.instants import Instant

_WAIT_SECONDS: Final = 31 * 86_400  # 30 days for an approval, and one in the queue


def check_age(delivery: Delivery, payload: RepositoryPayload | None, now: Instant, most_seconds: float | None) -> None:
    """Raise WebhookRefused if the delivery is a replay. Without a payload, only its id counts.

    It is not acknowledged: if our clock is ahead, every delivery looks old, and the sweep requests it again later.
    """
    if most_seconds is None:
        return
    latest, may_have_waited = latest_time(payload) if payload is not None else (None, False)
    if is_too_old(delivery.id, now, most_seconds, latest, _WAIT_SECONDS if may_have_waited else 0):
        raise WebhookRefused(
            WebhookRefusal.TOO_OLD,
            f"sent more than {most_seconds:g} s ago by this machine's clock; GitHub would not redeliver it",
        )


def latest_time(payload: RepositoryPayload) -> tuple[Instant | None, bool]:
    """The latest time in the payload, and whether its event may have happened long after that."""
    if isinstance(payload, JobPayload):
        return _latest_of_job(payload, payload.workflow_job)
    found = [payload.workflow_run.updated_at, payload.workflow_run.created_at] if payload.workflow_run else []
    if isinstance(payload, DeploymentPayload) and payload.deployment:
        found += [payload.deployment.updated_at, payload.deployment.created_at]
    return _latest(found), not isinstance(payload, RunPayload)


def _latest_of_job(payload: JobPayload, job: WorkflowJob | None) -> tuple[Instant | None, bool]:
    if job is None:
        return None, True
    changed = {"in_progress": job.started_at, "completed": job.completed_at}.get(payload.action)
    gate = payload.deployment.updated_at if payload.deployment else None
    return _latest([job.created_at, job.started_at, job.completed_at, gate]), parsed(changed) is None


def _latest(texts: list[str | None]) -> Instant | None:
    return max((time for time in map(parsed, texts) if time is not None), default=None)
