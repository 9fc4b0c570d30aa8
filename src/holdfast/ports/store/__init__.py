"""The store: items by key, conditional writes, indexes. DynamoDB-shaped, because DynamoDB is the production store.

What one backend cannot do, all refuse with `BadRequest`, before anything is sent. Promises that hold for each:

- A write is durable when the call returns. A call that raises `StoreUnavailable` may or may not have taken place.
- A failed condition raises `WriteConflict` with the item that won, and changes nothing. Since a lost answer is
  retried, a caller may meet its own earlier write as the winner.
- Numbers come back exactly as they went in. Items come back as copies: changing one changes nothing in the store.
- An expired item (its TTL attribute is in the past) is never returned by a read; only an index of keys alone, which
  does not know the TTL, may still name it: its items are read by `batch_get`, which does. Until the backend removes it,
  an expired item is still there for conditions and updates: a condition that must not see it says so.
"""

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
    "OneTransaction",
    "Page",
    "Projection",
    "PutItem",
    "Query",
    "SortRange",
    "Store",
    "Table",
    "Together",
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
    """An item before and after an update. `old` is None when the update made it."""

    old: Item | None
    new: Item


class Query(Struct, frozen=True):
    """The items of one partition, in the order of the sort key.

    At most `limit` items are looked at for a page, and at most 1 MB. An index does not offer consistent reads.
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
    """Some items, and where to go on. Only `cursor` None is the end: a page may be short, or empty, before that."""

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
    """Changes nothing; its condition must hold for the others to take place."""

    table: Table
    key: Key
    condition: Condition


Write = PutItem | UpdateItem | DeleteItem | CheckItem


class Store(Protocol):
    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        """The item, or None. A consistent read sees every write that was acknowledged before it."""
        ...

    def batch_get(self, table: Table, keys: Sequence[Key], *, consistent: bool = False) -> list[Item | None]:
        """One entry for each key, in their order. Any number of keys; each is read once."""
        ...

    def query(self, query: Query) -> Page: ...

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        """Write the whole item over whatever was there."""
        ...

    def update(self, table: Table, key: Key, update: Update, condition: Condition | None = None) -> Written:
        """Change an item; an absent one is made from its key."""
        ...

    def delete(self, table: Table, key: Key, condition: Condition | None = None) -> None:
        """Remove an item; an absent one is no error."""
        ...

    def transact(self, writes: Sequence[Write]) -> None:
        """All of the writes or none, on up to 100 different items.

        Where one's condition fails and another does not fit its item, either may be told.
        """
        ...

    def remove_expired(self, table: Table, *, most: int = 1000) -> int:
        """Remove up to so many expired items, and tell how many went. DynamoDB does this by itself: 0."""
        ...

    def metered(self, meter: Meter) -> "Store":
        """The same store, telling `meter` what each call consumed."""
        ...

    def close(self) -> None: ...


class OneTransaction(Store, Protocol):
    """A store within a transaction: nobody else writes until it ends, and nothing is durable before that."""

    def rewrite(self, table: Table, key: Key, change: Callable[[Item | None], Item]) -> Written:
        """Put what `change` makes of the item, which itself it leaves as it is, in its place."""
        ...

    def append(self, table: Table, item: Item, again: Callable[[Item | None], Item]) -> None:
        """Put a new item there. If one stands there already, put what `again` makes of that in its place."""
        ...


@runtime_checkable
class Together(Protocol):
    """What a store may offer beyond `Store`: several calls that take place together, or not at all."""

    def together(self, work: Callable[[OneTransaction], T]) -> T:
        """Run `work` and make what it wrote durable. If it raises, nothing was written. It may run more than once."""
        ...


def every_item(store: Store, query: Query) -> Iterator[Item]:
    """The items of all pages, one page at a time."""
    while True:
        page = store.query(query)
        yield from page.items
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)
