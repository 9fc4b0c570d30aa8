"""Virtual time: a clock, and the events that are due."""

import heapq
from collections.abc import Callable

from holdfast.kernel.instants import Instant


class Timeline:
    """Implements `holdfast.ports.clock.Clock`. Time moves only by `sleep` and `run_until`."""

    def __init__(self, start: Instant) -> None:
        self._now = start
        # Ties are broken by the order in which they were scheduled, never by comparing the events themselves.
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._scheduled = 0
        self._end_ms = start.epoch_ms  # end of the current `run_until`

    def now(self) -> Instant:
        return self._now

    def monotonic_seconds(self) -> float:
        return self._now.epoch_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.run_until(self._now.plus(seconds))

    def after(self, seconds: float, event: Callable[[], object]) -> None:
        """Schedule an event, this many seconds from now."""
        self._scheduled += 1
        heapq.heappush(self._due, (self._now.epoch_ms + round(seconds * 1000), self._scheduled, event))

    def passes(self, seconds: float) -> bool:
        """Let this much time pass at once if no event is due in it; otherwise change nothing.

        The caller sees the same as with an event of its own at that moment: nothing could have come before it.
        """
        then_ms = self._now.epoch_ms + round(seconds * 1000)
        if then_ms > self._end_ms or (self._due and self._due[0][0] <= then_ms):
            return False
        if then_ms > self._now.epoch_ms:
            self._now = Instant(then_ms)
        return True

    def run_until(self, end: Instant) -> None:
        """Run all events that are due by then, in order."""
        due, end_ms = self._due, end.epoch_ms
        outer_ms, self._end_ms = self._end_ms, end_ms
        try:
            while due and due[0][0] <= end_ms:
                due_ms, _, event = heapq.heappop(due)
                if due_ms > self._now.epoch_ms:
                    self._now = Instant(due_ms)
                event()
        finally:
            self._end_ms = outer_ms
        self._now = max(self._now, end)
