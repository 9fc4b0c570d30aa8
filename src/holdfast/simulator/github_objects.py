"""What the simulated GitHub has: runs, jobs, and how they look in webhooks and in answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.kernel.ids import InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.github import JobSeen


@dataclass(frozen=True, slots=True)
class GitHubHabits:
    """How deliveries fare. Shares are of all deliveries."""

    delay_seconds: tuple[float, float] = (0.2, 2.0)
    late_share: float = 0.0
    late_seconds: float = 300.0
    lost_share: float = 0.0
    repeated_share: float = 0.0
    calls_per_hour: int = 5000


@dataclass(slots=True)
class SimJob:
    """A job, as it is. `environment`: it waits for an approval first."""

    id: JobId
    run_id: RunId
    run_attempt: int
    name: str
    environment: str | None
    created: Instant
    labels: tuple[str, ...]
    status: str = "queued"
    conclusion: str | None = None
    started: Instant | None = None
    completed: Instant | None = None
    runner_id: int | None = None
    runner_name: str | None = None
    deployment_id: int | None = None
    review: str | None = None  # approved or rejected
    changed: Instant | None = None


@dataclass(frozen=True, slots=True)
class JobPlan:
    name: str
    environment: str | None = None
    labels: tuple[str, ...] = ("self-hosted",)


@dataclass(slots=True)
class SimRun:
    """A run. `ordinal`: which one it is, from 0 up; `later`: stages whose jobs are not there yet."""

    id: RunId
    installation: InstallationId
    repository: str
    created: Instant
    ordinal: int = 0
    attempt: int = 1
    status: str = "queued"
    conclusion: str | None = None
    updated: Instant | None = None
    sent: int = 0  # webhooks so far
    jobs: list[SimJob] = field(default_factory=list)  # of all attempts
    later: list[Sequence[JobPlan]] = field(default_factory=list)

    def jobs_of(self, attempt: int) -> list[SimJob]:
        return [job for job in self.jobs if job.run_attempt == attempt]


@dataclass(slots=True)
class Sent:
    """One webhook: of a run, and perhaps of one of its jobs. `number` says which one, whatever befell the others."""

    number: int
    event: str
    action: str
    guid: str
    body: bytes
    run: SimRun
    run_attempt: int
    job: SimJob | None = None
    attempts: int = 0


def seen_job(job: SimJob) -> JobSeen:
    return JobSeen(
        id=job.id,
        run_id=job.run_id,
        run_attempt=job.run_attempt,
        status=job.status,
        conclusion=job.conclusion,
        name=job.name,
        workflow_name="CI",
        created_at=job.created.iso_seconds(),
        started_at=(job.started or job.created).iso_seconds(),
        completed_at=job.completed.iso_seconds() if job.completed else None,
        labels=job.labels,
        runner_id=job.runner_id,
        runner_name=job.runner_name,
    )


def job_json(job: SimJob) -> dict[str, Any]:
    found = seen_job(job)
    return {name: getattr(found, name) for name in JobSeen.__dataclass_fields__} | {"labels": list(job.labels)}


def run_json(run: SimRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "run_attempt": run.attempt,
        "status": run.status,
        "conclusion": run.conclusion,
        "name": "CI",
        "workflow_id": 31,
        "created_at": run.created.iso_seconds(),
        "run_started_at": run.created.iso_seconds(),
        "updated_at": (run.updated or run.created).iso_seconds(),
    }
