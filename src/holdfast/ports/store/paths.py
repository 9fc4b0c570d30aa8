"""Paths in an item: an attribute, or a value inside one, as in ``scaleUpPlan[0].i``."""

from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from holdfast.kernel.errors import BadRequest
from holdfast.kernel.text import one_line
from holdfast.ports.store.values import Item, Value, checked_name


class _Missing(Enum):
    """A type of its own, so that it equals no stored value."""

    MISSING = "missing"


MISSING: Final = _Missing.MISSING

PARTS_MOST: Final = 32
POSITION_MOST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Path:
    """An attribute's name, followed by keys of maps and positions in lists."""

    parts: tuple[str | int, ...]
    name: str = field(init=False, repr=False, compare=False)  # of the attribute
    is_attribute: bool = field(init=False, repr=False, compare=False)  # rather than a value inside one

    def __post_init__(self) -> None:
        if not 1 <= len(self.parts) <= PARTS_MOST:
            raise BadRequest(f"a path of {len(self.parts)} parts; expected 1 to {PARTS_MOST}")
        for position, part in enumerate(self.parts):
            named = type(part) is str and bool(checked_name(part))
            placed = type(part) is int and 0 <= part <= POSITION_MOST and position > 0
            if not (named or placed):
                raise BadRequest(f"path {self.parts!r}: expected a name, then names or list positions")
        object.__setattr__(self, "name", self.parts[0])
        object.__setattr__(self, "is_attribute", len(self.parts) == 1)

    def value_in(self, item: Item | None) -> Value:
        """The value at this path, or MISSING."""
        if self.is_attribute:
            return MISSING if item is None else item.get(self.name, MISSING)
        found: Any = item
        for part in self.parts:
            if isinstance(part, str):
                found = found.get(part, MISSING) if type(found) is dict else MISSING
            else:
                found = found[part] if type(found) is list and part < len(found) else MISSING
        return found

    def overlaps(self, other: "Path") -> bool:
        """Whether one equals or contains the other."""
        shorter = min(len(self.parts), len(other.parts))
        return self.parts[:shorter] == other.parts[:shorter]

    def __str__(self) -> str:
        text = one_line(self.name)
        for part in self.parts[1:]:
            text += f"[{part}]" if isinstance(part, int) else f".{one_line(part)}"
        return text


@lru_cache(maxsize=1024, typed=True)
def whole(name: str) -> Path:
    """The path of a whole attribute. Cached: every write uses the same few names."""
    return Path((name,))
