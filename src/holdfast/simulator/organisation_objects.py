"""What the simulated organisation has: runs, jobs, and how they look in its post."""

from dataclasses import dataclass, field
from typing import Any

from holdfast.kernel.instants import Instant
from holdfast.simulator.workplace import JobKind, Repository, Workflow


@dataclass(frozen=True, slots=True)
class Webhook:
    event: str
    guid: str
    body: bytes


@dataclass(frozen=True, slots=True)
class RunnerTold:
    """What the fleet tells of a job's runner, as the API for it takes it."""

    job_id: int
    body: bytes


Parcel = Webhook | RunnerTold


@dataclass(slots=True)
class Job:
    id: int
    run: "Run"
    kind: JobKind
    created: Instant
    status: str = "queued"
    conclusion: str | None = None
    started: Instant | None = None
    completed: Instant | None = None
    deployment: int | None = None
    released: Instant | None = None
    runner: int | None = None
    attempt: int = 1
    instance: str = ""
    market: str = "spot"
    is_interrupted: bool = False


@dataclass(slots=True)
class Run:
    id: int
    repository: Repository
    workflow: Workflow
    branch: str
    sha: str
    created: Instant
    attempt: int = 1
    stage: int = 0
    status: str = "queued"
    conclusion: str | None = None
    open: set[int] = field(default_factory=set)
    failed: list[JobKind] = field(default_factory=list)


def job_json(job: Job) -> dict[str, Any]:
    run = job.run
    return {
        "id": job.id,
        "run_id": run.id,
        "run_attempt": run.attempt,
        "workflow_name": run.workflow.name,
        "name": job.kind.name,
        "status": job.status,
        "conclusion": job.conclusion,
        "head_branch": run.branch,
        "head_sha": run.sha,
        "created_at": job.created.iso_seconds(),
        "started_at": (job.started or job.created).iso_seconds(),
        "completed_at": job.completed.iso_seconds() if job.completed else None,
        "labels": ["self-hosted", "linux", job.kind.pool],
        "runner_id": job.runner,
        "runner_name": f"{job.kind.pool}-{job.instance[-6:]}" if job.runner else None,
        "runner_group_id": 1 if job.runner else None,
    }


def run_json(run: Run, now: Instant) -> dict[str, Any]:
    return {
        "id": run.id,
        "run_attempt": run.attempt,
        "status": run.status,
        "conclusion": run.conclusion,
        "name": run.workflow.name,
        "workflow_id": run.workflow.id,
        "head_sha": run.sha,
        "head_branch": run.branch,
        "created_at": run.created.iso_seconds(),
        "run_started_at": run.created.iso_seconds(),
        "updated_at": now.iso_seconds(),
    }
