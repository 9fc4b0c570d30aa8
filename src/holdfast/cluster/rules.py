"""Rules: each a question with its answer and the numbers it saw. They are kept for acting and for not acting."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from holdfast.ports.readings import Reading, Unknown


class Verdict(StrEnum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Rule(Struct, frozen=True):
    """One rule's verdict. `value` is what was seen, `limit` what it was held against."""

    name: str
    verdict: Verdict
    value: str
    limit: str

    @property
    def holds(self) -> bool:
        return self.verdict is Verdict.YES

    def shown(self) -> dict[str, Any]:
        return {"name": self.name, "verdict": str(self.verdict), "value": self.value, "limit": self.limit}


def rule(name: str, *, holds: bool, value: object, limit: object) -> Rule:
    return Rule(name, Verdict.YES if holds else Verdict.NO, str(value), str(limit))


def unknown(name: str, reading: Reading[object], limit: object) -> Rule:
    """A rule about something that could not be measured: it holds neither way."""
    why = reading.why if isinstance(reading, Unknown) else "not measured"
    return Rule(name, Verdict.UNKNOWN, why, str(limit))
