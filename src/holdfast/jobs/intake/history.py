"""A job's history: one unchanging entry per event, kept for 14 days.

The key is `timestamp#event_type#mark`, computed from the event alone. A repeated delivery finds its own entry and
increments `deliveries`; two different events never share an entry, even in the same millisecond.
"""

from functools import partial
from typing import Final

from holdfast.jobs.intake.item_writes import Merged, is_transaction
from holdfast.jobs.model.facts import JobEvent
from holdfast.kernel.errors import WriteConflict
from holdfast.ports.store import Item, Key, Query, Store, Update, Value, attr, every_item, remove_all, set_all
from holdfast.ports.store.tables import JOB_EVENTS
from holdfast.ports.store.values import same

KEPT_SECONDS: Final = 14 * 86_400
# The attributes whose changes the history records. Identity is left out: it does not change.
REPORTED_ATTRIBUTES: Final = (
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
    """Make sure that the event is in the job's history and that each of its deliveries is counted."""
    entry = entry_of(event, job, received_by)
    if is_transaction(store):
        if job.is_duplicate and store.get(JOB_EVENTS, JOB_EVENTS.key_of(entry)) is None:
            return  # job and history are written together: it was recorded under another delivery id, or has expired
        delivered = partial(entry_after_delivery, entry=entry, is_duplicate=job.is_duplicate)
        store.append(JOB_EVENTS, delivered(None), delivered)
        return
    key, one_more = JOB_EVENTS.key_of(entry), attr("deliveries").plus(1)
    if job.is_duplicate:
        try:
            store.update(JOB_EVENTS, key, one_more, attr("PK").exists())
        except WriteConflict:
            known = _known_sort_key(store, event)
            if known is not None:
                store.update(JOB_EVENTS, Key(event.key.partition, known), one_more)
                return
            # The process that wrote the job crashed before this write, or is about to do it. The changes are unknown.
            entry["changes_lost"] = True
        else:
            return
    try:
        store.put(JOB_EVENTS, entry, attr("PK").is_absent())
    except WriteConflict as conflict:
        if conflict.item == entry:
            return  # our own write, whose response was lost
        # A repeated delivery was faster, and does not know the changes.
        changed = (
            set_all({"changes": entry["changes"]}) + remove_all("changes_lost") if "changes" in entry else Update(())
        )
        store.update(JOB_EVENTS, key, one_more if job.is_duplicate else one_more + changed)


def _known_sort_key(store: Store, event: JobEvent) -> str | None:
    """The entry of the same body under another delivery id: the id is not signed, and the key has its time."""
    entries = every_item(store, Query(JOB_EVENTS, event.key.partition))
    return next((str(entry["SK"]) for entry in entries if str(entry["SK"]).endswith(f"#{event.mark}")), None)


def entry_after_delivery(known: Item | None, *, entry: Item, is_duplicate: bool) -> Item:
    """`write_history` within a transaction: the entry after one more delivery of the event; `known` is it before."""
    if known is None:
        return entry | {"changes_lost": True} if is_duplicate else entry
    counted = known | {"deliveries": known.get("deliveries", 0) + 1}
    if is_duplicate or "changes" not in entry:
        return counted
    counted.pop("changes_lost", None)
    return counted | {"changes": entry["changes"]}


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
    """The old and new value of each attribute in `REPORTED_ATTRIBUTES` that has changed."""
    before = old or {}
    moved: dict[str, Value] = {}
    for name in REPORTED_ATTRIBUTES:
        # An unchanged value is mostly the same object.
        if name in new and (
            name not in before or (before[name] is not new[name] and not same(before[name], new[name]))
        ):
            moved[name] = {"from": before.get(name), "to": new[name]}
    return moved
