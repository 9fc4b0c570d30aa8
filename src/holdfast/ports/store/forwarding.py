"""The base of every wrapper around a store."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from holdfast.ports.store import Condition, Item, Key, Meter, Page, Query, Store, Table, Update, Write, Written


class ForwardingStore(ABC):
    """Implements `holdfast.ports.store.Store` by forwarding every call. A wrapper overrides the calls it changes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        return self._store.get(table, key, consistent=consistent)

    def batch_get(self, table: Table, keys: Sequence[Key], *, consistent: bool = False) -> list[Item | None]:
        return self._store.batch_get(table, keys, consistent=consistent)

    def query(self, query: Query) -> Page:
        return self._store.query(query)

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        self._store.put(table, item, condition)

    def update(self, table: Table, key: Key, update: Update, condition: Condition | None = None) -> Written:
        return self._store.update(table, key, update, condition)

    def delete(self, table: Table, key: Key, condition: Condition | None = None) -> None:
        self._store.delete(table, key, condition)

    def transact(self, writes: Sequence[Write]) -> None:
        self._store.transact(writes)

    def remove_expired(self, table: Table, *, most: int = 1000) -> int:
        return self._store.remove_expired(table, most=most)

    @abstractmethod
    def metered(self, meter: Meter) -> Store:
        """The same wrapper around the metered store: forwarding this call would lose the wrapper."""

    def close(self) -> None:
        self._store.close()
