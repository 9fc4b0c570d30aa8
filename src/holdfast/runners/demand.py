"""Which jobs want a runner. Pure.

The status index only proposes jobs; what counts is the job's own item, read consistently. In doubt a job waits: a
machine for a job that needs approval, or that has long ended, would be launched for nothing.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from holdfast.kernel.ids import InstallationId, JobId
from holdfast.kernel.instants import Instant

QUEUED_MOST_SECONDS: Final = 86_400  # GitHub cancels a job that has queued for a day
GATE_SECONDS: Final = 3  # a job with a deployment may be about to wait for approval
LATE_SECONDS: Final = 30  # a runner may have come and gone before so late a `queued` arrived

_WANTING: Final = ("queued", "scheduled")


class QueuedJob(Struct, frozen=True):
    """What a job's item says about its place in the queue. Times are milliseconds; None: not stored."""

    installation_id: InstallationId
    job_id: JobId
    repository: str
    labels: tuple[str, ...]
    status: str
    queued_ms: int | None
    waiting_ms: int | None = None
    names_deployment: bool = False
    received_ms: int | None = None  # when its first `queued` arrived
    is_asked: bool = False  # GitHub has confirmed since that it is queued


class Demand(StrEnum):
    """Whether a job wants a runner, and if not, why."""

    WANTED = "wants a runner"
    NOT_QUEUED = "is not queued"
    NEEDS_APPROVAL = "waits for an approval"
    TOO_OLD = "has been queued for more than a day"
    SETTLING = "has a deployment, and may be about to wait for an approval"
    ASK_GITHUB = "was announced late, so GitHub is asked first whether it is still queued"


def demand_of(job: QueuedJob, now: Instant) -> Demand:
    """Whether the job wants a runner at this moment."""
    if job.status not in _WANTING:
        return Demand.NOT_QUEUED
    if job.waiting_ms is not None and (job.queued_ms is None or job.waiting_ms >= job.queued_ms):
        return Demand.NEEDS_APPROVAL
    if job.queued_ms is None:
        return Demand.WANTED if job.is_asked else Demand.ASK_GITHUB
    queued_seconds = (now.epoch_ms - job.queued_ms) / 1000
    if queued_seconds >= QUEUED_MOST_SECONDS:
        return Demand.TOO_OLD
    if job.names_deployment and queued_seconds < GATE_SECONDS:
        return Demand.SETTLING
    if not job.is_asked and _is_late(job, job.queued_ms):
        return Demand.ASK_GITHUB
    return Demand.WANTED


def _is_late(job: QueuedJob, queued_ms: int) -> bool:
    """An unknown arrival counts as late."""
    return job.received_ms is None or job.received_ms - queued_ms > LATE_SECONDS * 1000
