"""A deployment: a job with a protected environment waits for its approval.

    pending ─ review ─▶ approved | rejected        the first decision wins

A review may arrive before its deployment, and does not name it: it names a run, an environment, and usually the jobs.
So each job of the run keeps its `gates`, and the run keeps `reviews`. Who writes one reads the other afterwards, so the
later of the two completes the pair.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Self

from holdfast.jobs.intake import bounds
from holdfast.jobs.intake.item_writes import combined, if_absent
from holdfast.jobs.intake.payloads import CheckRun, Deployment, DeploymentPayload, ReviewPayload, UnusablePayload
from holdfast.jobs.intake.webhook import Delivery, short_mark
from holdfast.jobs.model.facts import KEPT_SECONDS, DeploymentLink, JobEvent, deployment_link
from holdfast.jobs.model.keys import DeploymentKey, JobKey, RunKey
from holdfast.jobs.model.times import not_before, parsed, sent_at
from holdfast.kernel.ids import DeploymentId, InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Condition, Item, Update, Value, attr, set_all

PENDING: Final = "pending"
DECISIONS: Final = ("approved", "rejected")
GATING_STATE: Final = "waiting"  # of a deployment_status; the job's own webhooks report the other states
REVIEWS_MOST: Final = 256
_ENVIRONMENT_LENGTH: Final = 3  # of the characters that match a review to a deployment


def place_of(environment: str, job_name: str) -> str:
    """Eight characters that match a review to a job's deployment; short, as a run may have hundreds.

    Without a job's name only the first three, for the environment. Names are cut as they are in the job's item.
    """
    job = bounds.bounded(job_name)
    return short_mark(bounds.bounded(environment))[:_ENVIRONMENT_LENGTH] + (short_mark(job)[:5] if job else "")


@dataclass(frozen=True, slots=True)
class ApprovalGate:
    """A job's deployment and since when it waits, as an element of the job's set `gates` in its run."""

    deployment_id: DeploymentId
    place: str
    since: str = ""

    def __str__(self) -> str:
        return f"{self.deployment_id}#{self.place}" + (f"#{self.since}" if self.since else "")

    @classmethod
    def parsed(cls, text: str) -> Self:
        deployment, place, *since = text.split("#")
        return cls(DeploymentId(int(deployment)), place, *since)


@dataclass(frozen=True, slots=True)
class Review:
    """A decision on a run's job and environment, as an element of the run's set `reviews`."""

    state: str
    at: Instant
    place: str

    def __str__(self) -> str:
        return f"{self.state}#{self.at.iso()}#{self.place}"

    @classmethod
    def parsed(cls, text: str) -> Self:
        state, at, place = text.split("#")
        return cls(state, Instant.from_iso(at), place)

    @property
    def names_job(self) -> bool:
        return len(self.place) > _ENVIRONMENT_LENGTH

    def concerns(self, gate: ApprovalGate) -> bool:
        """A review that names no job concerns every job that waited for the environment at that time."""
        if self.names_job or not gate.since:
            return gate.place.startswith(self.place)
        return gate.place.startswith(self.place) and gate.since <= self.at.iso_seconds()


def gate_of(event: JobEvent) -> ApprovalGate:
    """The gate that the event names. A deployment is created when its job begins to wait: each event says when."""
    assert event.deployment is not None  # noqa: S101 -- called for events that have one; narrows the type
    place = place_of(event.deployment.environment, event.identity.get("job_name", ""))
    return ApprovalGate(event.deployment.deployment_id, place, event.deployment.created_at or "")


def gates_of(run: Item) -> list[ApprovalGate]:
    return sorted((ApprovalGate.parsed(text) for text in run.get("deployments", ())), key=str)


def decisions(run: Item, gates: Iterable[ApprovalGate]) -> list[tuple[ApprovalGate, Review]]:
    """The gates that the run's reviews decide, each with its review; the earliest review first."""
    reviews = sorted((Review.parsed(text) for text in run.get("reviews", ())), key=lambda review: review.at)
    return [(gate, review) for gate in gates for review in reviews if review.concerns(gate)]


def is_held_back(job: Item, deployment: Item | None) -> bool:
    """Whether no machine may be launched for the job: its latest status is waiting, and it is not approved.

    `deployment` is the one that the job names, if known.
    """
    waiting_ms, queued_ms = job.get("waiting_ms"), job.get("queued_ms", 0)
    if waiting_ms is None or queued_ms > waiting_ms:
        return False
    return deployment is None or deployment.get("status") != "approved"


# The deployment's own item


