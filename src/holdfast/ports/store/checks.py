"""Checks of a call before it reaches a backend, so that all backends refuse the same things with the same messages."""

from collections.abc import Sequence
from typing import Final

from holdfast.kernel.errors import BadRequest
from holdfast.ports.store import CheckItem, PutItem, Query, UpdateItem, Write
from holdfast.ports.store.schema import PARTITION_BYTES_MOST, Key, Table
from holdfast.ports.store.values import ITEM_BYTES_MOST, canonical_item, check_size, is_larger, item_bytes, shown

TRANSACTION_WRITES_MOST: Final = 100
TRANSACTION_BYTES_MOST: Final = 4 * 1024 * 1024
LIMIT_MOST: Final = 2**31 - 1


def item_name(table: Table, key: Key) -> str:
    return f"{table.name} {key}"


def checked_put(write: PutItem) -> tuple[PutItem, Key]:
    """The write with its item in canonical form, and its key."""
    item = canonical_item(write.item)
    key = write.table.key_of(item)
    write.table.check_index_keys(item)
    if is_larger(item, ITEM_BYTES_MOST):
        check_size(item_bytes(item), item_name(write.table, key))
    return PutItem(write.table, item, write.condition), key


def checked_write(write: Write) -> tuple[Write, Key]:
    if isinstance(write, PutItem):
        return checked_put(write)
    if isinstance(write, UpdateItem):
        write.table.check_update(write.update)
    elif isinstance(write, CheckItem) and write.condition is None:
        raise BadRequest(f"table {write.table.name}: a check without a condition")
    return write, write.table.checked(write.key)


def checked_transaction(writes: Sequence[Write]) -> list[tuple[Write, Key]]:
    """Between 1 and 100 writes, each to a different item."""
    if not 1 <= len(writes) <= TRANSACTION_WRITES_MOST:
        raise BadRequest(f"a transaction of {len(writes)} writes; expected 1 to {TRANSACTION_WRITES_MOST}")
    checked = [checked_write(write) for write in writes]
    size_bytes = sum(item_bytes(write.item) for write, _ in checked if isinstance(write, PutItem))
    if size_bytes > TRANSACTION_BYTES_MOST:
        raise BadRequest(f"a transaction of {size_bytes} bytes; at most {TRANSACTION_BYTES_MOST}")
    named = {(write.table.name, key) for write, key in checked}
    if len(named) < len(checked):
        raise BadRequest("a transaction contains the same item twice; it may write each item once")
    return checked


def check_query(query: Query) -> None:
    holder = query.table if query.index is None else query.table.index(query.index)
    if query.index is not None and query.consistent:
        raise BadRequest(f"index {query.index} of {query.table.name}: an index has no consistent reads")
    if query.sort is not None and holder.sort is None:
        raise BadRequest(f"{holder.name} has no sort key, so a query cannot have a sort range")
    if query.limit is not None and (type(query.limit) is not int or not 1 <= query.limit <= LIMIT_MOST):
        raise BadRequest(f"limit {query.limit!r}: expected a whole number from 1 to {LIMIT_MOST}")
    partition = query.partition
    if type(partition) is not str or not 0 < len(partition.encode(errors="replace")) <= PARTITION_BYTES_MOST:
        raise BadRequest(f"query of {query.table.name}: partition {shown(partition)}; expected text that can be a key")
    if query.partition != query.partition.encode(errors="replace").decode():
        raise BadRequest(f"query of {query.table.name}: the partition has a lone surrogate")


def checked_keys(table: Table, keys: Sequence[Key]) -> list[Key]:
    """The distinct keys, in order."""
    return list(dict.fromkeys(table.checked(key) for key in keys))
