"""Notifications to people."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Notification:
    """Something an operator should know. Repetitions of the same matter have the same `key`."""

    kind: str
    key: str
    title: str
    text: str
    is_urgent: bool = False


class Notifier(Protocol):
    def notify(self, notification: Notification) -> None:
        """Send it, best effort: raises Retryable if that fails, and nothing else depends on it."""
        ...
