"""What a call costs in DynamoDB's units, by DynamoDB's published rules.

DynamoDB reports it; memory and SQLite work it out here, so that a cost seen on a laptop is the cost to expect. The
contract tests hold every figure against what DynamoDB Local reports.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.ports.store.schema import Index, Projection, Table
from holdfast.ports.store.values import Item, item_bytes, same


@dataclass(frozen=True, slots=True)
class Consumed:
    """The measured cost of one call on one table. `index_units` are part of the totals, by index."""

    table: str
    call: str
    read_units: float = 0.0
    write_units: float = 0.0
    index_units: Mapping[str, float] = field(default_factory=dict)
    conflict: bool = False


Meter = Callable[[Consumed], None]


def read_units(size_bytes: int, *, consistent: bool) -> float:
    """One unit for each 4 KB begun, half of it where an older answer will do."""
    units = -(-size_bytes // 4096)
    return units if consistent else units / 2


def get_units(item: Item | None, *, consistent: bool) -> float:
    """An item that is not there costs as a small one does."""
    return read_units(item_bytes(item) if item else 1, consistent=consistent)


def write_units(old: Item | None, new: Item | None) -> float:
    """One unit for each 1 KB begun of the larger of the two items."""
    largest = max(item_bytes(old) if old else 0, item_bytes(new) if new else 0)
    return max(1, -(-largest // 1024))


def index_write_units(table: Table, old: Item | None, new: Item | None) -> dict[str, float]:
    """What the write costs in each index that it changes. An index entry whose key moves is deleted and put."""
    units = {index.name: _one_index_units(table, index, old, new) for index in table.indexes}
    return {name: cost for name, cost in units.items() if cost}


def write_cost(table: Table, call: str, old: Item | None, new: Item | None, *, times: int = 1) -> Consumed:
    """The cost of a write that took place; `times` is 2 within a transaction."""
    indexes = {name: units * times for name, units in index_write_units(table, old, new).items()}
    base = write_units(old, new) * times
    return Consumed(table.name, call, write_units=base + sum(indexes.values()), index_units=indexes)


def refused_cost(table: Table, call: str, old: Item | None, *, times: int = 1, conflict: bool = True) -> Consumed:
    """A write whose condition failed costs as if it had rewritten the item that it found.

    In a transaction the others cost as well, though theirs held: `conflict` tells them apart.
    """
    return Consumed(table.name, call, write_units=write_units(old, None) * times, conflict=conflict)


def query_cost(table: Table, index: Index | None, sizes_bytes: Iterable[int], *, consistent: bool) -> Consumed:
    """A page costs what its items weigh together."""
    units = read_units(sum(sizes_bytes), consistent=consistent)
    return Consumed(table.name, "query", read_units=units, index_units={index.name: units} if index else {})


def projected(table: Table, index: Index, item: Item) -> Item:
    """The part of the item that the index holds."""
    if index.projection is Projection.ALL:
        return item
    kept = {*table.key_attributes, *index.key_attributes, *index.included}
    return {name: value for name, value in item.items() if name in kept}


def _one_index_units(table: Table, index: Index, old: Item | None, new: Item | None) -> float:
    before = projected(table, index, old) if old and index.holds(old) else None
    after = projected(table, index, new) if new and index.holds(new) else None
    if before is None or after is None:
        return 0 if before is after else write_units(before, after)
    if any(before[name] != after[name] for name in index.key_attributes):
        return write_units(before, None) + write_units(None, after)
    return 0 if same(before, after) else write_units(before, after)
