"""Jobs and their events as they are shown: with the seeds' attribute names, derived ones included."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from msgspec import UNSET, UnsetType, field

from holdfast.jobs.cost.prices import Prices, cost_of
from holdfast.jobs.model.durations import Moments, is_carried_over, moments_of
from holdfast.jobs.model.job import rank_ms
from holdfast.jobs.model.keys import job_key_of, run_key_of
from holdfast.jobs.model.machines import was_interrupted, with_own_machine
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Count, Money, OpenShape, Shape, Time
from holdfast.ports.store import Item, Value

GITHUB: Final = "https://github.com"
TEAM_PROPERTY: Final = "team"
JobStatus = Literal["queued", "waiting", "scheduled", "in_progress", "completed"]


class JobView(Shape, frozen=True, kw_only=True):
    """A job with every attribute of the seed. What is unknown, or not known yet, is None."""

    installation_id: Count
    job_id: Count
    run_id: Count | None
    run_attempt: Count | None
    org_name: str | None
    repo_full_name: str | None
    repo_is_private: bool
    workflow_id: Count | None
    job_html_url: str | None
    workflow_name: str | None
    job_name: str | None
    head_sha: str | None
    default_branch: str | None
    status: JobStatus | None
    conclusion: str | None
    created_at: Time | None
    received_at: Time | None
    scheduled_at: Time | None
    started_at: Time | None
    completed_at: Time | None
    instance_id: str | None
    instance_type: str | None
    instance_lifecycle: str | None
    fleet_id: str | None
    pool_name: str | None
    runner_id: Count | None
    runner_name: str | None
    runner_group_id: Count | None
    labels: list[str] | None
    deployment_id: Count | None
    custom_properties: dict[str, object] | None
    ttl: Count | None
    was_interrupted: bool
    is_carried_over: bool
    usage_in_seconds: Count | None
    usage_in_dollars: Money | None
    usage_in_dollars_is_estimate: bool | None
    internal_queue_duration_in_ms: Count | None
    overall_queue_duration_in_ms: Count | None
    approval_duration_in_ms: Count | None
    stages_in_ms: dict[str, Count | None]
    scheduling_attempt: Count | None
    last_updated_at: Time | None


class AttributeChange(Shape, frozen=True, kw_only=True):
    """An attribute's value before and after an event."""

    before: object = field(name="from")
    after: object = field(name="to")


class JobEventView(OpenShape, frozen=True, kw_only=True):
    """An entry of a job's history. Entries of an older deployment may lack what is UNSET here."""

    installation_id: Count
    job_id: Count
    timestamp: Time
    event_type: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    received_by: str | UnsetType = UNSET
    received_at: Time | UnsetType = UNSET
    deliveries: Count | UnsetType = UNSET
    ttl: Count | UnsetType = UNSET
    action: str | UnsetType = UNSET
    delivery: str | UnsetType = UNSET
    changes: dict[str, AttributeChange] | UnsetType = UNSET
    changes_lost: bool | UnsetType = UNSET


_EVENT_ATTRIBUTES: Final = (
    "event_type",
    "status",
    "source",
    "received_by",
    "received_at",
    "deliveries",
    "ttl",
    "action",
    "delivery",
    "changes_lost",
)


@dataclass(frozen=True, slots=True)
class Viewing:
    """What a view needs beside the item: where GitHub is, what machines cost, and which property names the team."""

    prices: Prices
    github: str = GITHUB
    team_property: str = TEAM_PROPERTY


# Shown as they are stored; None if the item lacks them.
_AS_STORED: Final = (
    "workflow_name",
    "job_name",
    "head_sha",
    "default_branch",
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
    "deployment_id",
    "custom_properties",
    "ttl",
    "scheduling_attempt",
)


def job_view(job: Item, viewing: Viewing, workflow_id: int | None = None) -> JobView:
    """`workflow_id`: the run has it, not the job."""
    key = job_key_of(job["PK"])
    is_interrupted, job = was_interrupted(job), with_own_machine(job)
    run = run_key_of(job["GSI3-PK"]) if "GSI3-PK" in job else None
    repository = repository_of(job)
    moments = moments_of(job)
    cost = cost_of(job, viewing.prices) if "completed_at" in job else None
    return JobView(
        **{name: job.get(name) for name in _AS_STORED},
        installation_id=key.installation_id,
        job_id=key.job_id,
        run_id=run.run_id if run else None,
        run_attempt=run.run_attempt if run else None,
        org_name=repository.partition("/")[0] if repository else None,
        repo_full_name=repository,
        repo_is_private=job.get("repo_is_private", False),
        workflow_id=workflow_id,
        job_html_url=f"{viewing.github}/{repository}/actions/runs/{run.run_id}/job/{key.job_id}"
        if run and repository
        else None,
        status=job.get("status") or _status_of(job),
        labels=_labels_of(job),
        was_interrupted=is_interrupted,
        is_carried_over=is_carried_over(job),
        usage_in_seconds=moments.run_seconds,
        usage_in_dollars=cost.usd if cost else None,
        usage_in_dollars_is_estimate=cost.is_estimate if cost else None,
        internal_queue_duration_in_ms=moments.internal_queue_ms,
        overall_queue_duration_in_ms=moments.overall_queue_ms,
        approval_duration_in_ms=moments.approval_ms,
        stages_in_ms=moments.stages_ms(),
        last_updated_at=_last_updated(job, moments),
    )


def _labels_of(job: Mapping[str, Value]) -> list[str] | None:
    labels = job.get("labels")
    return None if labels is None else sorted(labels) if isinstance(labels, frozenset) else list(labels)


def _last_updated(job: Mapping[str, Value], moments: Moments) -> str | None:
    """The latest of the moments that the item holds; the same in whatever order they arrived."""
    known = [time for time in (moments.created, moments.scheduled, moments.attached, moments.terminated) if time]
    if rank_ms(job):
        known.append(Instant(rank_ms(job)))
    return max(known).iso() if known else None


def repository_of(job: Mapping[str, Value]) -> str | None:
    """The repository in the key of the index by repository."""
    return job["GSI2-PK"].partition("#")[2] if "GSI2-PK" in job else None


def _status_of(job: Mapping[str, Value]) -> Value:
    return job["GSI1-PK"].partition("#")[2] if "GSI1-PK" in job else None


def event_view(entry: Item) -> JobEventView:
    key = job_key_of(entry["PK"])
    stored = {name: value for name, value in entry.items() if name not in ("PK", "SK")}
    known = {name: stored.pop(name) for name in _EVENT_ATTRIBUTES if name in stored}
    return JobEventView(
        installation_id=key.installation_id,
        job_id=key.job_id,
        timestamp=entry["SK"].partition("#")[0],
        changes={name: _change(change) for name, change in stored.pop("changes").items()}
        if "changes" in stored
        else UNSET,
        **known,
        extra=stored,
    )


def _change(stored: Mapping[str, Value]) -> AttributeChange:
    return AttributeChange(before=stored.get("from"), after=stored.get("to"))
