"""Updates: values that combine and print, and say what an item becomes.

    attr("fence").plus(1) + attr("lockOwner").set_to("7f3a") + attr("scaleUpPlan").remove()

Every right-hand side sees the item as it was before the update. As with conditions, `applied` is the meaning; the
DynamoDB adapter says the same in DynamoDB's words, and computes from the old item what the new one is.
"""

from decimal import Context, Decimal
from itertools import combinations
from typing import Final

from msgspec import Struct

from holdfast.kernel.errors import BadRequest
from holdfast.ports.store.paths import MISSING, Path, whole
from holdfast.ports.store.values import Item, Value, canonical, copied_value, shown, type_name

# Wide enough that no sum is rounded here: one that needs more than 38 digits is refused, not cut.
_EXACT = Context(prec=300)

# DynamoDB takes expressions of 4 KB; the longest change takes some 42 characters of that.
CHANGES_MOST: Final = 90


class SetTo(Struct, frozen=True):
    path: Path
    value: Value

    def apply(self, item: Item) -> None:
        _put(self.path, copied_value(self.value), item)

    def __str__(self) -> str:
        return f"set {self.path} = {shown(self.value)}"


class SetIfAbsent(Struct, frozen=True):
    path: Path
    value: Value

    def apply(self, item: Item) -> None:
        found = self.path.value_in(item)
        _put(self.path, copied_value(self.value) if found is MISSING else found, item)

    def __str__(self) -> str:
        return f"set {self.path} = {shown(self.value)} if absent"


class Plus(Struct, frozen=True):
    """Add to a number; an absent one counts as 0."""

    path: Path
    number: int | Decimal

    def apply(self, item: Item) -> None:
        found = self.path.value_in(item)
        _put(self.path, _sum(self.path, 0 if found is MISSING else found, self.number), item)

    def __str__(self) -> str:
        return f"set {self.path} + {self.number}"


class _SetChange(Struct, frozen=True):
    path: Path
    elements: frozenset[str] | frozenset[int]

    def __post_init__(self) -> None:
        if not self.path.is_attribute:
            raise BadRequest(f"update: {self.path} is inside an attribute; only a whole attribute is changed as a set")

    def found_in(self, item: Item) -> frozenset[Value]:
        found = self.path.value_in(item)
        if found is MISSING:
            return frozenset()
        if type_name(found) != type_name(self.elements):
            raise BadRequest(f"update: {self.path} is {shown(found)}, not a set of the kind of {shown(self.elements)}")
        return frozenset(found)


class AddElements(_SetChange, frozen=True):
    """Put elements into a set; an absent one counts as empty."""

    def apply(self, item: Item) -> None:
        item[self.path.name] = self.found_in(item) | self.elements

    def __str__(self) -> str:
        return f"add {shown(self.elements)} to {self.path}"


class DropElements(_SetChange, frozen=True):
    """Take elements out of a set; one that becomes empty is removed, since empty sets cannot be stored."""

    def apply(self, item: Item) -> None:
        left = self.found_in(item) - self.elements
        if left:
            item[self.path.name] = left
        else:
            item.pop(self.path.name, None)

    def __str__(self) -> str:
        return f"drop {shown(self.elements)} from {self.path}"


class Remove(Struct, frozen=True):
    path: Path

    def __post_init__(self) -> None:
        if isinstance(self.path.parts[-1], int):
            raise BadRequest(f"update: removing {self.path} would shift what follows; write the list whole")

    def apply(self, item: Item) -> None:
        _holder(self.path, item).pop(self.path.parts[-1], None)

    def __str__(self) -> str:
        return f"remove {self.path}"


# Each has `apply`, which changes an item in place, and prints.
Change = SetTo | SetIfAbsent | Plus | AddElements | DropElements | Remove


class Update(Struct, frozen=True):
    """Changes that take place together, each at a place of its own."""

    changes: tuple[Change, ...]

    def __post_init__(self) -> None:
        number = len(self.changes)
        if number < 2:
            return
        if number > CHANGES_MOST:
            raise BadRequest(f"update: {number} changes at once; at most {CHANGES_MOST} fit an expression")
        # Most updates name each attribute once: then no two can overlap.
        if len({change.path.name for change in self.changes}) == number:
            return
        for one, other in combinations(self.changes, 2):
            if one.path.name == other.path.name and one.path.overlaps(other.path):
                raise BadRequest(f"update: {one.path} and {other.path} overlap; one update changes a place once")

    def __add__(self, other: "Update") -> "Update":
        return Update(self.changes + other.changes)

    def __str__(self) -> str:
        return "; ".join(map(str, self.changes))

    @property
    def is_repeatable(self) -> bool:
        """Whether doing it twice is the same as doing it once."""
        return not any(isinstance(change, Plus) or _may_append(change) for change in self.changes)

    def applied(self, item: Item) -> Item:
        """The item that the update makes of this one, which itself is left as it is."""
        # What is not changed is shared with the old item; what is changed inside an attribute is copied first.
        after = dict(item)
        inside = []
        for change in self.changes:
            if change.path.is_attribute:
                change.apply(after)
            else:
                inside.append(change)
        if inside:
            for change in sorted(inside, key=_position):
                if change.path.name in after:
                    after[change.path.name] = copied_value(after[change.path.name])
                change.apply(after)
        return after


def set_all(values: dict[str, Value]) -> Update:
    """Set several whole attributes."""
    return Update(tuple([SetTo(whole(name), canonical(value, name)) for name, value in values.items()]))


def remove_all(*names: str) -> Update:
    """Remove several whole attributes; absent ones are no error."""
    return Update(tuple([Remove(whole(name)) for name in names]))


def _may_append(change: Change) -> bool:
    """Set past a list's end, a value is appended: twice would be one too many."""
    return isinstance(change, SetTo | SetIfAbsent) and isinstance(change.path.parts[-1], int)


def _position(change: Change) -> int:
    """What is set past a list's end is appended, the lower position first."""
    last = change.path.parts[-1]
    return last if isinstance(last, int) else -1


def _put(path: Path, value: Value, item: Item) -> None:
    if path.is_attribute:
        item[path.name] = value
        return
    holder, last = _holder(path, item), path.parts[-1]
    if isinstance(last, str) or last < len(holder):
        holder[last] = value
    else:
        holder.append(value)  # DynamoDB appends what is set past a list's end


def _holder(path: Path, item: Item) -> Value:
    """The map or list that the path's last part is in. It must be there: only the last part is made."""
    if path.is_attribute:
        return item
    holder = Path(path.parts[:-1]).value_in(item)
    if not isinstance(holder, dict if isinstance(path.parts[-1], str) else list):
        raise BadRequest(f"update: there is nothing at {Path(path.parts[:-1])} in which {path} could be")
    return holder


def _sum(path: Path, base: Value, number: int | Decimal) -> Value:
    if type_name(base) != "N":
        raise BadRequest(f"update: {path} is {shown(base)}, not a number; nothing can be added to it")
    total = (
        base + number
        if isinstance(base, int) and isinstance(number, int)
        else _EXACT.add(Decimal(base), Decimal(number))
    )
    return canonical(total, path)
