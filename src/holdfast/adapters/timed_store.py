"""A store that reports how long each call took and how it ended. (`metered` reports what calls consumed.)

It also remembers whether the latest write failed: on a full disk, reads still succeed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from holdfast.kernel.errors import NeedsOperator, StoreUnavailable, WriteConflict
from holdfast.ports.clock import Clock
from holdfast.ports.store import (
    Condition,
    Item,
    Key,
    Meter,
    Page,
    Query,
    Store,
    StoreTransaction,
    Table,
    TransactionalStore,
    Update,
    Write,
    Written,
)
from holdfast.ports.store.forwarding import ForwardingStore

T = TypeVar("T")

_WRITES: Final = frozenset({"put", "update", "delete", "transact", "together"})

# Table, call, outcome (ok, conflict or failed), seconds.
Timer = Callable[[str, str, str, float], None]


def timed_store(store: Store, clock: Clock, timer: Timer) -> "TimedStore":
    """The same store, timed. It runs transactions if the store does."""
    if isinstance(store, TransactionalStore):
        return TimedTransactionalStore(store, store, clock, timer)
    return TimedStore(store, clock, timer)


class TimedStore(ForwardingStore):
    """Implements `holdfast.ports.store.Store` around another one."""

    def __init__(self, store: Store, clock: Clock, timer: Timer) -> None:
        super().__init__(store)
        self._clock = clock
        self._timer = timer
        self.is_write_failing = False  # whether the latest write failed, and not because of its item or condition

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        with self._timed(table.name, "get"):
            return self._store.get(table, key, consistent=consistent)

    def batch_get(self, table: Table, keys: Sequence[Key], *, consistent: bool = False) -> list[Item | None]:
        with self._timed(table.name, "batch_get"):
            return self._store.batch_get(table, keys, consistent=consistent)

    def query(self, query: Query) -> Page:
        with self._timed(query.table.name, "query"):
            return self._store.query(query)

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        with self._timed(table.name, "put"):
            self._store.put(table, item, condition)

    def update(self, table: Table, key: Key, update: Update, condition: Condition | None = None) -> Written:
        with self._timed(table.name, "update"):
            return self._store.update(table, key, update, condition)

    def delete(self, table: Table, key: Key, condition: Condition | None = None) -> None:
        with self._timed(table.name, "delete"):
            self._store.delete(table, key, condition)

    def transact(self, writes: Sequence[Write]) -> None:
        with self._timed("+".join(sorted({write.table.name for write in writes})), "transact"):
            self._store.transact(writes)

    def remove_expired(self, table: Table, *, most: int = 1000) -> int:
        with self._timed(table.name, "remove_expired"):
            return self._store.remove_expired(table, most=most)

    def metered(self, meter: Meter) -> Store:
        return timed_store(self._store.metered(meter), self._clock, self._timer)

    @contextmanager
    def _timed(self, table: str, call: str) -> Iterator[None]:
        outcome = "failed"
        begun = self._clock.monotonic_seconds()
        try:
            yield
            outcome = "ok"
            self.is_write_failing &= call not in _WRITES
        except WriteConflict:
            outcome = "conflict"
            raise
        except (StoreUnavailable, NeedsOperator):
            self.is_write_failing |= call in _WRITES
            raise
        finally:
            self._timer(table, call, outcome, self._clock.monotonic_seconds() - begun)


class TimedTransactionalStore(TimedStore):
    """Implements `holdfast.ports.store.TransactionalStore` as well."""

    def __init__(self, store: Store, transactional: TransactionalStore, clock: Clock, timer: Timer) -> None:
        super().__init__(store, clock, timer)
        self._transactional = transactional

    def run_in_transaction(self, work: Callable[[StoreTransaction], T]) -> T:
        # Not under one table's name: a transaction may use several. "together" is what dashboards know this call by.
        with self._timed("several", "together"):
            return self._transactional.run_in_transaction(work)
