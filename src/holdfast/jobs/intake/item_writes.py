"""Merges an event into an item: one write for an event that arrives once and in order, more for all others.

No read precedes the write. The quick write's condition refuses repeated and late events, and the conflict returns the
current item; the fold turns it into the new item, which is written if the item has not changed in between.

Within a transaction no other process writes, so the fold alone is enough.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final, TypeGuard

from msgspec import Struct

from holdfast.kernel.errors import Retryable, WriteConflict
from holdfast.ports.store import (
    Condition,
    Item,
    Key,
    Store,
    StoreTransaction,
    Table,
    Update,
    Value,
    Written,
    attr,
    remove_all,
    set_all,
)
from holdfast.ports.store.updates import SetIfAbsent, SetTo
from holdfast.ports.store.values import canonical, same

TRIES_MOST: Final = 30


class ItemContended(Retryable):
    """Other processes kept changing the item. Nothing is lost: the delivery is not acknowledged and is retried."""


class Merged(Struct, frozen=True):
    """The item before and after the event; both are the same if the event was a duplicate."""

    old: Item | None
    new: Item
    is_duplicate: bool = False


@cache
def _is_transaction_type(kind: type) -> bool:
    return issubclass(kind, StoreTransaction)


def is_transaction(store: Store) -> TypeGuard[StoreTransaction]:
    """Whether the store is a transaction. Cached by type: `isinstance` is slow for classes derived from a protocol."""
    return _is_transaction_type(type(store))


def put_into(store: Store, table: Table, key: Key, update: Update) -> Written:
    """An update without a condition."""
    if is_transaction(store):
        return store.rewrite(table, key, lambda item: update.applied(item or table.key_item(key)))
    return store.update(table, key, update)


def merge(
    store: Store,
    table: Table,
    key: Key,
    mark: str,
    quick: Callable[[], tuple[Update, Condition]],
    fold: Callable[[Item | None], Item],
) -> Merged:
    if is_transaction(store):
        written = store.rewrite(table, key, fold)
        return Merged(written.old, written.new, is_duplicate=written.new is written.old)
    try:
        written = store.update(table, key, *quick())
        return Merged(written.old, written.new)
    except WriteConflict as conflict:
        seen = conflict.item
    for _ in range(TRIES_MOST):
        if seen is not None and mark in seen.get("dl", ()):
            return Merged(seen, seen, is_duplicate=True)
        update = changed(seen, fold(seen))
        if seen is not None and not update.changes:
            return Merged(seen, seen)  # the set of marks is full, and the event changes nothing
        try:
            written = store.update(table, key, update, unchanged_since(seen))
            return Merged(written.old, written.new)
        except WriteConflict as conflict:
            seen = conflict.item
    raise ItemContended(f"{table.name} {key}: changed by other processes {TRIES_MOST} times in a row; not acknowledged")


def changed(old: Item | None, new: Item) -> Update:
    """The update that turns `old` into `new`."""
    before = old or {}
    values = {name: value for name, value in new.items() if name not in before or not same(before[name], value)}
    return set_all(values) + remove_all(*(name for name in before if name not in new))


def unchanged_since(seen: Item | None) -> Condition:
    """Every event adds its mark, so the item is unchanged if its marks are."""
    item = seen or {}
    parts = [attr(name).equals(item[name]) if name in item else attr(name).is_absent() for name in ("dl", "rk")]
    return parts[0] & parts[1]


# Updates of many attributes, built in one step: this runs for every event.


def if_absent(values: Mapping[str, Value]) -> Update:
    """Set the attributes that are absent."""
    return Update(tuple(SetIfAbsent(attr(name).path, canonical(value, name)) for name, value in values.items()))


def set_values(values: Mapping[str, Value]) -> Update:
    """Set the attributes, present or not."""
    return Update(tuple(SetTo(attr(name).path, canonical(value, name)) for name, value in values.items()))


def combined(parts: Iterable[Update]) -> Update:
    """The updates as one."""
    return Update(tuple(change for part in parts for change in part.changes))
