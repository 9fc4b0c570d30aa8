"""Telling people."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Notice:
    """Something an operator wants to know. `key` is the same for repetitions of one matter."""

    kind: str
    key: str
    title: str
    text: str
    is_urgent: bool = False


class Notifier(Protocol):
    def tell(self, notice: Notice) -> None:
        """Best effort: raises Retryable when it failed, and nothing else depends on it."""
        ...
