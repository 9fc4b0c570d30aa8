"""Where in an item: an attribute, or a place inside one, as in ``scaleUpPlan[0].i``."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from holdfast.kernel.errors import BadRequest
from holdfast.kernel.text import one_line
from holdfast.ports.store.values import Item, Value, checked_name


class _Missing(Enum):
    """Of a type of its own, so that it equals no stored value."""

    MISSING = "missing"


MISSING: Final = _Missing.MISSING

PARTS_MOST: Final = 32
POSITION_MOST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Path:
    """An attribute's name, followed by keys of maps and positions in lists."""

    parts: tuple[str | int, ...]

    def __post_init__(self) -> None:
        if len(self.parts) > PARTS_MOST:
            raise BadRequest(f"a path of {len(self.parts)} parts; at most {PARTS_MOST}")
        for position, part in enumerate(self.parts):
            named = type(part) is str and bool(checked_name(part))
            placed = type(part) is int and 0 <= part <= POSITION_MOST and position > 0
            if not (named or placed):
                raise BadRequest(f"path {self.parts!r}: expected a name, then names or positions from 0 up")

    @property
    def name(self) -> str:
        """The attribute that the path is in."""
        return str(self.parts[0])

    @property
    def is_attribute(self) -> bool:
        """Whether it names a whole attribute, not a place inside one."""
        return len(self.parts) == 1

    def value_in(self, item: Item | None) -> Value:
        """What stands there, or MISSING."""
        found: Any = item
        for part in self.parts:
            if isinstance(part, str):
                found = found.get(part, MISSING) if isinstance(found, dict) else MISSING
            else:
                found = found[part] if isinstance(found, list) and part < len(found) else MISSING
        return found

    def overlaps(self, other: "Path") -> bool:
        """Whether one is the other, or lies within it."""
        shorter = min(len(self.parts), len(other.parts))
        return self.parts[:shorter] == other.parts[:shorter]

    def __str__(self) -> str:
        text = one_line(self.name)
        for part in self.parts[1:]:
            text += f"[{part}]" if isinstance(part, int) else f".{one_line(part)}"
        return text
