"""A job's history: each event as it was, never changed, 14 days.

The key is `timestamp#event_type#mark`: a pure function of what was sent. The same delivery meets its own entry again,
and adds 1 to its `deliveries`; two different ones never share an entry, though they come in the same millisecond.
"""

from functools import partial
from typing import Final

from holdfast.jobs.facts import JobEvent
from holdfast.jobs.merging import Merged, appending
from holdfast.kernel.errors import WriteConflict
from holdfast.ports.store import Item, Store, Update, Value, attr, remove_all, set_all
from holdfast.ports.store.tables import JOB_EVENTS
from holdfast.ports.store.values import same

KEPT_SECONDS: Final = 14 * 86_400
# What a person asks of a job's history. Identity is left out: it does not change.
TOLD: Final = (
    "status",
    "conclusion",
    "instance_id",
    "instance_type",
    "instance_lifecycle",
    "pool_name",
    "scheduling_attempt",
    "was_interrupted",
    "runner_id",
    "runner_name",
    "deployment_id",
)


def write_history(store: Store, event: JobEvent, job: Merged, received_by: str) -> None:
    """Make sure that the event is in the job's history, and that each time it came is counted."""
    entry = entry_of(event, job, received_by)
    append = appending(store)
    if append is not None:
        told = partial(told_again, entry=entry, is_duplicate=job.is_duplicate)
        append(JOB_EVENTS, told(None), told)
        return
    key, again = JOB_EVENTS.key_of(entry), attr("deliveries").plus(1)
    if job.is_duplicate:
        try:
            store.update(JOB_EVENTS, key, again, attr("PK").exists())
        except WriteConflict:
            # Whoever wrote the job died before it came to this, or is about to. What the event changed is not known.
            entry["changes_lost"] = True
        else:
            return
    try:
        store.put(JOB_EVENTS, entry, attr("PK").is_absent())
    except WriteConflict as conflict:
        if conflict.item == entry:
            return  # our own, and its answer was lost
        # A repetition overtook us: it could not know what we do.
        known = (
            set_all({"changes": entry["changes"]}) + remove_all("changes_lost") if "changes" in entry else Update(())
        )
        store.update(JOB_EVENTS, key, again if job.is_duplicate else again + known)


def told_again(told: Item | None, *, entry: Item, is_duplicate: bool) -> Item:
    """`write_history` within a transaction: what stands there after the event came once more, or for the first time."""
    if told is None:
        return entry | {"changes_lost": True} if is_duplicate else entry
    again = told | {"deliveries": told.get("deliveries", 0) + 1}
    if is_duplicate or "changes" not in entry:
        return again
    again.pop("changes_lost", None)
    return again | {"changes": entry["changes"]}


def entry_of(event: JobEvent, job: Merged, received_by: str) -> Item:
    entry: dict[str, Value] = {
        "PK": event.key.partition,
        "SK": f"{event.at.iso()}#{event.type}#{event.mark}",
        "event_type": str(event.type),
        "status": job.new.get("status", "unknown"),
        "source": event.source,
        "received_by": received_by,
        "received_at": event.received_at.iso(),
        "deliveries": 1,
        "ttl": event.received_at.epoch_seconds + KEPT_SECONDS,
    }
    if event.action:
        entry["action"] = event.action
    if event.delivery:
        entry["delivery"] = event.delivery
    if moved := changes(job.old, job.new):
        entry["changes"] = moved
    return entry


def changes(old: Item | None, new: Item) -> dict[str, Value]:
    """From what to what, for each attribute that a person would ask of."""
    before = old or {}
    moved: dict[str, Value] = {}
    for name in TOLD:
        # What an event leaves as it was is mostly the very same value.
        if name in new and (
            name not in before or (before[name] is not new[name] and not same(before[name], new[name]))
        ):
            moved[name] = {"from": before.get(name), "to": new[name]}
    return moved
