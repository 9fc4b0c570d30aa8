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
        self._end_ms = start.epoch_ms  # until when it is being run on

    def now(self) -> Instant:
        return self._now

    def monotonic_seconds(self) -> float:
        return self._now.epoch_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.run_until(self._now.plus(seconds))

    def after(self, seconds: float, event: Callable[[], object]) -> None:
        """Let the event happen so many seconds from now."""
        self._scheduled += 1
        heapq.heappush(self._due, (self._now.epoch_ms + round(seconds * 1000), self._scheduled, event))

    def passes(self, seconds: float) -> bool:
        """Let so many seconds pass at once, if nothing at all is due in them; else nothing has passed.

        To whoever waits it is the same as an event of its own at that moment: nothing could have come before it.
        """
        then_ms = self._now.epoch_ms + round(seconds * 1000)
        if then_ms > self._end_ms or (self._due and self._due[0][0] <= then_ms):
            return False
        if then_ms > self._now.epoch_ms:
            self._now = Instant(then_ms)
        return True

    def run_until(self, end: Instant) -> None:
        """Let everything happen that is due until then, in order."""
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
