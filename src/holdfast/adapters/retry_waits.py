"""The waits between the attempts of one call."""

import random

from holdfast.kernel.backoff import Backoff
from holdfast.ports.clock import Clock


class RetryWaits:
    """Growing waits, up to a deadline that begins now."""

    def __init__(self, clock: Clock, backoff: Backoff, deadline_seconds: float, chance: random.Random) -> None:
        self._clock = clock
        self._waits = backoff.waits(chance)
        self._end_seconds = clock.monotonic_seconds() + deadline_seconds

    def wait(self, at_least_seconds: float = 0.0) -> bool:
        """Wait for the next attempt; returns False at once if the deadline would pass."""
        seconds = max(next(self._waits), at_least_seconds)
        if self._clock.monotonic_seconds() + seconds > self._end_seconds:
            return False
        self._clock.sleep(seconds)
        return True
