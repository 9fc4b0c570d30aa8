"""The store for a backfill: what is found again is no repetition by GitHub, and is not counted as one."""

from collections.abc import Sequence

from holdfast.kernel.errors import WriteConflict
from holdfast.ports.store import Condition, Item, Key, Meter, Page, Query, Store, Table, Update, Write, Written
from holdfast.ports.store.tables import JOB_EVENTS
from holdfast.ports.store.updates import Plus


class Uncounted:
    """Implements `holdfast.ports.store.Store`. In a job's history nothing is added to any number."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def update(self, table: Table, key: Key, update: Update, condition: Condition | None = None) -> Written:
        if table.name != JOB_EVENTS.name:
            return self._store.update(table, key, update, condition)
        kept = Update(tuple(change for change in update.changes if not isinstance(change, Plus)))
        if kept.changes:
            return self._store.update(table, key, kept, condition)
        found = self._store.get(table, key)
        if found is None:
            raise WriteConflict(f"{table.name} {key}: not there", None)
        return Written(found, found)

    # As they are

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        return self._store.get(table, key, consistent=consistent)

    def batch_get(self, table: Table, keys: Sequence[Key], *, consistent: bool = False) -> list[Item | None]:
        return self._store.batch_get(table, keys, consistent=consistent)

    def query(self, query: Query) -> Page:
        return self._store.query(query)

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        self._store.put(table, item, condition)

    def delete(self, table: Table, key: Key, condition: Condition | None = None) -> None:
        self._store.delete(table, key, condition)

    def transact(self, writes: Sequence[Write]) -> None:
        self._store.transact(writes)

    def remove_expired(self, table: Table, *, most: int = 1000) -> int:
        return self._store.remove_expired(table, most=most)

    def metered(self, meter: Meter) -> Store:
        return Uncounted(self._store.metered(meter))

    def close(self) -> None:
        self._store.close()
