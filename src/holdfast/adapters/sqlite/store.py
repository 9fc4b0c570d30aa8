"""The store in a SQLite file, which can run several calls in one transaction.

Where DynamoDB needs a conditional update, a transaction can read an item, change it and write it back: there is no
other writer in between.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from holdfast.adapters.embedded import EmbeddedStore
from holdfast.adapters.sqlite import items
from holdfast.adapters.sqlite.rows import SqliteRows
from holdfast.adapters.sqlite.transaction import SqliteTransaction
from holdfast.kernel.errors import StoreRefused
from holdfast.ports.clock import Clock
from holdfast.ports.store import (
    Consumed,
    Item,
    Key,
    Meter,
    Query,
    StoreTransaction,
    Table,
    Write,
    Written,
)
from holdfast.ports.store.capacity import get_units, write_cost
from holdfast.ports.store.checks import item_name
from holdfast.ports.store.values import canonical_item

T = TypeVar("T")


class SqliteStore(EmbeddedStore):
    """Implements `holdfast.ports.store.Store` and `TransactionalStore`."""

    _rows: SqliteRows

    def __init__(
        self, rows: SqliteRows, clock: Clock, meter: Meter | None = None, tables: Sequence[Table] = ()
    ) -> None:
        super().__init__(rows, clock, meter, tables)
        self._remembered = _Remembered()

    def metered(self, meter: Meter) -> "SqliteStore":
        return SqliteStore(self._rows, self._clock, meter, tuple(self._tables.values()))

    def run_in_transaction(self, work: Callable[[StoreTransaction], T]) -> T:
        consumed: list[Consumed] = []

        def within(transaction: SqliteTransaction) -> T:
            consumed.clear()  # of an earlier attempt
            meter = consumed.append if self._meter else None
            bound = _Bound(self._rows, transaction, self._remembered)
            found = work(_Within(bound, self._clock, meter, self._tables))
            bound.rewritten.write()
            return found

        result = self._rows.write(within)
        if self._meter:
            for each in consumed:
                self._meter(each)
        return result


class _Bound:
    """Rows that write into a transaction which the caller begins and commits."""

    def __init__(self, rows: SqliteRows, transaction: SqliteTransaction, remembered: "_Remembered") -> None:
        self.transaction = transaction
        self.rewritten = _Rewritten(transaction, remembered)
        self.expired_keys = rows.expired_keys

    def read(self, table: Table, key: Key) -> Item | None:
        self.rewritten.write()  # so that the read sees it
        return self.transaction.read(table, key)

    def read_in_order(self, query: Query, after: dict[str, str] | None) -> Generator[Item]:
        self.rewritten.write()
        yield from self.transaction.read_in_order(query, after)

    def write(self, work: Callable[[SqliteTransaction], T]) -> T:
        self.rewritten.write()
        return work(self.transaction)

    def close(self) -> None:
        """The caller closes the rows."""


@dataclass(slots=True)
class _Kept:
    """An item before and after the transaction."""

    table: Table
    key: Key
    old: Item | None
    new: Item | None


class _Remembered:
    """A cache of recently rewritten items, with their text.

    An entry is valid if the file still has the same text: comparing is much faster than decoding, and it detects
    rollbacks and changes by other processes.
    """

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._items: dict[tuple[str, Key], tuple[str, Item]] = {}

    def item_of(self, table: Table, key: Key, text: str) -> Item:
        known = self._items.get((table.name, key))
        if known is not None and known[0] == text:
            return known[1]
        return items.decoded(text, table.name, key)

    def add(self, table: Table, key: Key, text: str, item: Item) -> None:
        name = (table.name, key)
        self._items.pop(name, None)  # so that the oldest come first
        self._items[name] = (text, item)
        if len(self._items) > self._most:
            del self._items[next(iter(self._items))]


class _Rewritten:
    """Rewritten items, each written once, at the end: every job of a run rewrites the run."""

    def __init__(self, transaction: SqliteTransaction, remembered: _Remembered) -> None:
        self._transaction = transaction
        self._remembered = remembered
        self._kept: dict[tuple[str, Key], _Kept] = {}

    def kept(self, table: Table, key: Key) -> _Kept:
        name = (table.name, key)
        found = self._kept.get(name)
        if found is None:
            text = self._transaction.text(table, table.checked(key))
            old = None if text is None else self._remembered.item_of(table, key, text)
            found = self._kept[name] = _Kept(table, key, old, old)
        return found

    def insert(self, table: Table, key: Key, new: Item) -> bool:
        """Insert the item without reading first; False if its key exists."""
        if (table.name, key) in self._kept:
            return False
        checked, text = _checked(table, key, {}, new)
        return self._transaction.insert(table, key, checked, text)

    def write(self) -> None:
        for kept in self._kept.values():
            if kept.new is not kept.old and kept.new is not None:
                checked, text = _checked(kept.table, kept.key, kept.old or {}, kept.new)
                self._transaction.replace_by_text(kept.table, kept.key, kept.old, checked, text)
                self._remembered.add(kept.table, kept.key, text, checked)
        self._kept.clear()


class _Within(EmbeddedStore, StoreTransaction):
    """Implements `holdfast.ports.store.StoreTransaction`."""

    def __init__(self, rows: _Bound, clock: Clock, meter: Meter | None, tables: dict[str, Table]) -> None:
        super().__init__(rows, clock, meter)
        self._tables = tables
        self._rewritten = rows.rewritten

    def rewrite(self, table: Table, key: Key, change: Callable[[Item | None], Item]) -> Written:
        """The new item is validated when it is written: at the end, or before the next call of another kind."""
        kept = self._rewritten.kept(table, key)
        old = kept.new
        new = change(old)
        if new is not old:
            kept.new = new = table.key_item(key) | new if old is None else new
            if self._meter:
                self._meter(write_cost(self.declared(table), "update", old, canonical_item(new)))
        return Written(old, new)

    def append(self, table: Table, item: Item, again: Callable[[Item | None], Item]) -> None:
        # Most are new: an insert that may fail is cheaper than a read first.
        key = table.key_of(item)
        if not self._rewritten.insert(table, key, item):
            self.rewrite(table, key, again)
        elif self._meter:
            self._meter(write_cost(self.declared(table), "put", None, item))

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        """As rewritten so far: a read alone does not make that be written. The caller must not modify the item."""
        item = self._rewritten.kept(table, key).new
        if self._meter:
            self._meter(Consumed(table.name, "get", read_units=get_units(item, consistent=consistent)))
        return item if item is not None and not table.is_expired(item, self._clock.now()) else None

    def transact(self, writes: Sequence[Write]) -> None:
        raise StoreRefused(f"{len(writes)} writes: a transaction within a transaction is not supported")


def _checked(table: Table, key: Key, old: Item, new: Item) -> tuple[Item, str]:
    """The new item in canonical form, and as text."""
    whole, text = items.checked_and_encoded(new, old)
    if table.indexes:
        keys = [name for name in table.index_key_attributes if name in whole and whole[name] is not old.get(name)]
        table.check_index_keys({name: whole[name] for name in keys})
    if whole.get(table.partition) != key.partition or (table.sort is not None and whole.get(table.sort) != key.sort):
        raise StoreRefused(f"{item_name(table, key)}: a key attribute cannot be changed")
    return whole, text
