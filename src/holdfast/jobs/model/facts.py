"""An event as facts about one job. `job.py` folds the facts into the job.

Each attribute of a job has one kind of source, so no event overwrites what another has set:

    identity     any webhook; the first one sets it
    deployment   any event that names one
    gate         queued and waiting: the latest time of each
    scheduling   the runner fleet's events, each of one scheduling attempt
    interrupted  the runner fleet's events: the machines that EC2 reclaimed
    runner       in_progress and completed, which agree; its name decides the job's machine (`machines.py`)
    end          completed
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.jobs.intake import bounds
from holdfast.jobs.intake.payloads import Deployment, JobPayload, UnusablePayload, WorkflowJob
from holdfast.jobs.intake.webhook import Delivery, short_mark
from holdfast.jobs.model.keys import JobKey, RunKey, by_repository
from holdfast.jobs.model.times import not_before, parsed, seconds_text, sent_at
from holdfast.kernel.ids import DeploymentId, InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.kernel.label_sets import label_set_hash
from holdfast.kernel.text import cut
from holdfast.ports.store import Value
from holdfast.ports.store.values import item_bytes

KEPT_SECONDS: Final = 90 * 86_400
LABELS_HASH_DIGITS: Final = 16  # the first ones: an item below 1 KB costs half
FAILED: Final = frozenset({"failure", "timed_out", "startup_failure", "action_required"})


class Status(StrEnum):
    QUEUED = "queued"
    WAITING = "waiting"
    SCHEDULED = "scheduled"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


_ACTIONS: Final = frozenset({Status.QUEUED, Status.WAITING, Status.IN_PROGRESS, Status.COMPLETED})


class Runner(Struct, frozen=True, order=True):
    """The runner of the job, and since when. Of two, the one that started later wins."""

    started_at: str
    runner_id: int = 0
    runner_name: str = ""
    runner_group_id: int = 0


class End(Struct, frozen=True):
    conclusion: str
    completed_at: str


class DeploymentLink(Struct, frozen=True):
    """The deployment that a job waits for, or waited for."""

    deployment_id: DeploymentId
    environment: str
    created_at: str | None = None
    is_waiting: bool = False


class Scheduling(Struct, frozen=True):
    """What the runner fleet did for the job. The job shows the facts of its highest attempt, and keeps some of others.

    Within an attempt, `actual` facts replace `planned` ones: EC2 may have launched another instance type.
    `instance_id` is the machine of the event, if it names one.
    """

    attempt: int
    planned: Mapping[str, Value] = {}
    actual: Mapping[str, Value] = {}
    is_interrupted: bool = False
    instance_id: str | None = None


class JobEvent(Struct, frozen=True):
    """Something that happened to a job. `at` is the sender's time, computed from the event alone."""

    key: JobKey
    type: str
    at: Instant
    received_at: Instant
    mark: str
    source: str
    action: str | None = None
    delivery: str | None = None
    run: RunKey | None = None
    repository: str | None = None
    repository_id: int | None = None
    identity: Mapping[str, Value] = {}
    status: Status | None = None
    deployment: DeploymentLink | None = None
    scheduling: Scheduling | None = None
    runner: Runner | None = None
    end: End | None = None
    head_branch: str | None = None
    interrupted_machine: str | None = None  # EC2 reclaimed it; the job need not be the one that it was launched for
    is_interruption: bool = False
    is_inferred: bool = False  # concluded by us; anything that GitHub reports takes precedence

    @property
    def order_ms(self) -> int:
        """Its order among the events of its phase."""
        return 0 if self.is_inferred else self.at.epoch_ms


def job_event(delivery: Delivery, payload: JobPayload, received_at: Instant) -> JobEvent:
    """The facts of a workflow_job webhook; UnusablePayload if it names no job, or an unknown action."""
    job = payload.workflow_job
    if job is None:
        raise UnusablePayload("workflow_job is null")
    status = reported_status(payload.action, job)
    created = _created(job, received_at)
    at = sent_at(delivery.id, created, _latest(job, payload.deployment, created))
    mark = _mark(delivery, status, payload.deployment)
    return _job_facts(payload, job, status, at, not_before(received_at, at), mark, delivery.id)


def _job_facts(
    payload: JobPayload,
    job: WorkflowJob,
    status: Status,
    at: Instant,
    received_at: Instant,
    mark: str,
    delivery_id: str | None = None,
) -> JobEvent:
    """The facts of a payload from a webhook or the API, with the given time and mark."""
    installation = InstallationId(payload.installation.id if payload.installation else 0)
    run = RunKey(installation, RunId(job.run_id), job.run_attempt)
    return JobEvent(
        key=JobKey(installation, JobId(job.id)),
        type=f"webhook_{status}",
        at=at,
        received_at=received_at,
        mark=mark,
        source="github_webhook",
        action=bounds.bounded(payload.action, 40),
        delivery=delivery_id,
        run=run,
        repository=payload.repository.full_name,
        repository_id=payload.repository.id,
        identity=identity(payload, job, run, received_at),
        status=status,
        deployment=_deployment(payload.deployment, is_waiting=status is Status.WAITING),
        runner=_runner(job) if status in (Status.IN_PROGRESS, Status.COMPLETED) else None,
        end=_end(job, at) if status is Status.COMPLETED else None,
        head_branch=bounds.bounded(job.head_branch) if job.head_branch else None,
    )


def polled_facts(payload: JobPayload, job: WorkflowJob, now: Instant, mark: str) -> JobEvent:
    """The facts of a job from GitHub's API. A queued or waiting status holds as of now."""
    status = reported_status(payload.action, job)
    at = now if status in (Status.QUEUED, Status.WAITING) else _latest(job, None, _created(job, now))
    event = _job_facts(payload, job, status, at, now, mark)
    return replace(event, type=f"polled_{status}", source="github_api", action=None)


