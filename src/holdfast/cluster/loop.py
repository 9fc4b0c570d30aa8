"""Several ticks in one invocation: while something is under way, looking again in seconds beats waiting a minute."""

from dataclasses import dataclass
from typing import Final

from holdfast.cluster.plan import Ticked
from holdfast.cluster.tick import Cluster, tick
from holdfast.kernel.errors import Retryable

AGAIN_SECONDS: Final = 5.0
# A tick takes seconds, and what it has begun it should be able to finish before the process is stopped.
LAST_TICK_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Ran:
    """How many ticks one invocation made, and how the last one ended."""

    ticks: int
    last: Ticked | None
    stopped: str | None


def run_ticks(cluster: Cluster, owner: str, seconds: float) -> Ran:
    """Tick at least once; then as long as an action or a notice is open, and there is time for one more."""
    clock = cluster.hands.clock
    end = clock.monotonic_seconds() + seconds
    ticks, last, stopped = 0, None, None
    while True:
        ticks += 1
        try:
            last = tick(cluster, f"{owner}.{ticks}")
            stopped = last.stopped
        except Retryable as error:
            stopped = str(error)
        if not _is_unfinished(last) or clock.monotonic_seconds() + AGAIN_SECONDS + LAST_TICK_SECONDS > end:
            return Ran(ticks, last, stopped)
        clock.sleep(AGAIN_SECONDS)


def _is_unfinished(last: Ticked | None) -> bool:
    return last is not None and (last.seen.state.is_acting or bool(last.seen.notices))
