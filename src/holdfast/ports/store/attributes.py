"""`attr`: the way to write conditions and updates."""

from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache

from msgspec import Struct

from holdfast.kernel.errors import BadRequest
from holdfast.ports.store import updates
from holdfast.ports.store.conditions import Absent, BeginsWith, Compare, Contains, Exists, Size
from holdfast.ports.store.paths import Path
from holdfast.ports.store.updates import Update
from holdfast.ports.store.values import Value, canonical


class Attribute(Struct, frozen=True):
    """An attribute or a value inside one, as the subject of conditions and updates."""

    path: Path

    def __getitem__(self, part: str | int) -> "Attribute":
        """A key of a map or a position in a list: ``attr("scaleUpPlan")[0]["i"]``."""
        return Attribute(Path((*self.path.parts, part)))

    # Conditions

    def equals(self, value: Value) -> Compare:
        return Compare(self.path, "=", value)

    def differs_from(self, value: Value) -> Compare:
        """Also true when the attribute is absent."""
        return Compare(self.path, "<>", value)

    def less_than(self, value: Value) -> Compare:
        return Compare(self.path, "<", value)

    def at_most(self, value: Value) -> Compare:
        return Compare(self.path, "<=", value)

    def greater_than(self, value: Value) -> Compare:
        return Compare(self.path, ">", value)

    def at_least(self, value: Value) -> Compare:
        return Compare(self.path, ">=", value)

    def exists(self) -> Exists:
        return Exists(self.path)

    def is_absent(self) -> Absent:
        return Absent(self.path)

    def begins_with(self, prefix: str) -> BeginsWith:
        return BeginsWith(self.path, prefix)

    def contains(self, element: str | int) -> Contains:
        return Contains(self.path, element)

    def has_size(self, number: int) -> Size:
        return Size(self.path, "=", number)

    def is_larger_than(self, number: int) -> Size:
        return Size(self.path, ">", number)

    def is_smaller_than(self, number: int) -> Size:
        return Size(self.path, "<", number)

    # Updates

    def set_to(self, value: Value) -> Update:
        return Update((updates.SetTo(self.path, canonical(value, self.path, len(self.path.parts))),))

    def set_if_absent(self, value: Value) -> Update:
        return Update((updates.SetIfAbsent(self.path, canonical(value, self.path, len(self.path.parts))),))

    def plus(self, number: int | Decimal) -> Update:
        """Add to a number; an absent one counts as 0."""
        exact = canonical(number, self.path)
        if type(exact) not in (int, Decimal):
            raise BadRequest(f"{self.path}: {number!r} is not a number that can be added")
        return Update((updates.Plus(self.path, exact),))

    def add_elements(self, elements: Iterable[str] | Iterable[int]) -> Update:
        return Update((updates.AddElements(self.path, canonical(frozenset(elements), self.path)),))

    def drop_elements(self, elements: Iterable[str] | Iterable[int]) -> Update:
        return Update((updates.DropElements(self.path, canonical(frozenset(elements), self.path)),))

    def remove(self) -> Update:
        return Update((updates.Remove(self.path),))


@lru_cache(maxsize=1024)
def attr(name: str) -> Attribute:
    """The attribute of this name. Cached: every write uses the same few names."""
    return Attribute(Path((name,)))