def link_update(link: DeploymentLink, run: RunKey | None, repository: str | None, received_at: Instant) -> Update:
    """The update for any event that names a deployment. It never overwrites a decision."""
    facts: dict[str, Value] = {
        "status": PENDING,
        "created_at": link.created_at or received_at.iso_seconds(),
        "ttl": not_before(received_at, parsed(link.created_at)).epoch_seconds + KEPT_SECONDS,
    }
    if repository:
        facts["repo_full_name"] = repository
    if link.environment:
        facts["environment"] = link.environment
    if run is not None:
        facts |= {"run_id": run.run_id, "run_attempt": run.run_attempt}
    gate = attr("requires_approval").set_to(True) if link.is_waiting else Update(())
    return combined([gate, if_absent(facts)])


def decision_update(review: Review, received_at: Instant) -> tuple[Update, Condition]:
    update = set_all({"status": review.state, f"{review.state}_at": review.at.iso(), "requires_approval": True})
    update += attr("ttl").set_if_absent(not_before(received_at, review.at).epoch_seconds + KEPT_SECONDS)
    return update, attr("status").is_absent() | attr("status").equals(PENDING)


# Webhooks


@dataclass(frozen=True, slots=True)
class DeploymentEvent:
    """A deployment, deployment_status or deployment_protection_rule webhook that concerns an approval.

    `job` is the event of the waiting job, if the webhook names one.
    """

    key: DeploymentKey
    link: DeploymentLink
    repository: str
    repository_id: int | None
    run: RunKey | None
    job: JobEvent | None


def deployment_event(delivery: Delivery, payload: DeploymentPayload, received_at: Instant) -> DeploymentEvent:
    found = payload.deployment
    if found is None:
        raise UnusablePayload(f"{delivery.event}: deployment is null")
    installation = InstallationId(payload.installation.id if payload.installation else 0)
    state = payload.deployment_status.state if payload.deployment_status else None
    is_waiting = delivery.event == "deployment_protection_rule" or state == GATING_STATE
    run = payload.workflow_run
    event = DeploymentEvent(
        key=DeploymentKey(installation, DeploymentId(found.id)),
        link=deployment_link(found, is_waiting=is_waiting, environment=payload.environment),
        repository=bounds.repository_name(payload.repository.full_name),
        repository_id=payload.repository.id,
        run=RunKey(installation, RunId(run.id), run.run_attempt) if run else None,
        job=None,
    )
    if payload.check_run is None or event.run is None or not is_waiting:
        return event
    return replace(event, job=_job_that_waits(delivery, payload.check_run, event, found, received_at))


def _job_that_waits(
    delivery: Delivery, check_run: CheckRun, event: DeploymentEvent, found: Deployment, received_at: Instant
) -> JobEvent:
    created = parsed(found.created_at) or received_at
    at = sent_at(delivery.id, created, parsed(found.updated_at) or created)
    return JobEvent(
        # A job's id is that of its check run.
        key=JobKey(event.key.installation_id, JobId(check_run.id)),
        type="deployment_waiting",
        at=at,
        received_at=not_before(received_at, at),
        mark=delivery.body_mark,
        source="github_webhook",
        delivery=delivery.id,
        run=event.run,
        repository=event.repository,
        repository_id=event.repository_id,
        identity={"job_name": bounds.bounded(check_run.name)} if check_run.name else {},
        deployment=event.link,
    )


def reviews_of(delivery: Delivery, payload: ReviewPayload, received_at: Instant) -> tuple[RunKey, list[Review]]:
    """The decisions of a deployment_review, one for each job it names; none if it only requests a review."""
    run = payload.workflow_run
    if run is None:
        raise UnusablePayload("deployment_review: workflow_run is null")
    if payload.action not in (*DECISIONS, "requested"):
        raise UnusablePayload(f"deployment_review: action {cut(payload.action)!r} is unknown")
    installation = InstallationId(payload.installation.id if payload.installation else 0)
    key = RunKey(installation, RunId(run.id), run.run_attempt)
    if payload.action == "requested":
        return key, []
    # `since` is when the job began to wait; only the delivery id holds the time of the decision.
    began = parsed(run.run_started_at) or parsed(run.created_at) or received_at
    at = sent_at(delivery.id, began, parsed(run.updated_at) or began)
    named = payload.workflow_job_runs or ([payload.workflow_job_run] if payload.workflow_job_run else [])
    jobs = {(job.name or "", job.environment or payload.environment or "") for job in named}
    if len(jobs) > REVIEWS_MOST:
        jobs = {("", where) for _, where in jobs}  # on GitHub, people decide by environment, never by job
    if not jobs:
        jobs = {("", payload.environment or "")}
    return key, [Review(payload.action, at, place_of(where, name)) for name, where in sorted(jobs)[:REVIEWS_MOST]]
