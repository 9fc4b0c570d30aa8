"""Jobs that are where they are for too long."""

from dataclasses import dataclass

from holdfast.jobs.durations import moments_of
from holdfast.jobs.facts import Status
from holdfast.jobs.queries import Found, Paging, Span, jobs_by_status
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Store


@dataclass(frozen=True, slots=True)
class Patience:
    """After how long a job counts as stuck. Waiting for people is no fault of ours, but 30 days end it."""

    in_progress_seconds: int = 6 * 3600
    queued_seconds: int = 900
    scheduled_seconds: int = 900
    waiting_seconds: int = 30 * 86_400

    def seconds(self, status: Status) -> int:
        if status is Status.COMPLETED:
            raise BadRequest("a completed job is never stuck")
        return int(getattr(self, f"{status}_seconds"))


def stuck_jobs(
    store: Store,
    installation: InstallationId,
    status: Status,
    now: Instant,
    patience: Patience,
    paging: Paging,
) -> Found:
    """The oldest first. The index is ordered by creation, which comes before all else: nothing stuck is left out."""
    limit = patience.seconds(status)
    span = Span(until=now.plus(-limit))
    found = jobs_by_status(store, installation, status, span, paging, whole=True)
    return Found([job for job in found.items if seconds_there(job, status, now) > limit], found.cursor, found.examined)


def seconds_there(job: Item, status: Status, now: Instant) -> float:
    """How long the job has had this status, as far as the item tells."""
    moments = moments_of(job)
    since = {
        Status.IN_PROGRESS: moments.started,
        Status.SCHEDULED: moments.scheduled,
        Status.QUEUED: moments.queued,
        Status.WAITING: moments.waiting,
    }.get(status)
    begin = since or moments.created
    return now.seconds_since(begin) if begin is not None else 0.0
