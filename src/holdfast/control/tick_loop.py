"""Several ticks in one invocation: while an action is under way, the next tick should come in seconds, not a minute.
And if a limit is reached before the next invocation, the tick should come then."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from holdfast.control.deadline import CALL_SECONDS, Deadline
from holdfast.kernel.errors import Retryable
from holdfast.ports.clock import Clock

AGAIN_SECONDS: Final = 5.0
# Observing takes seconds, and there should be time left to act.
LAST_TICK_SECONDS: Final = CALL_SECONDS + 7.0


class HasStopped(Protocol):
    @property
    def stopped(self) -> str | None: ...


R = TypeVar("R", bound=HasStopped)


@dataclass(frozen=True, slots=True)
class Ran(Generic[R]):
    """How many ticks an invocation ran, and how the last one ended."""

    ticks: int
    last: R | None
    stopped: str | None


@dataclass(frozen=True, slots=True)
class TickObservers(Generic[R]):
    """Called after each tick."""

    ticked: Callable[[R], object] = lambda _result: None
    failed: Callable[[Retryable], object] = lambda _error: None


def run_ticks(
    tick: Callable[[str, Deadline], R],
    wait_seconds: Callable[[R], float | None],
    clock: Clock,
    owner: str,
    seconds: float,
    observers: TickObservers[R] | None = None,
) -> Ran[R]:
    """Tick at least once, and again while there is something to wait for and time for another tick.

    `wait_seconds`: until when another tick has nothing to do; None if no later one is known to have anything.
    """
    observers = observers or TickObservers()
    deadline = Deadline.after(clock, seconds)
    ticks, last, stopped, wait = 0, None, None, None
    while True:
        ticks += 1
        try:
            last = tick(f"{owner}.{ticks}", deadline)
            stopped = last.stopped
            observers.ticked(last)
            wait = wait_seconds(last)
        except Retryable as error:
            stopped = str(error)
            observers.failed(error)
            # What the tick before waited for may have passed: it is no reason to retry at once.
            wait = None if wait is None else AGAIN_SECONDS
        if wait is None or deadline.seconds_left() < wait + LAST_TICK_SECONDS:
            return Ran(ticks, last, stopped)
        clock.sleep(wait)
