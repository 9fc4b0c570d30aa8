"""Updates: values that can be combined, printed, and applied to an item.

    attr("fence").plus(1) + attr("lockOwner").set_to("7f3a") + attr("scaleUpPlan").remove()

All changes see the item as it was before the update. `applied` defines the meaning; the DynamoDB adapter writes the
same as an expression, and computes the new item from the old one.
"""

from decimal import Context, Decimal
from itertools import combinations
from typing import Final

from msgspec import Struct

from holdfast.kernel.errors import BadRequest
from holdfast.ports.store.paths import MISSING, Path, whole
from holdfast.ports.store.values import Item, Value, canonical, copied_value, shown, type_name

# Wide enough that no sum is rounded here: one with more than 38 digits is refused.
_EXACT = Context(prec=300)

# DynamoDB accepts expressions of up to 4 KB; a change takes up to about 42 characters.
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
            raise BadRequest(
                f"update: {self.path} is inside an attribute; only whole attributes can be changed as sets"
            )

    def found_in(self, item: Item) -> frozenset[Value]:
        found = self.path.value_in(item)
        if found is MISSING:
            return frozenset()
        if type_name(found) != type_name(self.elements):
            raise BadRequest(f"update: {self.path} is {shown(found)}, not a set like {shown(self.elements)}")
        return frozenset(found)


class AddElements(_SetChange, frozen=True):
    """Add elements to a set; a missing one counts as empty."""

    def apply(self, item: Item) -> None:
        item[self.path.name] = self.found_in(item) | self.elements

    def __str__(self) -> str:
        return f"add {shown(self.elements)} to {self.path}"


class DropElements(_SetChange, frozen=True):
    """Remove elements from a set; if it becomes empty, the attribute is removed: empty sets cannot be stored."""

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
            raise BadRequest(f"update: removing {self.path} would shift the elements after it; set the whole list")

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
                raise BadRequest(f"update: {one.path} and {other.path} overlap; an update may change each value once")

    def __add__(self, other: "Update") -> "Update":
        return Update(self.changes + other.changes)

    def __str__(self) -> str:
        return "; ".join(map(str, self.changes))

    @property
    def is_repeatable(self) -> bool:
        """Whether applying it twice is the same as applying it once."""
        return not any(isinstance(change, Plus) or _may_append(change) for change in self.changes)

    def applied(self, item: Item) -> Item:
        """The updated item; the old one is not modified."""
        # Unchanged values are shared with the old item; an attribute with a change inside it is copied first.
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
    """Remove several whole attributes; missing ones are not an error."""
    return Update(tuple([Remove(whole(name)) for name in names]))


def _may_append(change: Change) -> bool:
    """A value set past the end of a list is appended: a retry would append it twice."""
    return isinstance(change, SetTo | SetIfAbsent) and isinstance(change.path.parts[-1], int)


def _position(change: Change) -> int:
    """Values set past the end of a list are appended in the order of their positions."""
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
        holder.append(value)  # as DynamoDB does past the end of a list


def _holder(path: Path, item: Item) -> Value:
    """The map or list that contains the path's last part. It must exist: only the last part is created."""
    if path.is_attribute:
        return item
    holder = Path(path.parts[:-1]).value_in(item)
    if not isinstance(holder, dict if isinstance(path.parts[-1], str) else list):
        raise BadRequest(f"update: cannot set {path}: {Path(path.parts[:-1])} does not exist or has another type")
    return holder


def _sum(path: Path, base: Value, number: int | Decimal) -> Value:
    if type_name(base) != "N":
        raise BadRequest(f"update: cannot add to {path}: {shown(base)} is not a number")
    total = (
        base + number
        if isinstance(base, int) and isinstance(number, int)
        else _EXACT.add(Decimal(base), Decimal(number))
    )
    return canonical(total, path)
