"""One handler for each kind of webhook; `tracker.py` selects it. A handler writes the tables and returns a receipt."""

from typing import TypeVar

from msgspec import Struct

from holdfast.jobs.intake.item_writes import merge
from holdfast.jobs.intake.payload_age import check_age
from holdfast.jobs.intake.payloads import (
    DeploymentPayload,
    InstallationPayload,
    JobPayload,
    PingPayload,
    ReviewPayload,
    RunPayload,
    decoded,
)
from holdfast.jobs.intake.record import decide, record
from holdfast.jobs.intake.senders import RepositoryPayload, Senders
from holdfast.jobs.intake.webhook import Delivery, Receipt, ReceiptResult
from holdfast.jobs.model import deployment as deployments
from holdfast.jobs.model.deployment import Review
from holdfast.jobs.model.facts import KEPT_SECONDS, JobEvent, Status, check_repository, job_event
from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.jobs.model.run import (
    STARTUP_FAILURE,
    folded_run,
    quick_run,
    repository_in,
    run_event,
    startup_failure_end,
)
from holdfast.jobs.read.run_jobs import registered_run
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Store, attr
from holdfast.ports.store.tables import DEPLOYMENTS, JOBS, RUNS

P = TypeVar("P", bound=RepositoryPayload)


class HandlerContext(Struct, frozen=True):
    """What a handler needs beside the delivery."""

    store: Store
    received_by: str
    now: Instant
    senders: Senders
    oldest_seconds: float | None = None


def handle_job(context: HandlerContext, delivery: Delivery) -> Receipt:
    payload = _admitted(context, delivery, JobPayload)
    return _record_event(context, delivery, job_event(delivery, payload, context.now))


def handle_run(context: HandlerContext, delivery: Delivery) -> Receipt:
    event = run_event(delivery, _admitted(context, delivery, RunPayload), context.now)
    if event.conclusion == STARTUP_FAILURE:
        known = registered_run(context.store, event.key) or {}
        check_repository(f"run {event.key}", repository_in(known), repository_in(event.identity))
    run = merge(
        context.store,
        RUNS,
        event.key.item,
        event.mark,
        lambda: quick_run(event),
        lambda seen: folded_run(seen, event),
    )
    if run.new.get("conclusion") == STARTUP_FAILURE:
        _end_jobs(context, event.key, run.new)
    result = ReceiptResult.DUPLICATE if run.is_duplicate else ReceiptResult.STORED
    return Receipt(result, delivery.id, delivery.event, installation=event.key.installation_id)


def _end_jobs(context: HandlerContext, key: RunKey, run: Item) -> None:
    """End the jobs of a run that failed to start; the run is written: a job that is registered later finds it."""
    numbers = sorted(map(JobId, (registered_run(context.store, key) or {}).get("jobs", ())))
    keys = [JobKey(key.installation_id, number).item for number in numbers]
    jobs = context.store.batch_get(JOBS, keys, consistent=True) if keys else []
    for number, job in zip(numbers, jobs, strict=True):
        end = startup_failure_end(key, run, number, context.now)
        known = job or {}
        # After a crash, a job that was ended by this may lack its history.
        if end is not None and (known.get("status") != Status.COMPLETED or end.mark in known.get("dl", ())):
            record(context.store, end, context.received_by)


def handle_deployment(context: HandlerContext, delivery: Delivery) -> Receipt:
    payload = _admitted(context, delivery, DeploymentPayload)
    event = deployments.deployment_event(delivery, payload, context.now)
    if delivery.event == "deployment_status" and not event.link.is_waiting:
        return _ignored(delivery, "the progress of a deployment is tracked by its job's webhooks")
    if event.run is None and not event.link.is_waiting:
        return _ignored(delivery, "no workflow made this deployment, so no job waits for it")
    if event.job is not None:
        return _record_event(context, delivery, event.job)
    update = deployments.link_update(event.link, event.run, event.repository, context.now)
    written = context.store.update(DEPLOYMENTS, event.key.item, update)
    result = ReceiptResult.DUPLICATE if written.old == written.new else ReceiptResult.STORED
    return Receipt(result, delivery.id, delivery.event, installation=event.key.installation_id)


def handle_review(context: HandlerContext, delivery: Delivery) -> Receipt:
    payload = _admitted(context, delivery, ReviewPayload)
    key, reviews = deployments.reviews_of(delivery, payload, context.now)
    if not reviews:
        return _ignored(delivery, "a review request is tracked by its job's webhooks")
    result = ReceiptResult.STORED if _write_reviews(context, key, reviews, payload) else ReceiptResult.DUPLICATE
    return Receipt(result, delivery.id, delivery.event, installation=key.installation_id)


def handle_installation(context: HandlerContext, delivery: Delivery) -> Receipt:
    installation = InstallationId(decoded(delivery.body, InstallationPayload).installation.id)
    context.senders.check_allowed(installation)
    return Receipt(ReceiptResult.STORED, delivery.id, delivery.event, installation=installation)


def handle_ping(context: HandlerContext, delivery: Delivery) -> Receipt:  # noqa: ARG001 -- a handler like the others
    decoded(delivery.body, PingPayload)
    return _ignored(delivery, "a ping from GitHub")


def _admitted(context: HandlerContext, delivery: Delivery, kind: type[P]) -> P:
    payload = decoded(delivery.body, kind)
    check_age(delivery, payload, context.now, context.oldest_seconds)
    context.senders.admit(context.store, payload, context.now)
    return payload


def _ignored(delivery: Delivery, reason: str) -> Receipt:
    return Receipt(ReceiptResult.IGNORED, delivery.id, delivery.event, reason)


def _record_event(context: HandlerContext, delivery: Delivery, event: JobEvent) -> Receipt:
    recorded = record(context.store, event, context.received_by)
    result = ReceiptResult.DUPLICATE if recorded.is_duplicate else ReceiptResult.STORED
    return Receipt(result, delivery.id, delivery.event, installation=event.key.installation_id, job=event.key)


def _write_reviews(context: HandlerContext, key: RunKey, reviews: list[Review], payload: ReviewPayload) -> bool:
    """Apply the reviews if their deployments are known (a read is cheaper than a write), otherwise keep them.

    One that names no job is always kept: it concerns every job that waited then, and one of them may be unknown yet.
    Returns whether anything was new.
    """
    run = registered_run(context.store, key, consistent=False) or {}
    check_repository(f"run {key}", repository_in(run), (payload.repository.full_name, payload.repository.id))
    decisions = frozenset(map(str, reviews))
    gates = deployments.gates_of(run)
    if all(review.names_job and any(review.concerns(gate) for gate in gates) for review in reviews):
        return decide(context.store, key, {"reviews": decisions}, gates, context.now) > 0
    since = max([context.now, *(review.at for review in reviews)])
    update = attr("reviews").add_elements(decisions) + attr("ttl").set_if_absent(since.epoch_seconds + KEPT_SECONDS)
    kept = context.store.update(RUNS, key.item, update)
    # With deployments added since the first read. One that is added later finds the reviews.
    gates = deployments.gates_of(registered_run(context.store, key) or {})
    decided = decide(context.store, key, {"reviews": decisions}, gates, context.now)
    return decided > 0 or not decisions <= (kept.old or {}).get("reviews", frozenset())
