"""Exponential backoff with full jitter.

Each wait is drawn evenly from zero up to a ceiling that doubles, so that callers that failed together do not retry
together. The random source is passed in; under the simulator it is seeded.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """A policy: the first ceiling, its growth factor, and the maximum."""

    first_seconds: float = 0.05
    factor: float = 2.0
    most_seconds: float = 5.0

    def __post_init__(self) -> None:
        if not (0 < self.first_seconds <= self.most_seconds and self.factor >= 1):
            raise ValueError(f"{self}: expected 0 < first_seconds <= most_seconds and factor >= 1")

    def ceiling_seconds(self, failures: int) -> float:
        """The longest wait after this many consecutive failures (1 or more)."""
        # Cap the exponent: 2.0 ** 2000 raises OverflowError, and a stored failure count can grow that large.
        return min(self.most_seconds, self.first_seconds * self.factor ** min(failures - 1, 64))

    def wait_seconds(self, failures: int, source: random.Random) -> float:
        return source.uniform(0.0, self.ceiling_seconds(failures))

    def waits(self, source: random.Random) -> Iterator[float]:
        """The waits of a caller whose every attempt fails."""
        failures = 0
        while True:
            failures += 1
            yield self.wait_seconds(failures, source)
