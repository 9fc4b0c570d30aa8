"""A clock that moves only when a test advances it."""

from holdfast.kernel.instants import Instant

# Far ahead of real time: DynamoDB Local does not remove items that only the test considers expired.
START = Instant.from_iso("2100-01-15T10:00:00Z")


class StillClock:
    """Implements `holdfast.ports.clock.Clock`; sleeping advances it."""

    def __init__(self, now: Instant = START) -> None:
        self._now = now
        self.slept_seconds: list[float] = []

    def now(self) -> Instant:
        return self._now

    def monotonic_seconds(self) -> float:
        return self._now.epoch_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.slept_seconds.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now = self._now.plus(seconds)
