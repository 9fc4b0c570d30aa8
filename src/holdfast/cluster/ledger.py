"""Writes to the cluster's item, each under the fence.

Every write carries `fence = mine`, so one made by a process that has lost its lease changes nothing, however late it
comes. No safety rests on a clock.
"""

from dataclasses import dataclass

from holdfast.cluster.state import ClusterState, read_state
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import ClusterId
from holdfast.ports.store import Condition, Item, Key, Store, Update, attr
from holdfast.ports.store.tables import STATE
from holdfast.ports.store.values import same


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of a durable machine: what changes, and what must be true for it. The fence is added by the ledger."""

    name: str
    update: Update
    condition: Condition

    def __str__(self) -> str:
        return self.name


class LeaseLost(WriteConflict):
    """Somebody else has taken the lease since: whatever we were about to do is theirs to do."""


class Ledger:
    """The item of one cluster."""

    def __init__(self, store: Store, cluster: ClusterId) -> None:
        self._store = store
        self._key = Key(cluster)

    def read(self) -> ClusterState:
        return read_state(self._store.get(STATE, self._key))

    def acquire(self, update: Update, condition: Condition) -> tuple[ClusterState, ClusterState]:
        """The one write without a fence: it makes the next one. The state before, and after."""
        written = self._store.update(STATE, self._key, update, condition)
        return read_state(written.old), read_state(written.new)

    def write(self, transition: Transition, fence: int) -> ClusterState:
        """Take the step, and return the state after it.

        Our own earlier write may be what refuses a repeated one: then the item is already as the step would make it,
        and the step is taken. LeaseLost when the fence has moved on; WriteConflict when the step does not fit.
        """
        condition = attr("fence").equals(fence) & transition.condition
        try:
            return read_state(self._store.update(STATE, self._key, transition.update, condition).new)
        except WriteConflict as conflict:
            found = conflict.item
            if found is None or found.get("fence") != fence:
                raise LeaseLost(f"{transition}: the lease was lost; {conflict}", found) from conflict
            if _is_taken_already(transition.update, found):
                return read_state(found)
            raise


def _is_taken_already(update: Update, found: Item) -> bool:
    # One that adds to a number never leaves an item as it was, so it is never taken for done.
    return same(update.applied(found), found)
