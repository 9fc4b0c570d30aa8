"""The cost of a call in DynamoDB's capacity units, by DynamoDB's published rules.

DynamoDB reports it; memory and SQLite compute it here, so that costs can be measured on a laptop. The contract tests
compare every number with DynamoDB Local.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.ports.store.schema import Index, Projection, Table
from holdfast.ports.store.values import Item, attribute_bytes, item_bytes, one_attribute_bytes, same

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Consumed:
    """The cost of one call on one table. `index_units` are included in the totals, by index."""

    table: str
    call: str
    read_units: float = 0.0
    write_units: float = 0.0
    index_units: Mapping[str, float] = field(default_factory=dict)
    conflict: bool = False


Meter = Callable[[Consumed], None]


def read_units(size_bytes: int, *, consistent: bool) -> float:
    """One unit per 4 KB, rounded up; half of that for an eventually consistent read."""
    units = -(-size_bytes // 4096)
    return units if consistent else units / 2


def get_units(item: Item | None, *, consistent: bool) -> float:
    """A missing item costs as much as a small one."""
    return read_units(item_bytes(item) if item else 1, consistent=consistent)


def write_units(old: Item | None, new: Item | None) -> float:
    """One unit per 1 KB, rounded up, of the larger of the two items."""
    return _units(max(item_bytes(old) if old else 0, item_bytes(new) if new else 0))


def write_cost(table: Table, call: str, old: Item | None, new: Item | None, *, times: int = 1) -> Consumed:
    """The cost of a successful write; `times` is 2 within a transaction."""
    before = attribute_bytes(old or {})
    # An update shares unchanged values with the old item: they need not be measured again.
    known = old or {}
    after = {
        name: before[name] if name in known and known[name] is value else one_attribute_bytes(name, value)
        for name, value in (new or {}).items()
    }
    indexes = {index.name: _index_units(table, index, (old, before), (new, after)) * times for index in table.indexes}
    changed = {name: units for name, units in indexes.items() if units}
    base = _units(max(sum(before.values()), sum(after.values()))) * times
    return Consumed(table.name, call, write_units=base + sum(changed.values()), index_units=changed)


def refused_cost(table: Table, call: str, old: Item | None, *, times: int = 1, conflict: bool = True) -> Consumed:
    """A write whose condition failed costs as much as rewriting the existing item.

    In a transaction, writes whose conditions held cost as well; for those, `conflict` is False.
    """
    return Consumed(table.name, call, write_units=write_units(old, None) * times, conflict=conflict)


def query_cost(table: Table, index: Index | None, sizes_bytes: Iterable[int], *, consistent: bool) -> Consumed:
    """The cost of a page depends on the total size of its items."""
    units = read_units(sum(sizes_bytes), consistent=consistent)
    return Consumed(table.name, "query", read_units=units, index_units={index.name: units} if index else {})


def projected(table: Table, index: Index, item: Item) -> Item:
    """The part of the item that the index contains."""
    if index.projection is Projection.ALL:
        return item
    kept = _kept(table, index)
    return {name: value for name, value in item.items() if name in kept}


_Sized = tuple[Item | None, Mapping[str, int]]  # an item, and the bytes of each attribute


def _index_units(table: Table, index: Index, before: _Sized, after: _Sized) -> float:
    """The cost of the write in the index. If the key changes, the entry is deleted and put."""
    (old, _), (new, _) = before, after
    was, remains = old is not None and index.holds(old), new is not None and index.holds(new)
    if not (was and remains):
        return _units(_part_bytes(table, index, before if was else after)) if was or remains else 0
    assert old is not None  # noqa: S101 -- both are held; narrows the type
    assert new is not None  # noqa: S101
    if any(old[name] != new[name] for name in index.key_attributes):
        return _units(_part_bytes(table, index, before)) + _units(_part_bytes(table, index, after))
    if _is_same_part(table, index, old, new):
        return 0
    return _units(max(_part_bytes(table, index, before), _part_bytes(table, index, after)))


def _units(size_bytes: int) -> float:
    return max(1, -(-size_bytes // 1024))


def _part_bytes(table: Table, index: Index, sized: _Sized) -> int:
    sizes = sized[1]
    if index.projection is Projection.ALL:
        return sum(sizes.values())
    return sum([sizes[name] for name in _kept(table, index) if name in sizes])


def _is_same_part(table: Table, index: Index, old: Item, new: Item) -> bool:
    names: Iterable[str] = {*old, *new} if index.projection is Projection.ALL else _kept(table, index)
    for name in names:
        before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if before is not after and not same(before, after):
            return False
    return True


def _kept(table: Table, index: Index) -> set[str]:
    return {*table.key_attributes, *index.key_attributes, *index.included}
