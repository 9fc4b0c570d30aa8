"""Up to four writes, one promise: job, history, run, deployment. Each is idempotent, and the event is done after all.

    job         always; it tells whether the event is a repetition, and what it changed
    history     always
    run         when the job is new to us, when it ends, and when it names its deployment
    deployment  when the job names one that it did not name before, or begins to wait

A crash in between leaves the event unacknowledged. It comes again, finds itself in the job, and makes sure of the rest.
"""

from contextlib import suppress

from msgspec import Struct

from holdfast.jobs import deployment as deployments
from holdfast.jobs.deployment import Gate
from holdfast.jobs.facts import JobEvent, Status
from holdfast.jobs.history import write_history
from holdfast.jobs.job import folded, quick
from holdfast.jobs.keys import DeploymentKey, RunKey
from holdfast.jobs.merging import Merged, merge, put_into, rewriting
from holdfast.jobs.run import counted, ended_by_startup_failure, folded_count
from holdfast.kernel.errors import BadRequest, WriteConflict
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Store, attr
from holdfast.ports.store.tables import DEPLOYMENTS, JOBS, RUNS


class Recorded(Struct, frozen=True):
    """The job as it is now; `old` as it was before the event (None: it was not known)."""

    job: Item
    old: Item | None
    is_duplicate: bool


def record(store: Store, event: JobEvent, received_by: str) -> Recorded:
    """Make the event durable in all tables that it concerns."""
    job = merge(store, JOBS, event.key.item, event.mark, lambda: quick(event), lambda seen: folded(seen, event))
    write_history(store, event, job, received_by)
    run = _write_run(store, event, job) if event.run is not None else None
    if event.deployment is not None and _is_news_of_deployment(event, job):
        _write_deployment(store, event)
    if run is not None:
        _join(store, event, run)
        _end_if_run_never_started(store, event, job, run, received_by)
    return Recorded(job.new, job.old, job.is_duplicate)


def _write_run(store: Store, event: JobEvent, job: Merged) -> Item | None:
    """The run's item, where it had to be written."""
    assert event.run is not None  # noqa: S101 -- called for events that have one; narrows the type
    is_new = job.old is None or "created_at" not in job.old
    is_linked = event.deployment is not None and (job.old is None or "deployment_id" not in job.old)
    if not (job.is_duplicate or is_new or is_linked or event.status is Status.COMPLETED):
        return None
    rewrite = rewriting(store)
    if rewrite is not None:
        return rewrite(RUNS, event.run.item, lambda run: _folded_run_of(run, event, job.new)).new
    update, condition = counted(event, job.new)
    if event.deployment is not None:
        update += attr("deployments").add_elements({str(gate_of(event))})
    try:
        return store.update(RUNS, event.run.item, update, condition).new
    except WriteConflict as conflict:
        # The job is done already; only its deployment may be missing.
        if event.deployment is None:
            return conflict.item
        update = attr("deployments").add_elements({str(gate_of(event))})
        return store.update(RUNS, event.run.item, update).new


def _folded_run_of(run: Item | None, event: JobEvent, job: Item) -> Item:
    new = folded_count(run, event, job)
    if event.deployment is None:
        return new
    return {**new, "deployments": frozenset({*new.get("deployments", ()), str(gate_of(event))})}


def recount(store: Store, event: JobEvent, job: Item, run: Item) -> bool:
    """Put a job among its run's jobs where it is not; whether it was not.

    An event that nobody sends again may have been cut short between job and run.
    """
    assert event.run is not None  # noqa: S101 -- called for events that have one; narrows the type
    is_over = job.get("status") == Status.COMPLETED
    # One that is done stays so: whoever counted its end may have been cut short before it came to the job.
    if event.key.job_id in run.get("done", ()) or (not is_over and event.key.job_id in run.get("open", ())):
        return False
    update, condition = counted(event, job)
    with suppress(WriteConflict):
        store.update(RUNS, event.run.item, update, condition)
    return True


def count_end(store: Store, event: JobEvent) -> None:
    """Count a job's end in its run, before the job is told to have ended.

    For an event that nobody sends again. Once its job has ended no sweep asks about it, and who dies in between would
    leave it open in its run; the other way round, the next sweep finds a job that has not ended.
    """
    if event.run is not None and event.end is not None:
        ended = {"status": Status.COMPLETED, "conclusion": event.end.conclusion}
        store.update(RUNS, event.run.item, *counted(event, ended))


def gate_of(event: JobEvent) -> Gate:
    assert event.deployment is not None  # noqa: S101 -- called for events that have one; narrows the type
    place = deployments.place_of(event.deployment.environment, event.identity.get("job_name", ""))
    return Gate(event.deployment.deployment_id, place)


def _is_news_of_deployment(event: JobEvent, job: Merged) -> bool:
    if job.is_duplicate or job.old is None or "deployment_id" not in job.old:
        return True
    return event.deployment is not None and event.deployment.is_waiting and "waiting_ms" not in job.old


def _write_deployment(store: Store, event: JobEvent) -> None:
    assert event.deployment is not None  # noqa: S101 -- called for events that have one; narrows the type
    update = deployments.seen(event.deployment, event.run, event.repository, event.received_at)
    key = DeploymentKey(event.key.installation_id, event.deployment.deployment_id).item
    try:
        put_into(store, DEPLOYMENTS, key, update + attr("job_ids").add_elements({event.key.job_id}))
    except BadRequest:
        # An older deployment of ours kept them as a list, to which nothing can be added as to a set.
        listed = (store.get(DEPLOYMENTS, key) or {}).get("job_ids")
        if not isinstance(listed, list):
            raise
        whole = attr("job_ids").set_to(frozenset({*map(int, listed), event.key.job_id}))
        store.update(DEPLOYMENTS, key, update + whole, attr("job_ids").equals(listed))


def _join(store: Store, event: JobEvent, run: Item) -> None:
    """Reviews that came before their deployment was known are carried out now."""
    if event.deployment is not None and "reviews" in run and event.run is not None:
        decide(store, event.run, run, [gate_of(event)], event.received_at)


def decide(store: Store, key: RunKey, run: Item, gates: list[Gate], received_at: Instant) -> int:
    """Carry out what the run's reviews say of these gates; how many were not decided before."""
    decided = 0
    for gate, review in deployments.decisions(run, gates):
        update, condition = deployments.decided(review, received_at)
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
    end = ended_by_startup_failure(event.run, run, event.key.job_id, event.received_at)
    if end is None:
        return
    # Whoever died right after it had ended the job left the rest of that undone: the event that comes again does it.
    was_cut_short = job.is_duplicate and end.mark in job.new.get("dl", ())
    if job.new.get("status") != Status.COMPLETED or was_cut_short:
        count_end(store, end)
        record(store, end, received_by)
