"""Virtual time: a clock, and the events that are due."""

import heapq
from collections.abc import Callable

from holdfast.kernel.instants import Instant


class Timeline:
    """Implements `holdfast.ports.clock.Clock`. Time moves only when somebody sleeps, or runs it on."""

    def __init__(self, start: Instant) -> None:
        self._now = start
        # Ties are broken by the order in which they were scheduled, never by comparing the events themselves.
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._scheduled = 0

    def now(self) -> Instant:
        return self._now

    def monotonic_seconds(self) -> float:
        return self._now.epoch_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.run_until(self._now.plus(seconds))

    def after(self, seconds: float, event: Callable[[], object]) -> None:
        """Let the event happen so many seconds from now."""
        self._scheduled += 1
        heapq.heappush(self._due, (self._now.plus(seconds).epoch_ms, self._scheduled, event))

    def run_until(self, end: Instant) -> None:
        """Let everything happen that is due until then, in order."""
        while self._due and self._due[0][0] <= end.epoch_ms:
            due_ms, _, event = heapq.heappop(self._due)
            self._now = max(self._now, Instant(due_ms))
            event()
        self._now = max(self._now, end)
