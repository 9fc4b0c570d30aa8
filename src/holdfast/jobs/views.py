"""Items as people and programs see them: all of the seeds' attributes, those that are derived among them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.jobs.cost import Prices, cost_of
from holdfast.jobs.durations import Moments, moments_of
from holdfast.jobs.job import rank_ms
from holdfast.jobs.keys import job_key_of, run_key_of
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Value

GITHUB: Final = "https://github.com"
_AS_STORED: Final = (
    "workflow_name",
    "job_name",
    "head_sha",
    "default_branch",
    "status",
    "conclusion",
    "created_at",
    "received_at",
    "scheduled_at",
    "started_at",
    "completed_at",
    "instance_id",
    "instance_type",
    "instance_lifecycle",
    "fleet_id",
    "pool_name",
    "runner_id",
    "runner_name",
    "runner_group_id",
    "labels",
    "deployment_id",
    "custom_properties",
    "ttl",
)

View = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Viewing:
    """What is needed to show an item beside the item: where GitHub is, and what machines cost."""

    prices: Prices
    github: str = GITHUB


def job_view(job: Mapping[str, Value], viewing: Viewing) -> View:
    """The job with every attribute of the seed. What is not known is left out of it as None."""
    key = job_key_of(job["PK"])
    found: View = {"installation_id": key.installation_id, "job_id": key.job_id}
    run = run_key_of(job["GSI3-PK"]) if "GSI3-PK" in job else None
    repository = repository_of(job)
    found |= {
        "run_id": run.run_id if run else None,
        "run_attempt": run.run_attempt if run else None,
        "org_name": repository.partition("/")[0] if repository else None,
        "repo_full_name": repository,
        "repo_is_private": job.get("repo_is_private", False),
        "workflow_id": None,  # the run knows it
        "job_html_url": f"{viewing.github}/{repository}/actions/runs/{run.run_id}/job/{key.job_id}"
        if run and repository
        else None,
    }
    found |= {name: job.get(name) for name in _AS_STORED}
    found["status"] = found["status"] or _status_of(job)
    if isinstance(found["labels"], frozenset):  # an older deployment's
        found["labels"] = sorted(found["labels"])
    found["was_interrupted"] = job.get("was_interrupted", False)
    return found | _measures(job, viewing)


def _measures(job: Mapping[str, Value], viewing: Viewing) -> View:
    moments = moments_of(job)
    cost = cost_of(job, viewing.prices) if "completed_at" in job else None
    return {
        "usage_in_seconds": moments.run_seconds,
        "usage_in_dollars": cost.usd if cost else None,
        "usage_in_dollars_is_estimate": cost.is_estimate if cost else None,
        "internal_queue_duration_in_ms": moments.internal_queue_ms,
        "overall_queue_duration_in_ms": moments.overall_queue_ms,
        "approval_duration_in_ms": moments.approval_ms if moments.waiting else None,
        "stages_in_ms": moments.stages_ms(),
        "scheduling_attempt": job.get("scheduling_attempt"),
        "last_updated_at": _last_updated(job, moments),
    }


def _last_updated(job: Mapping[str, Value], moments: Moments) -> str | None:
    """The latest of the moments that the item holds: the same, in whatever order they were told."""
    known = [time for time in (moments.created, moments.scheduled, moments.attached, moments.terminated) if time]
    if rank_ms(job):
        known.append(Instant(rank_ms(job)))
    return max(known).iso() if known else None


def repository_of(job: Mapping[str, Value]) -> str | None:
    """The repository that the key of the index by repository names."""
    return job["GSI2-PK"].partition("#")[2] if "GSI2-PK" in job else None


def _status_of(job: Mapping[str, Value]) -> str | None:
    return job["GSI1-PK"].partition("#")[2] if "GSI1-PK" in job else None


def event_view(entry: Item) -> View:
    key = job_key_of(entry["PK"])
    timestamp = entry["SK"].partition("#")[0]
    shown = {name: value for name, value in entry.items() if name not in ("PK", "SK")}
    return {"installation_id": key.installation_id, "job_id": key.job_id, "timestamp": timestamp, **shown}


def run_view(run: Item, viewing: Viewing) -> View:
    """The run: what workflow_run said, or what its jobs tell where it said nothing yet."""
    key = run_key_of(run["PK"])
    is_open, done, failed = (sorted(run.get(name, ())) for name in ("open", "done", "failed"))
    counts = {"total_jobs": len(is_open) + len(done), "completed_jobs": len(done), "failed_jobs": len(failed)}
    if not is_open and not done:  # an older deployment counted without naming them
        counts = {name: run.get(name, 0) for name in counts}
    repository = run.get("repo_full_name")
    return {
        "installation_id": key.installation_id,
        "run_id": key.run_id,
        "run_attempt": key.run_attempt,
        "repo_full_name": repository,
        "workflow_name": run.get("workflow_name"),
        "workflow_id": run.get("workflow_id"),
        "head_sha": run.get("head_sha"),
        "head_branch": run.get("head_branch"),
        "run_html_url": f"{viewing.github}/{repository}/actions/runs/{key.run_id}" if repository else None,
        "status": run.get("status") or ("completed" if done and not is_open else "in_progress" if done else "queued"),
        "conclusion": run.get("conclusion") or conclusion_of_jobs(run),
        "created_at": run.get("created_at"),
        "updated_at": run.get("updated_at"),
        **counts,
        "open_job_ids": is_open,
        "failed_job_ids": failed,
        "is_complete": is_complete(run),
        "retry": run.get("retry"),
        "ttl": run.get("ttl"),
    }


def is_complete(run: Item) -> bool:
    """No job is open. GitHub may still add some, unless it has said that the run is over."""
    return bool(run.get("done")) and not run.get("open")


def conclusion_of_jobs(run: Item) -> str | None:
    """What the jobs imply, while GitHub has not said it."""
    if not is_complete(run):
        return None
    return "failure" if run.get("failed") else "success"


def deployment_view(deployment: Item, jobs: list[Item]) -> View:
    """The deployment; an approval that nobody told of is seen from a job that went on."""
    key = job_key_of(deployment["PK"])
    shown = {name: deployment.get(name) for name in ("repo_full_name", "environment", "run_id", "run_attempt")}
    view = {
        "installation_id": key.installation_id,
        "deployment_id": int(key.job_id),
        **shown,
        "status": deployment.get("status", "pending"),
        "requires_approval": deployment.get("requires_approval", False),
        "created_at": deployment.get("created_at"),
        "approved_at": deployment.get("approved_at"),
        "rejected_at": deployment.get("rejected_at"),
        "is_inferred": False,
        "job_ids": sorted(deployment.get("job_ids", ())),
        "ttl": deployment.get("ttl"),
    }
    released = [moment for moment in map(_went_on, jobs) if moment is not None]
    if view["status"] == "pending" and released:
        view |= {"status": "approved", "approved_at": min(released).iso(), "is_inferred": True}
    return view


def _went_on(job: Item) -> Instant | None:
    """When the job went on: past its gate, or to a runner."""
    moments = moments_of(job)
    if moments.waiting is None:
        return moments.started
    if moments.queued is not None and moments.queued > moments.waiting:
        return moments.queued
    return moments.started
