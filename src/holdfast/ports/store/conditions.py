"""Conditions: values that can be combined, printed, and evaluated on an item.

    attr("fence").equals(7) & (attr("lockOwner").is_absent() | attr("lockUntilEpoch").less_than(now))

`holds` defines the meaning of a condition. Memory and SQLite use it directly; the DynamoDB adapter writes the same as
an expression, and the contract tests compare the two.
"""

from collections.abc import Callable
from operator import ge, gt, le, lt
from typing import Any, ClassVar, Final

from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.kernel.errors import BadRequest
from holdfast.ports.store.paths import MISSING, Path
from holdfast.ports.store.values import Item, Value, canonical, same, shown, type_name

LEAVES_MOST: Final = 90  # DynamoDB accepts expressions of up to 4 KB
_ORDERED: Final = ("S", "N", "B")
_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


class Condition(Struct, frozen=True):
    """Something that is true or false of an item. A missing item has no attributes.

    A struct, not a dataclass: every write creates some, and a frozen dataclass is several times slower.
    """

    def holds(self, item: Item | None) -> bool:
        raise NotImplementedError  # every subclass has its own

    @property
    def leaves(self) -> int:
        """The number of simple conditions it consists of."""
        return 1

    def __and__(self, other: "Condition") -> "All":
        return All((*_parts(self, All), *_parts(other, All)))

    def __or__(self, other: "Condition") -> "AnyOf":
        return AnyOf((*_parts(self, AnyOf), *_parts(other, AnyOf)))

    def __invert__(self) -> "Condition":
        # A double negation cancels out.
        return self.part if isinstance(self, Not) else Not(self)

    def __bool__(self) -> bool:
        # `a and b` would silently be `b`.
        raise TypeError(f"a condition has no truth value: combine with & | ~, or call holds(item): {self}")


class Compare(Condition, frozen=True):
    """Compares an attribute with a value: = <> < <= > >=.

    A missing attribute, or one of another type, is not equal to the value, and neither smaller nor larger. Text is
    ordered by its UTF-8 bytes, which is also Python's order.
    """

    path: Path
    operator: str
    value: Value

    def __post_init__(self) -> None:
        value = canonical(self.value, self.path)
        if value is not self.value:
            force_setattr(self, "value", value)
        if self.operator in _ORDER and type_name(self.value) not in _ORDERED:
            raise BadRequest(f"{self}: only text, numbers and bytes have an order")

    def holds(self, item: Item | None) -> bool:
        found = self.path.value_in(item)
        if self.operator == "=":
            return same(found, self.value)
        if self.operator == "<>":
            return not same(found, self.value)
        if found is MISSING or type_name(found) != type_name(self.value):
            return False
        return _ORDER[self.operator](found, self.value)

    def __str__(self) -> str:
        return f"{self.path} {self.operator} {shown(self.value)}"


class Size(Condition, frozen=True):
    """Compares the number of elements, bytes or UTF-16 units with a number. False for values without a size."""

    path: Path
    operator: str
    number: int

    def __post_init__(self) -> None:
        if type(self.number) is not int:
            raise BadRequest(f"{self.path}: a size is a whole number, not {shown(self.number)}")

    def holds(self, item: Item | None) -> bool:
        found = self.path.value_in(item)
        if isinstance(found, str):
            found = found.encode("utf-16-le")[::2]
        if not isinstance(found, bytes | list | dict | frozenset):
            return False
        if self.operator == "=":
            return len(found) == self.number
        return _ORDER[self.operator](len(found), self.number)

    def __str__(self) -> str:
        return f"size({self.path}) {self.operator} {self.number}"


class Exists(Condition, frozen=True):
    path: Path

    def holds(self, item: Item | None) -> bool:
        return self.path.value_in(item) is not MISSING

    def __str__(self) -> str:
        return f"{self.path} exists"


class Absent(Condition, frozen=True):
    path: Path

    def holds(self, item: Item | None) -> bool:
        return self.path.value_in(item) is MISSING

    def __str__(self) -> str:
        return f"{self.path} is absent"


class BeginsWith(Condition, frozen=True):
    path: Path
    prefix: str

    def __post_init__(self) -> None:
        if not isinstance(canonical(self.prefix, self.path), str):
            raise BadRequest(f"{self.path}: a prefix is text, not {shown(self.prefix)}")

    def holds(self, item: Item | None) -> bool:
        found = self.path.value_in(item)
        return isinstance(found, str) and found.startswith(self.prefix)

    def __str__(self) -> str:
        return f"{self.path} begins with {shown(self.prefix)}"


class Contains(Condition, frozen=True):
    """Whether a set or list contains an element, or a text contains a part."""

    path: Path
    element: str | int

    def __post_init__(self) -> None:
        force_setattr(self, "element", canonical(self.element, self.path))
        if type_name(self.element) not in ("S", "N"):
            raise BadRequest(f"{self.path}: an element is text or a number, not {shown(self.element)}")

    def holds(self, item: Item | None) -> bool:
        found = self.path.value_in(item)
        if isinstance(found, str):
            return isinstance(self.element, str) and self.element in found
        if isinstance(found, frozenset | list):
            return any(same(element, self.element) for element in found)
        return False

    def __str__(self) -> str:
        return f"{self.path} contains {shown(self.element)}"


class _Group(Condition, frozen=True):
    """Several conditions, joined by one word."""

    word: ClassVar[str]
    parts: tuple[Condition, ...]

    @property
    def leaves(self) -> int:
        leaves = 0
        for part in self.parts:
            leaves += 1 if type(part) is Compare else part.leaves  # a shortcut for the common case
        return leaves

    def __post_init__(self) -> None:
        leaves = self.leaves
        if leaves > LEAVES_MOST:
            raise BadRequest(f"a condition of {leaves} parts; at most {LEAVES_MOST} fit an expression")

    def __str__(self) -> str:
        return f" {self.word} ".join(f"({part})" if isinstance(part, _Group) else str(part) for part in self.parts)


class All(_Group, frozen=True):
    word: ClassVar[str] = "and"

    def holds(self, item: Item | None) -> bool:
        for part in self.parts:  # noqa: SIM110 -- a generator is half as fast
            if not part.holds(item):
                return False
        return True


class AnyOf(_Group, frozen=True):
    word: ClassVar[str] = "or"

    def holds(self, item: Item | None) -> bool:
        return any(part.holds(item) for part in self.parts)


class Not(Condition, frozen=True):
    part: Condition

    @property
    def leaves(self) -> int:
        return self.part.leaves

    def holds(self, item: Item | None) -> bool:
        return not self.part.holds(item)

    def __str__(self) -> str:
        return f"not ({self.part})"


def _parts(condition: Condition, group: type[All] | type[AnyOf]) -> tuple[Condition, ...]:
    return condition.parts if isinstance(condition, group) else (condition,)
