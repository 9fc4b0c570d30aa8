"""What each kind of webhook does to the tables. One function for each; `ingest.py` chooses."""

from msgspec import Struct

from holdfast.jobs import deployment as deployments
from holdfast.jobs.deployment import Review
from holdfast.jobs.facts import KEPT_SECONDS, JobEvent, job_event
from holdfast.jobs.keys import RunKey
from holdfast.jobs.merging import merge
from holdfast.jobs.payloads import (
    DeploymentPayload,
    InstallationPayload,
    JobPayload,
    PingPayload,
    ReviewPayload,
    RunPayload,
    decoded,
)
from holdfast.jobs.receipts import Receipt, Result
from holdfast.jobs.record import decide, record
from holdfast.jobs.run import ended_by_startup_failure, folded_run, quick_run, run_event
from holdfast.jobs.webhook import Delivery
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Store, attr
from holdfast.ports.store.tables import DEPLOYMENTS, RUNS


class Desk(Struct, frozen=True):
    """Where a delivery is dealt with, and when."""

    store: Store
    received_by: str
    now: Instant


def take_job(desk: Desk, delivery: Delivery) -> Receipt:
    return _take_event(desk, delivery, job_event(delivery, decoded(delivery.body, JobPayload), desk.now))


def take_run(desk: Desk, delivery: Delivery) -> Receipt:
    event = run_event(delivery, decoded(delivery.body, RunPayload), desk.now)
    run = merge(
        desk.store,
        RUNS,
        event.key.item,
        event.mark,
        lambda: quick_run(event),
        lambda seen: folded_run(seen, event),
    )
    for job in sorted(run.new.get("open", ())):
        end = ended_by_startup_failure(event.key, run.new, JobId(job), desk.now)
        if end is not None:
            record(desk.store, end, desk.received_by)
    result = Result.DUPLICATE if run.is_duplicate else Result.STORED
    return Receipt(result, delivery.id, delivery.event, installation=event.key.installation_id)


def take_deployment(desk: Desk, delivery: Delivery) -> Receipt:
    event = deployments.deployment_event(delivery, decoded(delivery.body, DeploymentPayload), desk.now)
    if delivery.event == "deployment_status" and not event.link.is_waiting:
        return _ignored(delivery, "a deployment's progress: its job tells the same")
    if event.job is not None:
        return _take_event(desk, delivery, event.job)
    update = deployments.seen(event.link, event.run, event.repository, desk.now)
    written = desk.store.update(DEPLOYMENTS, event.key.item, update)
    result = Result.DUPLICATE if written.old == written.new else Result.STORED
    return Receipt(result, delivery.id, delivery.event, installation=event.key.installation_id)


def take_review(desk: Desk, delivery: Delivery) -> Receipt:
    key, reviews = deployments.reviews_of(delivery, decoded(delivery.body, ReviewPayload), desk.now)
    if not reviews:
        return _ignored(delivery, "a review was asked for: its job tells the same")
    result = Result.STORED if _write_reviews(desk, key, reviews) else Result.DUPLICATE
    return Receipt(result, delivery.id, delivery.event, installation=key.installation_id)


def take_installation(desk: Desk, delivery: Delivery) -> Receipt:  # noqa: ARG001 -- a handler like the others
    installation = InstallationId(decoded(delivery.body, InstallationPayload).installation.id)
    return Receipt(Result.STORED, delivery.id, delivery.event, installation=installation)


def take_ping(desk: Desk, delivery: Delivery) -> Receipt:  # noqa: ARG001 -- a handler like the others
    decoded(delivery.body, PingPayload)
    return _ignored(delivery, "GitHub only asked whether we are there")


def _ignored(delivery: Delivery, reason: str) -> Receipt:
    return Receipt(Result.IGNORED, delivery.id, delivery.event, reason)


def _take_event(desk: Desk, delivery: Delivery, event: JobEvent) -> Receipt:
    recorded = record(desk.store, event, desk.received_by)
    result = Result.DUPLICATE if recorded.is_duplicate else Result.STORED
    return Receipt(result, delivery.id, delivery.event, installation=event.key.installation_id, job=event.key)


def _write_reviews(desk: Desk, key: RunKey, reviews: list[Review]) -> bool:
    """Decide at once where the deployments are known (a read is cheaper than a write), else keep the reviews.

    Whether anything was new.
    """
    run = desk.store.get(RUNS, key.item, consistent=False) or {}
    said = frozenset(map(str, reviews))
    gates = deployments.gates_of(run)
    if all(any(review.concerns(gate) for gate in gates) for review in reviews):
        return decide(desk.store, key, {"reviews": said}, gates, desk.now) > 0
    update = attr("reviews").add_elements(said) + attr("ttl").set_if_absent(desk.now.epoch_seconds + KEPT_SECONDS)
    kept = desk.store.update(RUNS, key.item, update)
    # The deployments that have become known since the read: whoever adds one later finds the reviews.
    decided = decide(desk.store, key, {"reviews": said}, deployments.gates_of(kept.new), desk.now)
    return decided > 0 or not said <= (kept.old or {}).get("reviews", frozenset())
