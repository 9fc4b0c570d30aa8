"""Writes to batches, each conditional. Every one can be repeated, by any process, after a lost response.

          condition                               why that is enough
begin     our fence, the next number of the       only one process can buy on the supply that it has read
          sequence; the batch does not exist
grant     PLANNED                                 the token determines which machines EC2 launches
refuse    our fence, PLANNED                      a process that lost its lease may not free what another counts
configure GRANTED                                 the object in S3 decides which runner it is
start     installation and machine match, no      GitHub gives an ephemeral runner one job
          other job
interrupt the machine matches                     an interruption is never undone
out       GRANTED                                 a machine that is out stays out
close     GRANTED, every machine is out           any process that sees it may close it
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from holdfast.control.ledger import LeaseLost
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import InstallationId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import CheckItem, Condition, Item, Key, PutItem, Store, Update, UpdateItem, attr, set_all
from holdfast.ports.store.tables import STATE
from holdfast.runners.batch import CLOSED_KEPT_SECONDS, Batch, BatchPhase, Purchase, read_batch
from holdfast.runners.fleet_state import FLEET_KEY, FleetState

_WHY_MOST: Final = 300
_PLANNED: Final = attr("phase").equals(str(BatchPhase.PLANNED))
_GRANTED: Final = attr("phase").equals(str(BatchPhase.GRANTED))


def batch_key(number: int) -> Key:
    return Key(f"runners#batch#{number}")


def read_batches(store: Store, numbers: Collection[int]) -> dict[int, Batch]:
    """The batches with these numbers, read consistently. Closed ones may have expired."""
    ordered = sorted(numbers)
    items = store.batch_get(STATE, [batch_key(number) for number in ordered], consistent=True)
    return {number: read_batch(item, number) for number, item in zip(ordered, items, strict=True) if item is not None}


def begin(store: Store, state: FleetState, purchase: Purchase) -> Batch:
    """Store the next batch before it is bought. LeaseLost if another process has the lease."""
    number = state.batch_seq + 1
    item = {"pk": batch_key(number).partition, "phase": str(BatchPhase.PLANNED), "f": state.fence, **purchase.stored()}
    sequence = attr("fence").equals(state.fence) & attr("batchSeq").equals(state.batch_seq)
    if not state.batch_seq:
        sequence = attr("fence").equals(state.fence) & (attr("batchSeq").is_absent() | attr("batchSeq").equals(0))
    counted = attr("batchSeq").set_to(number) + attr("open").add_elements([number])
    try:
        store.transact(
            [
                UpdateItem(STATE, FLEET_KEY, counted, sequence),
                PutItem(STATE, item, attr("pk").is_absent()),
            ]
        )
    except WriteConflict as conflict:
        # A repeated request may be refused because of our own first one. No other process has our fence.
        found = store.get(STATE, batch_key(number))
        if found is None or found.get("f") != state.fence:
            raise LeaseLost(f"begin batch {number}: the lease was lost; {conflict}", conflict.item) from conflict
        return read_batch(found, number)
    return read_batch(item, number)


def grant(store: Store, batch: Batch, instances: Sequence[InstanceId]) -> Batch:
    """Record what EC2 launched. The stored batch is returned: one that is refused already stays closed."""
    granted = set_all({"phase": str(BatchPhase.GRANTED), "ids": list(instances), "r": {}, "j": {}})
    return _written(store, batch.number, granted, _PLANNED)


def refuse(store: Store, fence: int, batch: Batch, why: str, now: Instant) -> Batch:
    """Close a batch that EC2 will never launch. LeaseLost if another process has the lease."""
    closed = set_all({"phase": str(BatchPhase.CLOSED), "why": cut(why, _WHY_MOST), "expiresAt": _expiry(now)})
    try:
        store.transact(
            [
                CheckItem(STATE, FLEET_KEY, attr("fence").equals(fence)),
                UpdateItem(STATE, batch_key(batch.number), closed, _PLANNED),
            ]
        )
    except WriteConflict as conflict:
        found = store.get(STATE, batch_key(batch.number))
        fleet = store.get(STATE, FLEET_KEY) or {}
        if found is None or fleet.get("fence") != fence:
            raise LeaseLost(f"refuse batch {batch.number}: the lease was lost; {conflict}", found) from conflict
        return read_batch(found, batch.number)
    return read_batch(store.get(STATE, batch_key(batch.number)) or {}, batch.number)


def configured(store: Store, batch: Batch, runners: Mapping[int, int]) -> Batch:
    """Record GitHub's ids of the runners whose configuration is stored for their machines."""
    first, *rest = (attr("r")[str(index)].set_to(runner) for index, runner in sorted(runners.items()))
    return _written(store, batch.number, sum(rest, start=first), _GRANTED)


def started(
    store: Store, number: int, index: int, instance: InstanceId, installation: InstallationId, job: str
) -> Batch | None:
    """Record the job that runs on a machine; None if it is not a machine of ours, or ran another job."""
    place = attr("j")[str(index)]
    is_ours = attr("inst").equals(installation) & attr("ids")[index].equals(instance)
    try:
        written = store.update(
            STATE, batch_key(number), place.set_to(job), is_ours & (place.is_absent() | place.equals(job))
        )
    except WriteConflict:
        return None
    return read_batch(written.new, number)


def interrupted(store: Store, number: int, index: int, instance: InstanceId) -> Batch | None:
    """Record that EC2 takes a machine back; None if it is not a machine of ours."""
    mark, is_ours = attr("int").add_elements([index]), attr("ids")[index].equals(instance)
    try:
        return read_batch(store.update(STATE, batch_key(number), mark, is_ours).new, number)
    except WriteConflict:
        return None


def out(store: Store, batch: Batch, indexes: Collection[int], now: Instant) -> Batch:
    """Record machines that can never take a job again, and close the batch with the last one."""
    after = _written(store, batch.number, attr("x").add_elements(sorted(indexes)), _GRANTED)
    return close(store, after, now) if after.is_all_out else after


def close(store: Store, batch: Batch, now: Instant) -> Batch:
    """Close a batch whose machines are all out. Every tick repeats it: two `out` may each miss being the last."""
    closed = set_all({"phase": str(BatchPhase.CLOSED), "expiresAt": _expiry(now)})
    return _written(store, batch.number, closed, _GRANTED & attr("x").has_size(len(batch.instances)))


def _written(store: Store, number: int, update: Update, condition: Condition) -> Batch:
    """The batch after the update; as it is stored if the condition no longer holds."""
    try:
        item: Item | None = store.update(STATE, batch_key(number), update, condition).new
    except WriteConflict as conflict:
        item = conflict.item
        if item is None:
            raise
    return read_batch(item or {}, number)


def _expiry(now: Instant) -> int:
    return now.plus(CLOSED_KEPT_SECONDS).epoch_seconds
