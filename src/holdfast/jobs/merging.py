"""One write for an event that comes once and in order; a second look for all others.

No read comes before a write. The quick write's condition refuses repetitions and latecomers, and hands back the item
that stands there; from that the fold makes the new item, which is written if nothing has happened in between.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from holdfast.kernel.errors import Retryable, WriteConflict
from holdfast.ports.store import Condition, Item, Key, Store, Table, Update, Written, attr, remove_all, set_all
from holdfast.ports.store.values import same

TRIES_MOST: Final = 30


class Contended(Retryable):
    """Others kept changing the item. Nothing is lost: the delivery is not acknowledged, and comes again."""


class Merged(Struct, frozen=True):
    """The item before and after. A repetition finds it as it is: then both are the same."""

    old: Item | None
    new: Item
    is_duplicate: bool = False


def rewriting(store: Store) -> Callable[[Table, Key, Callable[[Item | None], Item]], Written] | None:
    """How to put a changed item in its place, where the store is one transaction: nobody comes in between.

    Then a fold alone is enough. None: a write needs its condition.
    """
    return getattr(store, "rewrite", None)


def appending(store: Store) -> Callable[[Table, Item, Callable[[Item | None], Item]], None] | None:
    """How to put an item where hardly ever one is, in such a store. If one is, the function makes of it what is put."""
    return getattr(store, "append", None)


def put_into(store: Store, table: Table, key: Key, update: Update) -> Written:
    """An update without a condition, by the shortest way."""
    rewrite = rewriting(store)
    if rewrite is None:
        return store.update(table, key, update)
    return rewrite(table, key, lambda item: update.applied(item or table.key_item(key)))


def merge(
    store: Store,
    table: Table,
    key: Key,
    mark: str,
    quick: Callable[[], tuple[Update, Condition]],
    fold: Callable[[Item | None], Item],
) -> Merged:
    rewrite = rewriting(store)
    if rewrite is not None:
        written = rewrite(table, key, fold)
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
            return Merged(seen, seen)  # the marks are full, and it says nothing new
        try:
            written = store.update(table, key, update, unchanged_since(seen))
            return Merged(written.old, written.new)
        except WriteConflict as conflict:
            seen = conflict.item
    raise Contended(f"{table.name} {key}: changed by others {TRIES_MOST} times in a row; to be delivered again")


def changed(old: Item | None, new: Item) -> Update:
    """The update that makes the one of the other."""
    before = old or {}
    values = {name: value for name, value in new.items() if name not in before or not same(before[name], value)}
    return set_all(values) + remove_all(*(name for name in before if name not in new))


def unchanged_since(seen: Item | None) -> Condition:
    """Every event adds its mark, so the marks tell whether anything happened since."""
    item = seen or {}
    parts = [attr(name).equals(item[name]) if name in item else attr(name).is_absent() for name in ("dl", "rk")]
    return parts[0] & parts[1]
