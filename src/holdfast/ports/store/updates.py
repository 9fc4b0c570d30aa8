"""Updates: values that combine and print, and say what an item becomes.

    attr("fence").plus(1) + attr("lockOwner").set_to("7f3a") + attr("scaleUpPlan").remove()

Every right-hand side sees the item as it was before the update. As with conditions, `applied` is the meaning; the
DynamoDB adapter says the same in DynamoDB's words, and computes from the old item what the new one is.
"""

from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import combinations
from typing import Final

from holdfast.kernel.errors import BadRequest
from holdfast.ports.store.paths import MISSING, Path
from holdfast.ports.store.values import Item, Value, canonical, copied_value, shown, type_name

# Wide enough that no sum is rounded here: one that needs more than 38 digits is refused, not cut.
_EXACT = Context(prec=300)

# DynamoDB takes expressions of 4 KB; the longest change takes some 42 characters of that.
CHANGES_MOST: Final = 90


@dataclass(frozen=True, slots=True)
class SetTo:
    path: Path
    value: Value

    def __str__(self) -> str:
        return f"set {self.path} = {shown(self.value)}"


@dataclass(frozen=True, slots=True)
class SetIfAbsent:
    path: Path
    value: Value

    def __str__(self) -> str:
        return f"set {self.path} = {shown(self.value)} if absent"


@dataclass(frozen=True, slots=True)
class Plus:
    """Add to a number; an absent one counts as 0."""

    path: Path
    number: int | Decimal

    def __str__(self) -> str:
        return f"set {self.path} + {self.number}"


@dataclass(frozen=True, slots=True)
class AddElements:
    """Put elements into a set; an absent one counts as empty."""

    path: Path
    elements: frozenset[str] | frozenset[int]

    def __str__(self) -> str:
        return f"add {shown(self.elements)} to {self.path}"


@dataclass(frozen=True, slots=True)
class DropElements:
    """Take elements out of a set; one that becomes empty is removed, since empty sets cannot be stored."""

    path: Path
    elements: frozenset[str] | frozenset[int]

    def __str__(self) -> str:
        return f"drop {shown(self.elements)} from {self.path}"


@dataclass(frozen=True, slots=True)
class Remove:
    path: Path

    def __str__(self) -> str:
        return f"remove {self.path}"


Change = SetTo | SetIfAbsent | Plus | AddElements | DropElements | Remove


@dataclass(frozen=True, slots=True)
class Update:
    """Changes that take place together, each at a place of its own."""

    changes: tuple[Change, ...]

    def __post_init__(self) -> None:
        if len(self.changes) > CHANGES_MOST:
            raise BadRequest(f"update: {len(self.changes)} changes at once; at most {CHANGES_MOST} fit an expression")
        for change in self.changes:
            _check(change)
        for one, other in combinations(self.changes, 2) if len(self.changes) > 1 else ():
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
        for change in sorted(self.changes, key=_position) if len(self.changes) > 1 else self.changes:
            if len(change.path.parts) > 1 and change.path.name in after:
                after[change.path.name] = copied_value(after[change.path.name])
            _apply(change, after)
        return after


def set_all(values: dict[str, Value]) -> Update:
    """Set several whole attributes."""
    return Update(tuple(SetTo(Path((name,)), canonical(value, name)) for name, value in values.items()))


def remove_all(*names: str) -> Update:
    """Remove several whole attributes; absent ones are no error."""
    return Update(tuple(Remove(Path((name,))) for name in names))


def _may_append(change: Change) -> bool:
    """Set past a list's end, a value is appended: twice would be one too many."""
    return isinstance(change, SetTo | SetIfAbsent) and isinstance(change.path.parts[-1], int)


def _position(change: Change) -> int:
    """What is set past a list's end is appended, the lower position first."""
    last = change.path.parts[-1]
    return last if isinstance(last, int) else -1


def _check(change: Change) -> None:
    if isinstance(change, AddElements | DropElements) and not change.path.is_attribute:
        raise BadRequest(f"update: {change.path} is inside an attribute; only a whole attribute is changed as a set")
    if isinstance(change, Remove) and isinstance(change.path.parts[-1], int):
        raise BadRequest(f"update: removing {change.path} would shift what follows; write the list whole")


def _apply(change: Change, item: Item) -> None:
    found = change.path.value_in(item)
    match change:
        case SetTo(path, value):
            _put(path, copied_value(value), item)
        case SetIfAbsent(path, value):
            _put(path, copied_value(value) if found is MISSING else found, item)
        case Plus(path, number):
            _put(path, _sum(path, 0 if found is MISSING else found, number), item)
        case AddElements(path, elements):
            item[path.name] = elements if found is MISSING else _as_set(path, found, elements) | elements
        case DropElements(path, elements):
            _drop(path, found, elements, item)
        case Remove(path):
            _holder(path, item).pop(path.parts[-1], None)


def _drop(path: Path, found: Value, elements: frozenset[str] | frozenset[int], item: Item) -> None:
    if found is MISSING:
        return
    left = _as_set(path, found, elements) - elements
    if left:
        item[path.name] = left
    else:
        del item[path.name]


def _put(path: Path, value: Value, item: Item) -> None:
    holder, last = _holder(path, item), path.parts[-1]
    if isinstance(last, str) or last < len(holder):
        holder[last] = value
    else:
        holder.append(value)  # DynamoDB appends what is set past a list's end


def _holder(path: Path, item: Item) -> Value:
    """The map or list that the path's last part is in. It must be there: only the last part is made."""
    holder = Path(path.parts[:-1]).value_in(item) if len(path.parts) > 1 else item
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


def _as_set(path: Path, found: Value, elements: frozenset[str] | frozenset[int]) -> frozenset[Value]:
    if type_name(found) != type_name(elements):
        raise BadRequest(f"update: {path} is {shown(found)}, not a set of the kind of {shown(elements)}")
    return frozenset(found)
