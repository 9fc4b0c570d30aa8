"""The store's semantics for the backends in this process: memory and SQLite.

They differ only in how rows are kept (`Rows`). Conditions, updates, pages, expiry and cost are shared, so that a laptop
behaves like DynamoDB; the contract tests compare all three.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Final, Protocol, TypeVar

import msgspec

from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.store import (
    CheckItem,
    Condition,
    DeleteItem,
    Item,
    Key,
    Meter,
    Page,
    PutItem,
    Query,
    Table,
    Update,
    UpdateItem,
    Write,
    Written,
    cursors,
)
from holdfast.ports.store.capacity import Consumed, get_units, projected, query_cost, refused_cost, write_cost
from holdfast.ports.store.checks import check_query, checked_keys, checked_transaction, checked_write, item_name
from holdfast.ports.store.values import ITEM_BYTES_MOST, check_size, copied, item_bytes

PAGE_BYTES_MOST: Final = 1024 * 1024

_JSON: Final = msgspec.json.Encoder()

T = TypeVar("T")


class Transaction(Protocol):
    """Reads and writes of one transaction, visible to others only once they are durable."""

    def read(self, table: Table, key: Key) -> Item | None: ...

    def replace(self, table: Table, key: Key, old: Item | None, new: Item) -> None:
        """Replace `old`, as `read` returned it, by `new`. An item that is too large is refused."""
        ...

    def remove(self, table: Table, key: Key) -> None: ...


class Rows(Protocol):
    """Storage of items."""

    def read(self, table: Table, key: Key) -> Item | None:
        """The item as of the last durable transaction; the caller may keep and modify it."""
        ...

    def read_in_order(self, query: Query, after: dict[str, str] | None) -> Generator[Item]:
        """The query's whole items in order, after the one with these keys; lazily, at most `query.limit`."""
        ...

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in isolation, make its writes durable, and return its result. If it raises, nothing is written.

        `work` may run on another thread, share a commit with other work, and run more than once.
        """
        ...

    def expired_keys(self, table: Table, now: Instant, most: int) -> list[Key]: ...

    def close(self) -> None: ...


class EmbeddedStore:
    """Implements `holdfast.ports.store.Store` over rows."""

    def __init__(self, rows: Rows, clock: Clock, meter: Meter | None = None, tables: Sequence[Table] = ()) -> None:
        self._rows = rows
        self._clock = clock
        self._meter = meter
        # As declared for this store: a setting may change what an index contains.
        self._tables = {table.name: table for table in tables}

    def metered(self, meter: Meter) -> "EmbeddedStore":
        return EmbeddedStore(self._rows, self._clock, meter, tuple(self._tables.values()))

    def declared(self, table: Table) -> Table:
        """The table with the indexes that this store has."""
        return self._tables.get(table.name, table)

    def close(self) -> None:
        self._rows.close()

    # Reads

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        item = self._rows.read(table, table.checked(key))
        if self._meter:
            self._meter(Consumed(table.name, "get", read_units=get_units(item, consistent=consistent)))
        return item if item is not None and not table.is_expired(item, self._clock.now()) else None

    def batch_get(self, table: Table, keys: Sequence[Key], *, consistent: bool = False) -> list[Item | None]:
        read = self._rows.read
        found = {key: read(table, key) for key in checked_keys(table, keys)}
        if self._meter and found:
            units = sum(get_units(item, consistent=consistent) for item in found.values() if item)
            self._meter(Consumed(table.name, "batch_get", read_units=units))
        now = self._clock.now()
        live = {key: item for key, item in found.items() if item is not None and not table.is_expired(item, now)}
        if len(found) == len(keys):
            return [live.get(key) for key in keys]
        # A key that occurs twice gets two copies.
        return [copied(live[key]) if key in live else None for key in keys]

    def query(self, query: Query) -> Page:
        check_query(query)
        after = cursors.decoded(query)
        index = None if query.index is None else self.declared(query.table).index(query.index)
        seen: list[Item] = []
        sizes: list[int] = []
        stopped = False
        with closing(self._rows.read_in_order(query, after)) as rows:
            for row in rows:
                item = row if index is None else projected(query.table, index, row)
                size = item_bytes(item)
                if seen and sum(sizes) + size > PAGE_BYTES_MOST:
                    stopped = True
                    break
                seen.append(item)
                sizes.append(size)
                if len(seen) == query.limit:
                    stopped = True
                    break
        if self._meter:
            self._meter(query_cost(query.table, index, sizes, consistent=query.consistent))
        now = self._clock.now()
        cursor = cursors.encoded(query, seen[-1]) if stopped else None
        return Page([item for item in seen if not query.table.is_expired(item, now)], cursor)

    # Writes

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        self._write("put", PutItem(table, item, condition))

    def update(self, table: Table, key: Key, update: Update, condition: Condition | None = None) -> Written:
        old, new = self._write("update", UpdateItem(table, key, update, condition))
        assert new is not None  # noqa: S101 -- an update leaves an item; narrows the type
        return Written(old, new)

    def delete(self, table: Table, key: Key, condition: Condition | None = None) -> None:
        self._write("delete", DeleteItem(table, key, condition))

    def transact(self, writes: Sequence[Write]) -> None:
        checked = checked_transaction(writes)

        def work(transaction: Transaction) -> list[tuple[Item | None, Item | None]]:
            olds = [transaction.read(write.table, key) for write, key in checked]
            failed = [not _permits(write, old) for (write, _), old in zip(checked, olds, strict=True)]
            if any(failed):
                raise _transaction_conflict(checked, olds, failed)
            news = [
                _sized(outcome(write, key, old), write, key) for (write, key), old in zip(checked, olds, strict=True)
            ]
            for (write, key), old, new in zip(checked, olds, news, strict=True):
                _store(transaction, write, key, old, new)
            return list(zip(olds, news, strict=True))

        try:
            results = self._rows.write(work)
        except WriteConflict as conflict:
            if self._meter:
                for (write, _), old, failed in zip(checked, conflict.items, conflict.failed, strict=True):
                    self._meter(refused_cost(write.table, "transact", old, times=2, conflict=failed))
            raise
        if self._meter:
            for (write, _), (old, new) in zip(checked, results, strict=True):
                self._meter(write_cost(self.declared(write.table), "transact", old, new, times=2))

    def remove_expired(self, table: Table, *, most: int = 1000) -> int:
        now = self._clock.now()
        keys = self._rows.expired_keys(table, now, most) if table.ttl else []

        def work(transaction: Transaction) -> int:
            # Check again within the transaction: the expiry may have been extended since.
            olds = [(key, transaction.read(table, key)) for key in keys]
            gone = [key for key, old in olds if old is not None and table.is_expired(old, now)]
            for key in gone:
                transaction.remove(table, key)
            return len(gone)

        return self._rows.write(work) if keys else 0

    def _write(self, call: str, wanted: Write) -> tuple[Item | None, Item | None]:
        write, key = checked_write(wanted)

        def work(transaction: Transaction) -> tuple[Item | None, Item | None]:
            old = transaction.read(write.table, key)
            if not _permits(write, old):
                raise WriteConflict(
                    f"{item_name(write.table, key)}: condition not met: {write.condition}; nothing was written", old
                )
            new = outcome(write, key, old)
            _store(transaction, write, key, old, new)
            return old, new

        try:
            old, new = self._rows.write(work)
        except WriteConflict as conflict:
            if self._meter:
                self._meter(refused_cost(write.table, call, conflict.item))
            raise
        if self._meter:
            self._meter(write_cost(self.declared(write.table), call, old, new))
        return old, new


def outcome(write: Write, key: Key, old: Item | None) -> Item | None:
    """The item after the write; None if it is deleted."""
    match write:
        case PutItem():
            return write.item
        case UpdateItem():
            return write.update.applied(write.table.key_item(key) if old is None else old)
        case DeleteItem():
            return None
        case CheckItem():
            return old


def check_item_size(item: Item, table: Table, key: Key, text: str | None = None) -> None:
    """Refuse an item that DynamoDB would refuse. `text` is the item as JSON, if already encoded."""
    # Encoding is fast, and the JSON has at least a quarter of the item's bytes: most items need no exact count.
    if 4 * len(_JSON.encode(item) if text is None else text) > ITEM_BYTES_MOST:
        check_size(item_bytes(item), item_name(table, key))


def _sized(new: Item | None, write: Write, key: Key) -> Item | None:
    """Check sizes before the first write of a transaction: it is all or nothing."""
    if new is not None:
        check_item_size(new, write.table, key)
    return new


def _permits(write: Write, old: Item | None) -> bool:
    return write.condition is None or write.condition.holds(old)


def _store(transaction: Transaction, write: Write, key: Key, old: Item | None, new: Item | None) -> None:
    if isinstance(write, CheckItem):
        return
    if new is not None:
        transaction.replace(write.table, key, old, new)
    elif old is not None:
        transaction.remove(write.table, key)


def _transaction_conflict(
    checked: Sequence[tuple[Write, Key]], olds: Sequence[Item | None], failed: Sequence[bool]
) -> WriteConflict:
    first = failed.index(True)
    write, key = checked[first]
    message = f"{item_name(write.table, key)}: condition not met: {write.condition}; nothing was written"
    # Like DynamoDB, report only the items whose conditions failed.
    items = [old if refused else None for old, refused in zip(olds, failed, strict=True)]
    return WriteConflict(message, olds[first], items=items, failed=failed)
