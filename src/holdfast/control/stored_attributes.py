"""Read stored attributes strictly, by type: a wrong guess might terminate a machine."""

from typing import Final, TypeVar

from msgspec import Struct

from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item
from holdfast.ports.store.values import shown

T = TypeVar("T")
EPOCH_MOST: Final = 32_503_680_000  # the year 3000


class StateDamaged(NeedsOperator):
    """No version could have written the stored item. Ticks do nothing until an operator has corrected it."""


class AttributeReader(Struct, frozen=True):
    """Reads attributes by type, or raises StateDamaged. `of` names the item in messages, `where` the part of it."""

    item: Item
    where: str = ""
    of: str = "cluster state"

    def damaged(self, name: str, problem: str) -> StateDamaged:
        found = shown(self.item.get(name))
        return StateDamaged(
            f"{self.of}: {self.where}{name} is {found}: {problem}; nothing is done until the item is corrected"
        )

    def _typed(self, name: str, kind: type[T], absent: T, expected: str) -> T:
        value = self.item.get(name, absent)
        if type(value) is not kind:
            raise self.damaged(name, f"expected {expected}")
        return value

    def text(self, name: str) -> str:
        return self._typed(name, str, "", "text")

    def flag(self, name: str) -> bool:
        return self._typed(name, bool, absent=False, expected="true or false")

    def number(self, name: str) -> int:
        value = self.item.get(name, 0)
        if type(value) is not int:
            raise self.damaged(name, "expected a whole number")
        if value < 0:
            raise self.damaged(name, "expected a number from 0 up")
        return value

    def instant(self, name: str) -> Instant:
        seconds = self.number(name)
        if seconds > EPOCH_MOST:
            raise self.damaged(name, "expected seconds since 1970")  # milliseconds, most likely
        return Instant.from_epoch_seconds(seconds)

    def began(self, name: str) -> Instant:
        """When an action began: always stored together with its id."""
        if not self.number(name):
            raise self.damaged(name, "an action is under way, but its start time is missing")
        return self.instant(name)

    def maybe_instant(self, name: str) -> Instant | None:
        """0 means None, as in the seeds."""
        return self.instant(name) if self.number(name) else None

    def texts(self, name: str) -> list[str]:
        values = self._typed(name, list, [], "a list of texts")
        if not all(type(value) is str and value for value in values):
            raise self.damaged(name, "expected a list of texts")
        return values

    def text_set(self, name: str) -> frozenset[str]:
        values = self._typed(name, frozenset, frozenset(), "a set of texts")
        if not all(type(value) is str and value for value in values):
            raise self.damaged(name, "expected a set of texts")
        return values

    def items(self, name: str) -> list[Item]:
        values = self._typed(name, list, [], "a list of maps")
        if not all(type(value) is dict for value in values):
            raise self.damaged(name, "expected a list of maps")
        return values

    def choice(self, name: str, kind: type[T], absent: T) -> T:
        if name not in self.item:
            return absent
        try:
            return kind(self.text(name))  # type: ignore[call-arg]
        except ValueError as error:
            raise self.damaged(name, f"expected one of {', '.join(kind)}") from error  # type: ignore[arg-type]
