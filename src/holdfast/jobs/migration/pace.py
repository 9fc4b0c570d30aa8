"""No more than so many a second, over all threads."""

from threading import Lock

from holdfast.ports.clock import Clock


class Pace:
    """Each takes its turn, one after the other; None: there is no limit."""

    def __init__(self, clock: Clock, per_second: float | None) -> None:
        self._clock = clock
        self._seconds_each = 1 / per_second if per_second else 0.0
        self._next = clock.monotonic_seconds()
        self._lock = Lock()

    def wait(self, number: int = 1) -> None:
        """Until it is the turn of these."""
        if not self._seconds_each:
            return
        with self._lock:
            now = self._clock.monotonic_seconds()
            turn = max(self._next, now)
            self._next = turn + number * self._seconds_each
        if turn > now:
            self._clock.sleep(turn - now)
