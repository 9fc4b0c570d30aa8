"""Stored attributes, by their types. Anything else is damage, and a guess might terminate a machine: there is none."""

from typing import Final, TypeVar

from msgspec import Struct

from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item
from holdfast.ports.store.values import shown

T = TypeVar("T")
EPOCH_MOST: Final = 32_503_680_000  # the year 3000


class StateDamaged(NeedsOperator):
    """The stored item is not one that anybody could have written. Nothing is done until a person has looked."""


class Reader(Struct, frozen=True):
    """Attributes by type; anything else is damage."""

    item: Item
    where: str = ""

    def damaged(self, name: str, problem: str) -> StateDamaged:
        found = shown(self.item.get(name))
        return StateDamaged(
            f"cluster state: {self.where}{name} is {found}: {problem}; nothing is done until the item is put right"
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
        """When an action was begun: that is always stored with its name."""
        if not self.number(name):
            raise self.damaged(name, "an action is under way, and nothing says since when")
        return self.instant(name)

    def maybe_instant(self, name: str) -> Instant | None:
        """0 is the seeds' way to say: not since any time."""
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
