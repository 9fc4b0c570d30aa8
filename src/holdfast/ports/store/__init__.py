"""The store: items by key, conditional writes, indexes. Modelled on DynamoDB, the production store.

All backends refuse what one of them cannot do, with `BadRequest`, before anything is sent. All of them promise:

- A write is durable when the call returns. A call that raises `StoreUnavailable` may or may not have been executed.
- A failed condition raises `WriteConflict` with the current item, and changes nothing. Since lost responses are
  retried, the current item may be the caller's own earlier write.
- Numbers are returned exactly as written. Items are returned as copies: modifying one changes nothing in the store.
- A read never returns an expired item (its TTL attribute is in the past). The exception is an index of keys only, which
  does not contain the TTL; `batch_get` then filters its items. Conditions and updates see an expired item until the
  backend removes it: a condition that must not see it has to say so.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ports.store.attributes import Attribute, attr
from holdfast.ports.store.capacity import Consumed, Meter
from holdfast.ports.store.conditions import Condition
from holdfast.ports.store.ranges import SortRange
from holdfast.ports.store.schema import Index, Key, Projection, Table
from holdfast.ports.store.updates import Update, remove_all, set_all
from holdfast.ports.store.values import Item, Value

__all__ = [
    "Attribute",
    "CheckItem",
    "Condition",
    "Consumed",
    "DeleteItem",
    "Index",
    "Item",
    "Key",
    "Meter",
    "Page",
    "Projection",
    "PutItem",
    "Query",
    "SortRange",
    "Store",
    "StoreTransaction",
    "Table",
    "TransactionalStore",
    "Update",
    "UpdateItem",
    "Value",
    "Write",
    "Written",
    "attr",
    "every_item",
    "remove_all",
    "set_all",
]

T = TypeVar("T")


class Written(Struct, frozen=True):
    """An item before and after an update. `old` is None if the update created it."""

    old: Item | None
    new: Item


class Query(Struct, frozen=True):
    """The items of one partition, in the order of the sort key.

    A page reads at most `limit` items and 1 MB. An index has no consistent reads.
    """

    table: Table
    partition: str
    sort: SortRange | None = None
    index: str | None = None
    reverse: bool = False
    limit: int | None = None
    cursor: str | None = None
    consistent: bool = False


class Page(Struct, frozen=True):
    """Some items, and a cursor to continue. Only a `cursor` of None is the end: earlier pages may be short or empty."""

    items: list[Item]
    cursor: str | None


class PutItem(Struct, frozen=True):
    table: Table
    item: Item
    condition: Condition | None = None


class UpdateItem(Struct, frozen=True):
    table: Table
    key: Key
    update: Update
    condition: Condition | None = None


class DeleteItem(Struct, frozen=True):
    table: Table
    key: Key
    condition: Condition | None = None


class CheckItem(Struct, frozen=True):
    """Writes nothing; the transaction fails unless its condition holds."""

    table: Table
    key: Key
    condition: Condition


Write = PutItem | UpdateItem | DeleteItem | CheckItem


class Store(Protocol):
    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        """The item, or None. A consistent read sees every acknowledged write."""
        ...

    def batch_get(self, table: Table, keys: Sequence[Key], *, consistent: bool = False) -> list[Item | None]:
        """One entry per key, in order. Any number of keys; each is read once."""
        ...

    def query(self, query: Query) -> Page: ...

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        """Write the whole item, replacing any existing one."""
        ...

    def update(self, table: Table, key: Key, update: Update, condition: Condition | None = None) -> Written:
        """Change an item; a missing one is created from its key."""
        ...

    def delete(self, table: Table, key: Key, condition: Condition | None = None) -> None:
        """Remove an item; a missing one is not an error."""
        ...

    def transact(self, writes: Sequence[Write]) -> None:
        """All of the writes or none, on up to 100 different items.

        If one condition fails and another write is invalid for its item, either error may be raised.
        """
        ...

    def remove_expired(self, table: Table, *, most: int = 1000) -> int:
        """Remove up to `most` expired items, and return their number. DynamoDB does this itself: 0."""
        ...

    def metered(self, meter: Meter) -> "Store":
        """The same store, which reports to `meter` what each call consumed."""
        ...

    def close(self) -> None: ...


class StoreTransaction(Store):
    """A store within a transaction: there are no other writers until it ends, and nothing is durable before.

    A class, not a Protocol: whether a store is a transaction is decided by its type.
    """

    @abstractmethod
    def rewrite(self, table: Table, key: Key, change: Callable[[Item | None], Item]) -> Written:
        """Replace the item by the result of `change`, which must not modify its argument."""

    @abstractmethod
    def append(self, table: Table, item: Item, again: Callable[[Item | None], Item]) -> None:
        """Insert an item. If its key exists, replace the existing item by the result of `again`."""


@runtime_checkable
class TransactionalStore(Protocol):
    """An optional capability of a store: several calls in one transaction."""

    def run_in_transaction(self, work: Callable[[StoreTransaction], T]) -> T:
        """Run `work` and commit its writes. If it raises, nothing is written. It may run more than once."""
        ...


def every_item(store: Store, query: Query) -> Iterator[Item]:
    """The items of all pages, one page at a time."""
    while True:
        page = store.query(query)
        yield from page.items
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)
