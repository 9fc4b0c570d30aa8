"""Finds stuck jobs: those that have had one status for too long."""

from dataclasses import dataclass

from holdfast.jobs.model.durations import moments_of
from holdfast.jobs.model.facts import Status
from holdfast.jobs.read.queries import FoundItems, Paging, Span, jobs_by_status
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Store


@dataclass(frozen=True, slots=True)
class StuckLimits:
    """How long a job may have a status before it is stuck. GitHub fails a job that waits for 30 days."""

    in_progress_seconds: int = 6 * 3600
    queued_seconds: int = 900
    scheduled_seconds: int = 900
    waiting_seconds: int = 30 * 86_400

    def seconds(self, status: Status) -> int:
        match status:
            case Status.IN_PROGRESS:
                return self.in_progress_seconds
            case Status.QUEUED:
                return self.queued_seconds
            case Status.SCHEDULED:
                return self.scheduled_seconds
            case Status.WAITING:
                return self.waiting_seconds
            case Status.COMPLETED:
                raise BadRequest("a completed job is never stuck")


def stuck_jobs(
    store: Store,
    installation: InstallationId,
    status: Status,
    now: Instant,
    limits: StuckLimits,
    paging: Paging,
) -> FoundItems:
    """The oldest first. The index is ordered by creation, which comes before all else: nothing stuck is left out."""
    limit = limits.seconds(status)
    span = Span(until=now.plus(-limit))
    found = jobs_by_status(store, installation, status, span, paging, whole=True)
    return FoundItems(
        [job for job in found.items if seconds_in_status(job, status, now) > limit], found.cursor, found.examined
    )


def seconds_in_status(job: Item, status: Status, now: Instant) -> float:
    """How long the job has had this status."""
    moments = moments_of(job)
    since = {
        Status.IN_PROGRESS: moments.started,
        Status.SCHEDULED: moments.scheduled,
        Status.QUEUED: moments.queued,
        Status.WAITING: moments.waiting,
    }.get(status)
    begin = since or moments.created
    return now.seconds_since(begin) if begin is not None else 0.0
