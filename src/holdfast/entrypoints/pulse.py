"""Whether this process's ticks come to something: what `/readyz` says of them.

A tick beats when it has come to its end, or stands by because another process acts. It does not when it could not look,
or when an error stopped it. By this machine's own clock: a wall clock jumps, and a simulated world's time runs faster.

    never beaten   ready until the first tick fails: what has never worked is told at once
    has beaten     ready for three of the ticks' intervals and a minute after the last beat: one failure is no matter
"""

from collections.abc import Callable
from threading import Lock
from typing import Final

from holdfast.console.status import TicksProblem
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock

BEATS_MISSED_MOST: Final = 3
GRACE_SECONDS: Final = 60
_WHY_MOST: Final = 500


def allowed_seconds(tick_seconds: float) -> float:
    """How long there may be no tick before somebody should look."""
    return BEATS_MISSED_MOST * tick_seconds + GRACE_SECONDS


class Pulse:
    """Told of each tick by the loop that ticks; asked by the server, from other threads.

    `tick_seconds` gives the interval, as of the moment of asking: a simulated world's speed may be changed.
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
        """`what` is the error's name."""
        with self._lock:
            self._failure = (what, cut(why, _WHY_MOST))

    def problem(self) -> TicksProblem | None:
        """Why it is not ready, if it is not."""
        with self._lock:
            passed, failure = self._clock.monotonic_seconds() - self._last_seconds, self._failure
            has_beaten = self._has_beaten
        allowed = allowed_seconds(self._tick_seconds())
        if failure and not has_beaten:
            text = "no tick has come to its end since the start"
        elif passed > allowed:
            text = f"no tick has come to its end for {passed:.0f} s, and {allowed:.0f} s are allowed"
        else:
            return None
        if failure is None:
            return TicksProblem(f"{text}; one may hang")
        return TicksProblem(f"{text}; the newest failure is {failure[0]}", failure[1])
