"""A durable workflow's table: the phases it moves between, and why. A test compares it with what runs really store."""

from typing import NamedTuple


class Move(NamedTuple):
    """From one stored phase to another; None: no action is stored."""

    source: str | None
    target: str | None
    when: str