def _created(job: WorkflowJob, received_at: Instant) -> Instant:
    return parsed(job.created_at) or parsed(job.started_at) or received_at


def reported_status(action: str, job: WorkflowJob) -> Status:
    """The job's status by this webhook. `action` and `status` may disagree, so neither is trusted alone.

    The one further along wins if another field supports it. The job is queued only if both say queued; otherwise it
    is waiting, and no machine is launched for it.
    """
    if action not in _ACTIONS:
        raise UnusablePayload(f"workflow_job: action {cut(action)!r} is unknown")
    if action == Status.COMPLETED or (job.status == Status.COMPLETED and job.conclusion is not None):
        return Status.COMPLETED
    if action == Status.IN_PROGRESS or (job.status == Status.IN_PROGRESS and is_assigned(job)):
        return Status.IN_PROGRESS
    return Status.QUEUED if action == Status.QUEUED and job.status in (Status.QUEUED, None) else Status.WAITING


def is_assigned(job: WorkflowJob) -> bool:
    return bool(job.runner_id or job.runner_name)


def identity(payload: JobPayload, job: WorkflowJob, run: RunKey, received_at: Instant) -> dict[str, Value]:
    """The attributes that stay the same over a job's life. Every webhook has them; the first one sets them.

    Repository, run and attempt are only stored as index keys: an item under 1 KB costs half.
    """
    repository = bounds.repository_name(payload.repository.full_name)
    found: dict[str, Value] = {
        "created_at": seconds_text(job.created_at) or seconds_text(job.started_at) or received_at.iso_seconds(),
        "GSI2-PK": by_repository(run.installation_id, repository),
        "GSI3-PK": run.partition,
        "received_at": received_at.iso(),
        "ttl": received_at.epoch_seconds + KEPT_SECONDS,
    }
    if payload.repository.id:
        found["repo_id"] = payload.repository.id
    if payload.repository.private:
        found["repo_is_private"] = True
    if job.workflow_name:
        found["workflow_name"] = bounds.bounded(job.workflow_name)
    if job.name:
        found["job_name"] = bounds.bounded(job.name)
    if job.head_sha:
        found["head_sha"] = bounds.bounded(job.head_sha, bounds.SHA_BYTES_MOST)
    if payload.repository.default_branch:
        found["default_branch"] = bounds.bounded(payload.repository.default_branch, bounds.BRANCH_BYTES_MOST)
    if job.labels:
        labels = bounds.labels(job.labels)
        found |= {"labels": labels, "labels_hash": labels_hash(tuple(labels))}
    if payload.repository.custom_properties:
        room = bounds.IDENTITY_BYTES_MOST - item_bytes(found)
        if kept := bounds.properties(payload.repository.custom_properties, room):
            found["custom_properties"] = kept
    return found


@lru_cache(maxsize=1024)  # the jobs of a repository have a few label sets
def labels_hash(labels: tuple[str, ...]) -> str:
    """A short name for the label set. Stored for the runner fleet; nothing reads it yet."""
    return label_set_hash(labels)[:LABELS_HASH_DIGITS]


RepositoryName = tuple[str | None, int | None]  # and its id, which stays the same when it is renamed


def check_repository(what: str, known: RepositoryName, named: RepositoryName) -> None:
    """Raise UnusablePayload if the two are not the same repository. What is unknown contradicts nothing."""
    (known_name, known_id), (name, number) = known, named
    if known_id is not None and number is not None:
        is_same = known_id == number
    else:
        is_same = known_name is None or name is None or known_name.lower() == name.lower()
    if not is_same:
        raise UnusablePayload(f"{what}: repository {cut(str(name))}, but it belongs to {cut(str(known_name))}")


def _mark(delivery: Delivery, status: Status, deployment: Deployment | None) -> str:
    """The mark by which a repeated delivery is recognized: of the body, since the delivery id is not signed.

    A job may queue twice, and without a deployment the two bodies may be equal: then the mark is of the delivery id as
    well. Replays of such a body under other ids are limited by the number of events of a job.
    """
    may_repeat = status in (Status.QUEUED, Status.WAITING) and deployment is None
    return short_mark(delivery.id, status, delivery.body_mark) if may_repeat else delivery.body_mark


def _latest(job: WorkflowJob, deployment: Deployment | None, created: Instant) -> Instant:
    """The latest time in the payload."""
    latest = created
    for text in (job.started_at, job.completed_at, deployment.updated_at if deployment else None):
        time = parsed(text)
        if time is not None and time.epoch_ms > latest.epoch_ms:
            latest = time
    return latest


def _deployment(found: Deployment | None, *, is_waiting: bool) -> DeploymentLink | None:
    return None if found is None else deployment_link(found, is_waiting=is_waiting)


def deployment_link(found: Deployment, *, is_waiting: bool, environment: str | None = None) -> DeploymentLink:
    name = bounds.bounded(found.environment or environment or "")
    return DeploymentLink(DeploymentId(found.id), name, seconds_text(found.created_at), is_waiting)


def _runner(job: WorkflowJob) -> Runner | None:
    """None if the job has no runner. Until then, `started_at` is only the time of its creation."""
    started = seconds_text(job.started_at)
    if not is_assigned(job) or started is None:
        return None
    name = bounds.bounded(job.runner_name or "", 128)
    return Runner(started, job.runner_id or 0, name, job.runner_group_id or 0)


def _end(job: WorkflowJob, at: Instant) -> End:
    completed = seconds_text(job.completed_at) or at.iso_seconds()
    return End(bounds.bounded(job.conclusion or "unknown", 40), completed)
