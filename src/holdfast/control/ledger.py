"""Writes to a control loop's one item, each under the fence.

Every write is conditional on our fence, so a late write by a process that has lost its lease changes nothing. Safety
does not depend on clocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from holdfast.kernel.errors import WriteConflict
from holdfast.ports.store import Condition, Item, Key, Store, Update, attr
from holdfast.ports.store.tables import STATE
from holdfast.ports.store.values import same


class LeasedState(Protocol):
    """What every loop's state has: the fence and the owner of the lease."""

    @property
    def fence(self) -> int: ...
    @property
    def lock_owner(self) -> str: ...


S = TypeVar("S", bound=LeasedState)


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of a durable workflow: what changes, and the condition for it. The ledger adds the fence."""

    name: str
    update: Update
    condition: Condition

    def __str__(self) -> str:
        return self.name


class LeaseLost(WriteConflict):
    """Another process has taken the lease. Stop: the rest of the work is now its own."""


class Ledger(Generic[S]):
    """The item at `key`, read into a typed state by `read`."""

    def __init__(self, store: Store, key: Key, read: Callable[[Item | None], S]) -> None:
        self._store = store
        self._key = key
        self._read = read

    def read(self) -> S:
        return self._read(self._store.get(STATE, self._key))

    def acquire(self, update: Update, condition: Condition) -> tuple[S, S]:
        """The only write without a fence condition: it increments the fence. Returns the states before and after."""
        written = self._store.update(STATE, self._key, update, condition)
        return self._read(written.old), self._read(written.new)

    def write(self, transition: Transition, fence: int) -> S:
        """Write the transition, and return the state after it.

        A repeated write may be refused because of our own earlier one. If the item already is as the transition would
        make it, the transition counts as written. LeaseLost if the fence has changed; WriteConflict if the transition's
        condition fails.
        """
        condition = attr("fence").equals(fence) & transition.condition
        try:
            return self._read(self._store.update(STATE, self._key, transition.update, condition).new)
        except WriteConflict as conflict:
            found = conflict.item
            if found is None or found.get("fence") != fence:
                raise LeaseLost(f"{transition}: the lease was lost; {conflict}", found) from conflict
            if _is_written_already(transition.update, found):
                return self._read(found)
            raise


def _is_written_already(update: Update, found: Item) -> bool:
    # An update that increments a number always changes the item, so it never counts as written.
    return same(update.applied(found), found)
