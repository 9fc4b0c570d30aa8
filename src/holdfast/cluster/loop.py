"""Several ticks in one invocation: while something is under way, looking again in seconds beats waiting a minute."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.cluster.deadline import CALL_SECONDS, Deadline
from holdfast.cluster.plan import Ticked
from holdfast.cluster.spot import Notice, Replacement
from holdfast.cluster.tick import Cluster, tick
from holdfast.kernel.errors import Retryable

AGAIN_SECONDS: Final = 5.0
PRESSING_SECONDS: Final = 3600
# A look takes seconds, and there should be time left to act on it.
LAST_TICK_SECONDS: Final = CALL_SECONDS + 7.0


@dataclass(frozen=True, slots=True)
class Ran:
    """How many ticks one invocation made, and how the last one ended."""

    ticks: int
    last: Ticked | None
    stopped: str | None


@dataclass(frozen=True, slots=True)
class Watchers:
    """Who is told of each tick as it ends."""

    ticked: Callable[[Ticked], object] = lambda _ticked: None
    failed: Callable[[Retryable], object] = lambda _error: None


def run_ticks(cluster: Cluster, owner: str, seconds: float, watchers: Watchers | None = None) -> Ran:
    """Tick at least once; then as long as something is under way, and there is time for one more."""
    watchers = watchers or Watchers()
    clock = cluster.hands.clock
    deadline = Deadline.after(clock, seconds)
    ticks, last, stopped = 0, None, None
    while True:
        ticks += 1
        try:
            last = tick(cluster, f"{owner}.{ticks}", deadline)
            stopped = last.stopped
            watchers.ticked(last)
        except Retryable as error:
            stopped = str(error)
            watchers.failed(error)
        if not is_unfinished(last) or deadline.seconds_left() < AGAIN_SECONDS + LAST_TICK_SECONDS:
            return Ran(ticks, last, stopped)
        clock.sleep(AGAIN_SECONDS)


def is_unfinished(last: Ticked | None) -> bool:
    """Whether another look is due in seconds: an action is under way, or a notice that asks for something.

    What has lasted for long waits for a person, or for its time: a look a minute is enough for it.
    """
    if last is None:
        return False
    state = last.seen.state
    begun = [max(up.started, up.phase_since or up.started) for up in (state.up,) if up is not None]
    begun += [down.started for down in (state.down,) if down is not None]
    begun += [notice.moved for notice in last.seen.notices.values() if _is_pressing(notice)]
    return any(last.seen.seconds_since(moment) < PRESSING_SECONDS for moment in begun)


def _is_pressing(notice: Notice) -> bool:
    """A hint waits by itself, for an hour, until it is acted on."""
    return notice.is_leaving or notice.replacement is not Replacement.OPEN
