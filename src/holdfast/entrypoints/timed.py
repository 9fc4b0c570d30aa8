"""A store that tells how long each call took, and how it ended. `metered` tells what calls consumed, not their time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from holdfast.kernel.errors import WriteConflict
from holdfast.ports.clock import Clock
from holdfast.ports.store import (
    Condition,
    Item,
    Key,
    Meter,
    OneTransaction,
    Page,
    Query,
    Store,
    Table,
    Together,
    Update,
    Write,
    Written,
)

T = TypeVar("T")

# Table, call, outcome (ok, conflict or failed), seconds.
Timer = Callable[[str, str, str, float], None]


class TimedStore:
    """Implements `holdfast.ports.store.Store` around another one."""

    def __init__(self, store: Store, clock: Clock, timer: Timer) -> None:
        self._store = store
        self._clock = clock
        self._timer = timer
        if isinstance(store, Together):
            self.together = partial(self._together, store)

    def _together(self, store: Together, work: Callable[[OneTransaction], T]) -> T:
        # One call on several tables: its time belongs to none of them alone.
        with self._timed("several", "together"):
            return store.together(work)

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
        # One call on several tables: its time belongs to none of them alone.
        with self._timed("+".join(sorted({write.table.name for write in writes})), "transact"):
            self._store.transact(writes)

    def remove_expired(self, table: Table, *, most: int = 1000) -> int:
        with self._timed(table.name, "remove_expired"):
            return self._store.remove_expired(table, most=most)

    def metered(self, meter: Meter) -> Store:
        return TimedStore(self._store.metered(meter), self._clock, self._timer)

    def close(self) -> None:
        self._store.close()

    @contextmanager
    def _timed(self, table: str, call: str) -> Iterator[None]:
        outcome = "failed"
        begun = self._clock.monotonic_seconds()
        try:
            yield
            outcome = "ok"
        except WriteConflict:
            outcome = "conflict"
            raise
        finally:
            self._timer(table, call, outcome, self._clock.monotonic_seconds() - begun)
