"""The outages of the world that last for a while, and how each of them ends."""

from collections.abc import Callable

from holdfast.simulator.proof.effects import EffectRecorder
from holdfast.simulator.world.timeline import Timeline


class OngoingOutages:
    """Each ends after its time, or when the world heals. An end may come twice."""

    def __init__(self, timeline: Timeline, recorder: EffectRecorder) -> None:
        self._timeline = timeline
        self._recorder = recorder
        self._ends: list[Callable[[], None]] = []

    def begin(self, what: str, seconds: float, end: Callable[[], None]) -> None:
        self._recorder.outage_began(what, seconds)
        self._ends.append(end)
        self._timeline.after(seconds, end)

    def heal(self) -> None:
        """End every outage that still lasts."""
        for end in self._ends:
            end()
