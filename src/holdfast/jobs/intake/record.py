"""Records an event in up to four writes: job, history, run, deployment. Each is idempotent.

    job         always; shows whether the event is a duplicate, and what it changed
    history     always
    run         when the job is new, and when it names its deployment
    deployment  when the job names a new one, or begins to wait

After a crash in between, the event is not acknowledged. GitHub redelivers it; it is a duplicate for the job, and the
other writes are completed.
"""

from contextlib import suppress

from msgspec import Struct

from holdfast.jobs.intake.history import changes, write_history
from holdfast.jobs.intake.item_writes import Merged, is_transaction, merge, put_into
from holdfast.jobs.intake.payloads import UnusablePayload
from holdfast.jobs.model import deployment as deployments
from holdfast.jobs.model.deployment import ApprovalGate
from holdfast.jobs.model.facts import JobEvent, Status
from holdfast.jobs.model.job import MARKS_MOST, folded, quick
from holdfast.jobs.model.keys import DeploymentKey, RunKey
from holdfast.jobs.model.run import startup_failure_end
from holdfast.jobs.model.run_jobs import registering, registration
from holdfast.kernel.errors import BadRequest, WriteConflict
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Store, attr
from holdfast.ports.store.tables import DEPLOYMENTS, JOBS, RUNS


class Recorded(Struct, frozen=True):
    """The job after the event; `old` is the job before it (None: unknown)."""

    job: Item
    old: Item | None
    is_duplicate: bool


def record(store: Store, event: JobEvent, received_by: str) -> Recorded:
    """Make the event durable in every table that it concerns."""
    job = merge(store, JOBS, event.key.item, event.mark, lambda: quick(event), lambda seen: folded(seen, event))
    if not is_beyond_cap(event, job):
        write_history(store, event, job, received_by)
    run = _write_run(store, event, job) if event.run is not None else None
    if event.deployment is not None and _is_news_of_deployment(event, job):
        _write_deployment(store, event)
    if run is not None:
        _apply_reviews(store, event, run)
        _end_if_run_never_started(store, event, job, run, received_by)
    return Recorded(job.new, job.old, job.is_duplicate)


def is_beyond_cap(event: JobEvent, job: Merged) -> bool:
    """Whether the job's history is full: no real job has that many events. Only a change of the job is added then.

    A job may queue and wait again and again under new delivery ids, which are not signed: that does not count.
    """
    if job.is_duplicate or job.old is None or len(job.old.get("dl", ())) < MARKS_MOST:
        return False
    return event.status in (Status.QUEUED, Status.WAITING) or not changes(job.old, job.new)


def _write_run(store: Store, event: JobEvent, job: Merged) -> Item | None:
    """The run's own item, if the job had to be written among those of its run; None if not.

    Read afterwards, and consistently: a review, or a failure to start, that is stored later finds the job.
    """
    assert event.run is not None  # noqa: S101 -- called for events that have one; narrows the type
    is_new = job.old is None or "created_at" not in job.old
    is_linked = event.deployment is not None and (job.old is None or "deployment_id" not in job.old)
    # Two hooks send such an event under two marks: one of them may have died before it came to this.
    is_unmarked = event.status in (Status.QUEUED, Status.WAITING) and event.deployment is None
    if not (job.is_duplicate or is_new or is_linked or is_unmarked):
        return None
    register(store, event)
    return store.get(RUNS, event.run.item) or {}


def register(store: Store, event: JobEvent) -> None:
    """Write the event's job among those of its run. Repeating it changes nothing."""
    assert event.run is not None  # noqa: S101 -- called for events that have one; narrows the type
    key = event.run.job_item(event.key.job_id)
    if is_transaction(store):
        item = RUNS.key_item(key) | registration(None, event)
        store.append(RUNS, item, lambda known: registration(known, event))
    else:
        store.update(RUNS, key, registering(event))


def _is_news_of_deployment(event: JobEvent, job: Merged) -> bool:
    if job.is_duplicate or job.old is None or "deployment_id" not in job.old:
        return True
    return event.deployment is not None and event.deployment.is_waiting and "waiting_ms" not in job.old


def _write_deployment(store: Store, event: JobEvent) -> None:
    assert event.deployment is not None  # noqa: S101 -- called for events that have one; narrows the type
    update = deployments.link_update(event.deployment, event.run, event.repository, event.received_at)
    key = DeploymentKey(event.key.installation_id, event.deployment.deployment_id).item
    try:
        put_into(store, DEPLOYMENTS, key, update + attr("job_ids").add_elements({event.key.job_id}))
    except BadRequest:
        # An older version stored a list, to which elements cannot be added as to a set.
        listed = (store.get(DEPLOYMENTS, key) or {}).get("job_ids")
        if not isinstance(listed, list):
            raise
        whole = attr("job_ids").set_to(frozenset({*map(int, listed), event.key.job_id}))
        store.update(DEPLOYMENTS, key, update + whole, attr("job_ids").equals(listed))


def _apply_reviews(store: Store, event: JobEvent, run: Item) -> None:
    """Apply reviews that arrived before their deployment was known."""
    if event.deployment is not None and "reviews" in run and event.run is not None:
        decide(store, event.run, run, [deployments.gate_of(event)], event.received_at)


def decide(store: Store, key: RunKey, run: Item, gates: list[ApprovalGate], received_at: Instant) -> int:
    """Apply the run's reviews to these gates; returns how many were undecided before."""
    decided = 0
    for gate, review in deployments.decisions(run, gates):
        update, condition = deployments.decision_update(review, received_at)
        try:
            store.update(DEPLOYMENTS, DeploymentKey(key.installation_id, gate.deployment_id).item, update, condition)
            decided += 1
        except WriteConflict:
            pass  # the first decision wins
    return decided


def _end_if_run_never_started(store: Store, event: JobEvent, job: Merged, run: Item, received_by: str) -> None:
    assert event.run is not None  # noqa: S101 -- called for events that have one; narrows the type
    if event.is_inferred:
        return
    end = startup_failure_end(event.run, run, event.key.job_id, event.received_at)
    if end is None:
        return
    # A crash right after the job was ended leaves the other writes undone: the redelivered event completes them.
    was_interrupted = job.is_duplicate and end.mark in job.new.get("dl", ())
    if job.new.get("status") != Status.COMPLETED or was_interrupted:
        with suppress(UnusablePayload):  # the run's webhook named another repository: it was not about this job's run
            record(store, end, received_by)
