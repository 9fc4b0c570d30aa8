"""Whether this process's ticks succeed: what `/readyz` reports.

A tick succeeds when it completes, or stands by because another process holds the lease. It fails when it could not
observe, or when an error stopped it. The monotonic clock counts: a wall clock jumps, and simulated time runs faster.

    no success yet   ready until the first tick fails
    succeeded        ready for three tick intervals and a minute after the last success: one failure does not matter
"""

from collections.abc import Callable
from threading import Lock
from typing import Final

from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.views.system_status import TicksProblem

BEATS_MISSED_MOST: Final = 3
GRACE_SECONDS: Final = 60
_WHY_MOST: Final = 500


def allowed_seconds(tick_seconds: float) -> float:
    """How long no tick may succeed before that is an alert."""
    return BEATS_MISSED_MOST * tick_seconds + GRACE_SECONDS


class TickHealth:
    """The loop that ticks reports to it; the server's threads read it.

    `tick_seconds` returns the current interval: the speed of a simulated world may change.
    """

    def __init__(self, clock: Clock, tick_seconds: Callable[[], float]) -> None:
        self._clock = clock
        self._tick_seconds = tick_seconds
        self._lock = Lock()
        self._last_seconds = clock.monotonic_seconds()
        self._has_beaten = False
        self._failure: tuple[str, str] | None = None

    def beat(self) -> None:
        with self._lock:
            self._last_seconds, self._has_beaten, self._failure = self._clock.monotonic_seconds(), True, None

    def missed(self, what: str, why: str) -> None:
        """`what` says in a few words what kind of failure it was: it is public, and `why` is not."""
        with self._lock:
            self._failure = (what, cut(why, _WHY_MOST))

    def problem(self) -> TicksProblem | None:
        """Why the process is not ready; None if it is."""
        with self._lock:
            passed, failure = self._clock.monotonic_seconds() - self._last_seconds, self._failure
            has_beaten = self._has_beaten
        allowed = allowed_seconds(self._tick_seconds())
        if failure and not has_beaten:
            text = "no tick has completed since startup"
        elif passed > allowed:
            text = f"no tick has completed for {passed:.0f} s; {allowed:.0f} s are allowed"
        else:
            return None
        if failure is None:
            return TicksProblem(f"{text}; one may be hanging")
        return TicksProblem(f"{text}; the newest failure is {failure[0]}", failure[1])
