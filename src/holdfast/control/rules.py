"""Rules: each has a verdict and the values that it compared. A plan contains them even if it has no steps."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from holdfast.ports.readings import Reading, Unknown

DETAILS_MOST: Final = 10


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class RuleKind(Struct, frozen=True):
    """A rule's declaration: its name, its group, and its wording when it holds and when it fails."""

    name: str
    group: str
    holds: str
    fails: str


class Rule(Struct, frozen=True):
    """One rule's verdict. `value` is what was seen, `limit` what it was compared with."""

    name: str
    verdict: Verdict
    value: str
    limit: str
    group: str
    details: tuple[str, ...] = ()  # one line each, of a bounded number

    @property
    def holds(self) -> bool:
        return self.verdict is Verdict.YES

    def shown(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "name": self.name,
            "group": self.group,
            "verdict": str(self.verdict),
            "value": self.value,
            "limit": self.limit,
        }
        return {**shown, "details": list(self.details)} if self.details else shown


def rule(kind: RuleKind, *, holds: bool, value: object, limit: object, details: Sequence[str] = ()) -> Rule:
    verdict = Verdict.YES if holds else Verdict.NO
    return Rule(kind.name, verdict, str(value), str(limit), str(kind.group), first_ones(details))


def first_ones(lines: Sequence[str]) -> tuple[str, ...]:
    """The first lines, and how many more there are: a rule is stored with every tick."""
    left = len(lines) - DETAILS_MOST
    return tuple(lines) if left <= 0 else (*lines[:DETAILS_MOST], f"and {left} more")


def unknown(kind: RuleKind, reading: Reading[object], limit: object) -> Rule:
    """The verdict on a reading that is unknown: the rule neither holds nor fails."""
    why = reading.why if isinstance(reading, Unknown) else "not measured"
    return Rule(kind.name, Verdict.UNKNOWN, why, str(limit), str(kind.group))
