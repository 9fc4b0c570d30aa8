"""A figure: what was measured, its reference, and whether it met the goal."""

from dataclasses import dataclass
from typing import Any, Literal

_DIGITS = 4  # more would be noise


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit for the value itself, or for its ratio to the reference."""

    of: Literal["value", "ratio"]
    operator: Literal["<=", ">="]
    limit: float

    def is_met_by(self, number: float) -> bool:
        return number <= self.limit if self.operator == "<=" else number >= self.limit

    def __str__(self) -> str:
        return f"{self.of} {self.operator} {self.limit:g}"


def ratio_at_most(limit: float) -> Goal:
    return Goal("ratio", "<=", limit)


def ratio_at_least(limit: float) -> Goal:
    return Goal("ratio", ">=", limit)


def value_at_least(limit: float) -> Goal:
    return Goal("value", ">=", limit)


def value_at_most(limit: float) -> Goal:
    return Goal("value", "<=", limit)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `what` also names the reference, if there is one."""

    what: str
    value: float
    unit: str
    reference: float | None = None
    goal: Goal | None = None

    @property
    def ratio(self) -> float | None:
        return None if self.reference is None else self.value / self.reference

    @property
    def met(self) -> bool | None:
        """None where there is no goal."""
        if self.goal is None:
            return None
        number = self.value if self.goal.of == "value" else self.ratio
        if number is None:
            raise ValueError(f"{self.what}: a goal for the ratio, and no reference to divide by")
        return self.goal.is_met_by(number)

    @property
    def verdict(self) -> str:
        return {None: "", True: "met", False: "missed"}[self.met]

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "value": _rounded(self.value),
            "unit": self.unit,
            "reference": _rounded(self.reference),
            "ratio": _rounded(self.ratio),
            "goal": None if self.goal is None else str(self.goal),
            "met": self.met,
        }


def _rounded(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.{_DIGITS}g}")
