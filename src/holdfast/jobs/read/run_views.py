"""Runs and deployments as they are shown: with the seeds' attribute names, derived ones included."""

from typing import Literal

from msgspec import structs

from holdfast.jobs.model.durations import moments_of
from holdfast.jobs.model.facts import FAILED
from holdfast.jobs.model.keys import job_key_of, run_key_of
from holdfast.jobs.read.item_views import Viewing
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Count, Shape, Time
from holdfast.ports.store import Item


class RunView(Shape, frozen=True, kw_only=True):
    """One attempt of a workflow run. `conclusion` is GitHub's; its jobs do not imply it, so None means unknown."""

    installation_id: Count
    run_id: Count
    run_attempt: Count
    repo_full_name: str | None
    workflow_name: str | None
    workflow_id: Count | None
    head_sha: str | None
    head_branch: str | None
    run_html_url: str | None
    status: str
    conclusion: str | None
    created_at: Time | None
    updated_at: Time | None
    total_jobs: Count
    completed_jobs: Count
    failed_jobs: Count
    open_job_ids: list[Count]
    failed_job_ids: list[Count]
    is_complete: bool
    retry: dict[str, object] | None
    ttl: Count | None


class DeploymentView(Shape, frozen=True, kw_only=True):
    """A deployment. `is_inferred`: no review was reported; what happened to its jobs implies the status.

    `not_required`: nothing waits for it, as its environment has no rule, or no workflow made it. `cancelled`: its jobs
    ended without a decision.
    """

    installation_id: Count
    deployment_id: Count
    repo_full_name: str | None
    environment: str | None
    run_id: Count | None
    run_attempt: Count | None
    status: Literal["pending", "approved", "rejected", "not_required", "cancelled"]
    requires_approval: bool
    created_at: Time | None
    approved_at: Time | None
    rejected_at: Time | None
    is_inferred: bool
    job_ids: list[Count]
    ttl: Count | None


def run_view(run: Item, viewing: Viewing) -> RunView:
    """The run as workflow_run reported it; before that, its status is what its jobs imply.

    Its conclusion is not implied: a failed job may be allowed to fail, a cancelled or skipped one says nothing, and
    another stage may follow.
    """
    key = run_key_of(run["PK"])
    is_open, done, failed = (sorted(run.get(name, ())) for name in ("open", "done", "failed"))
    total, completed, failures = len(is_open) + len(done), len(done), len(failed)
    if not is_open and not done:  # an older deployment counted without naming them
        total, completed, failures = (run.get(name, 0) for name in ("total_jobs", "completed_jobs", "failed_jobs"))
    repository = run.get("repo_full_name")
    return RunView(
        installation_id=key.installation_id,
        run_id=key.run_id,
        run_attempt=key.run_attempt,
        repo_full_name=repository,
        workflow_name=run.get("workflow_name"),
        workflow_id=run.get("workflow_id"),
        head_sha=run.get("head_sha"),
        head_branch=run.get("head_branch"),
        run_html_url=f"{viewing.github}/{repository}/actions/runs/{key.run_id}" if repository else None,
        status=run.get("status") or ("completed" if done and not is_open else "in_progress" if done else "queued"),
        conclusion=run.get("conclusion"),
        created_at=run.get("created_at"),
        updated_at=run.get("updated_at"),
        total_jobs=total,
        completed_jobs=completed,
        failed_jobs=failures,
        open_job_ids=is_open,
        failed_job_ids=failed,
        is_complete=is_complete(run),
        retry=run.get("retry"),
        ttl=run.get("ttl"),
    )


def is_complete(run: Item) -> bool:
    """No job is open. GitHub may still add some until it reports the run as completed."""
    return bool(run.get("done")) and not run.get("open")


def deployment_view(deployment: Item, jobs: list[Item]) -> DeploymentView:
    """The deployment. Only GitHub Apps get reviews: without one, its status is inferred from its jobs."""
    key = job_key_of(deployment["PK"])
    view = DeploymentView(
        installation_id=key.installation_id,
        deployment_id=int(key.job_id),
        repo_full_name=deployment.get("repo_full_name"),
        environment=deployment.get("environment"),
        run_id=deployment.get("run_id"),
        run_attempt=deployment.get("run_attempt"),
        status=deployment.get("status", "pending"),
        requires_approval=deployment.get("requires_approval", False),
        created_at=deployment.get("created_at"),
        approved_at=deployment.get("approved_at"),
        rejected_at=deployment.get("rejected_at"),
        is_inferred=False,
        job_ids=sorted(deployment.get("job_ids", ())),
        ttl=deployment.get("ttl"),
    )
    return view if view.status != "pending" else structs.replace(view, **_inferred(view, jobs))


def _inferred(view: DeploymentView, jobs: list[Item]) -> dict[str, object]:
    """What the jobs of a deployment without a decision imply; nothing while one of them may still wait."""
    is_gated = view.requires_approval or any("waiting_ms" in job for job in jobs)
    continued = [moment for moment in map(_continued_at, jobs) if moment is not None]
    if continued and is_gated:
        return {"status": "approved", "approved_at": min(continued).iso(), "is_inferred": True}
    if continued or (not is_gated and not jobs and view.run_id is None):
        return {"status": "not_required", "is_inferred": True}
    ends = [moment for moment in (moments_of(job).completed for job in jobs) if moment is not None]
    if not jobs or len(ends) < len(jobs):
        return {}
    # GitHub fails a job whose deployment is rejected.
    if is_gated and any(job.get("conclusion") in FAILED for job in jobs):
        return {"status": "rejected", "rejected_at": min(ends).iso(), "is_inferred": True}
    return {"status": "cancelled", "is_inferred": True}


def _continued_at(job: Item) -> Instant | None:
    """When the job passed its gate, or got a runner."""
    moments = moments_of(job)
    if moments.waiting is None:
        return moments.started
    if moments.queued is not None and moments.queued > moments.waiting:
        return moments.queued
    return moments.started
