"""The store in memory, for tests and the simulator."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Generator, Iterator, Sequence
from threading import RLock
from typing import TypeVar

from holdfast.adapters.embedded import EmbeddedStore, Transaction, check_item_size
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.store import Index, Item, Key, Meter, Query, Table
from holdfast.ports.store.values import copied

T = TypeVar("T")

# Within a partition: the sort key ("" if there is none), then the table's own key, so that ties have an order.
_Place = tuple[str, str, str]


def memory_store(clock: Clock, meter: Meter | None = None, tables: Sequence[Table] = ()) -> EmbeddedStore:
    return EmbeddedStore(MemoryRows(), clock, meter, tables)


class MemoryRows:
    """Implements `holdfast.adapters.embedded.Rows`."""

    def __init__(self) -> None:
        self._items: dict[str, dict[Key, Item]] = {}
        # (table, index or "", partition) → places in order
        self._orders: dict[tuple[str, str, str], list[_Place]] = {}
        self._lock = RLock()

    def read(self, table: Table, key: Key) -> Item | None:
        with self._lock:
            item = self._items.get(table.name, {}).get(key)
            return None if item is None else copied(item)

    def read_in_order(self, query: Query, after: dict[str, str] | None) -> Generator[Item]:
        with self._lock:
            keys = [Key(place[1], place[2] if query.table.sort else None) for place in self._places(query, after)]
            items = self._items.get(query.table.name, {})
            found = [copied(items[key]) for key in keys[: query.limit]]
        yield from found

    def write(self, work: Callable[[Transaction], T]) -> T:
        # Work checks everything before it writes, so there is nothing to roll back.
        with self._lock:
            return work(self)

    def expired_keys(self, table: Table, now: Instant, most: int) -> list[Key]:
        with self._lock:
            items = self._items.get(table.name, {})
            return [key for key, item in items.items() if table.is_expired(item, now)][:most]

    def close(self) -> None:
        """Nothing to release."""

    # Transaction: called within `write`

    def replace(self, table: Table, key: Key, old: Item | None, new: Item) -> None:
        check_item_size(new, table, key)
        if old is not None:
            if all(old.get(name) == new.get(name) for name in table.index_key_attributes):
                self._items[table.name][key] = copied(new)  # the common case: its positions do not change
                return
            self.remove(table, key)
        self._items.setdefault(table.name, {})[key] = copied(new)
        for order, place in _places_of(table, key, new):
            insort(self._orders.setdefault(order, []), place)

    def remove(self, table: Table, key: Key) -> None:
        old = self._items.get(table.name, {}).pop(key, None)
        if old is None:
            return
        for order, place in _places_of(table, key, old):
            places = self._orders[order]
            del places[bisect_left(places, place)]
            if not places:
                del self._orders[order]

    def _places(self, query: Query, after: dict[str, str] | None) -> list[_Place]:
        places = self._orders.get((query.table.name, query.index or "", query.partition), [])
        if query.sort is not None:
            places = [place for place in places if query.sort.holds(place[0])]
        if after is None:
            return places[::-1] if query.reverse else places
        holder: Table | Index = query.table if query.index is None else query.table.index(query.index)
        last = (
            after[holder.sort] if holder.sort else "",
            after[query.table.partition],
            after[query.table.sort] if query.table.sort else "",
        )
        if query.reverse:
            return places[: bisect_left(places, last)][::-1]
        return places[bisect_right(places, last) :]


def _places_of(table: Table, key: Key, item: Item) -> Iterator[tuple[tuple[str, str, str], _Place]]:
    own = (key.partition, key.sort or "")
    yield (table.name, "", key.partition), (key.sort or "", *own)
    for index in table.indexes:
        if index.holds(item):
            yield (table.name, index.name, item[index.partition]), (item[index.sort] if index.sort else "", *own)
