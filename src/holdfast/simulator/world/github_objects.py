"""Runs and jobs of the simulated GitHub, their webhooks and API answers, and what a runner fleet reports about them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.kernel.ids import InstallationId, InstanceId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.github import JobSeen, RunSeen

APP_ID = 99
SERVER = "https://github.com"


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job to create. With an `environment` it waits for an approval first."""

    name: str
    environment: str | None = None
    labels: tuple[str, ...] = ("self-hosted",)


@dataclass(slots=True)
class SimJob:
    """The current state of a job."""

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
    runner_group_id: int | None = None
    deployment_id: int | None = None
    review: str | None = None  # approved or rejected
    changed: Instant | None = None


@dataclass(frozen=True, slots=True)
class RunDetails:
    """The workflow, commit and repository of a run."""

    workflow_name: str = "CI"
    workflow_id: int = 31
    branch: str | None = None
    sha: str | None = None
    is_private: bool = True
    team: str | None = None  # a custom property of the repository


@dataclass(slots=True)
class SimRun:
    """The current state of a run. `ordinal` counts runs from 0; `later` has the stages whose jobs do not exist yet."""

    id: RunId
    installation: InstallationId
    repository: str
    created: Instant
    ordinal: int = 0
    details: RunDetails = field(default_factory=RunDetails)
    attempt: int = 1
    status: str = "queued"
    conclusion: str | None = None
    updated: Instant | None = None
    webhooks: int = 0  # so far
    jobs: list[SimJob] = field(default_factory=list)  # of all attempts
    later: list[Sequence[JobPlan]] = field(default_factory=list)

    def jobs_of(self, attempt: int) -> list[SimJob]:
        return [job for job in self.jobs if job.run_attempt == attempt]


@dataclass(slots=True)
class Webhook:
    """A webhook about a run or one of its jobs. `number` identifies it, whatever happens to other webhooks."""

    number: int
    event: str
    action: str
    guid: str
    body: bytes
    run: SimRun
    run_attempt: int
    job: SimJob | None = None
    attempts: int = 0
    target: int = APP_ID  # whose hook it is; GitHub's log has the App's deliveries only

    def headers(self, signature: str) -> dict[str, str]:
        return {
            "x-github-event": self.event,
            "x-github-delivery": self.guid,
            "x-github-hook-installation-target-id": str(self.target),
            "x-hub-signature-256": signature,
            "content-type": "application/json",
        }


@dataclass(frozen=True, slots=True)
class RunnerReport:
    """An event of a job's runner, as a runner fleet reports it. Reporting it again changes nothing."""

    run: SimRun
    job: SimJob
    kind: str
    at: Instant
    instance: InstanceId | None
    number: int = 0
    attempt: int = 1
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """The request to the API for runner events."""
        event: dict[str, Any] = {"type": self.kind, "at": self.at.iso(), "attempt": self.attempt}
        event["attributes"] = self.attributes
        if self.instance:
            event["instance_id"] = self.instance
        return json.dumps(event).encode()


def seen_run(run: SimRun) -> RunSeen:
    return RunSeen(run.id, run.attempt, run.status, run.conclusion, run.updated or run.created, run.created)


def seen_job(run: SimRun, job: SimJob) -> JobSeen:
    return JobSeen(
        id=job.id,
        run_id=job.run_id,
        run_attempt=job.run_attempt,
        status=job.status,
        conclusion=job.conclusion,
        name=job.name,
        workflow_name=run.details.workflow_name,
        head_sha=run.details.sha,
        head_branch=run.details.branch,
        created_at=job.created.iso_seconds(),
        started_at=(job.started or job.created).iso_seconds(),
        completed_at=job.completed.iso_seconds() if job.completed else None,
        labels=job.labels,
        runner_id=job.runner_id,
        runner_name=job.runner_name,
        runner_group_id=job.runner_group_id,
    )


def job_json(run: SimRun, job: SimJob) -> dict[str, Any]:
    return asdict(seen_job(run, job)) | {"labels": list(job.labels)}


def run_json(run: SimRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "run_attempt": run.attempt,
        "status": run.status,
        "conclusion": run.conclusion,
        "name": run.details.workflow_name,
        "workflow_id": run.details.workflow_id,
        "head_sha": run.details.sha,
        "head_branch": run.details.branch,
        "created_at": run.created.iso_seconds(),
        "run_started_at": run.created.iso_seconds(),
        "updated_at": (run.updated or run.created).iso_seconds(),
    }


def deployment_json(job: SimJob, now: Instant) -> dict[str, Any]:
    return {
        "id": job.deployment_id,
        "environment": job.environment,
        "created_at": job.created.iso_seconds(),
        "updated_at": now.iso_seconds(),
    }


def repository_json(run: SimRun) -> dict[str, Any]:
    found = {
        "full_name": run.repository,
        "html_url": f"{SERVER}/{run.repository}",
        "private": run.details.is_private,
        "default_branch": "main",
    }
    return found | ({"custom_properties": {"team": run.details.team}} if run.details.team else {})
