"""People who pause the cluster and resume it, in a run of the simulator: they look, and order what is not so yet.

So an order that was lost is given again, and one that took effect late, when nobody wants it any more, is undone.
"""

from functools import partial
from typing import Final, Protocol

from holdfast.simulator.calls import Ports
from holdfast.simulator.faults import Faults, Kind
from holdfast.simulator.post import HOOKS
from holdfast.simulator.swarm import Setup
from holdfast.simulator.timeline import Timeline
from holdfast.simulator.tracking import Start
from holdfast.simulator.watch import Watch

ORDERS: Final = 4 * HOOKS
LOOK_SECONDS: Final = 45


class SwitchProgram(Protocol):
    """What people can order. Each call is one invocation, over ports of its own."""

    def pause(self, ports: Ports, by: str) -> None: ...

    def resume(self, ports: Ports, by: str) -> None: ...


class People:
    """They bring the orders about. `start` runs one."""

    def __init__(
        self, program: SwitchProgram, setup: Setup, watch: Watch, faults: Faults, timeline: Timeline, start: Start
    ) -> None:
        self._program = program
        self._pauses = setup.pauses
        self._facts = watch.facts
        self._faults = faults
        self._start = start
        for pause in setup.pauses:
            wanted = partial(watch.lasts, "a pause is wanted", pause.until_seconds - pause.at_seconds)
            timeline.after(pause.at_seconds, wanted)
        if setup.pauses:
            for number in range(setup.seconds // LOOK_SECONDS):
                timeline.after(number * LOOK_SECONDS, partial(self._look, number))

    def _look(self, number: int) -> None:
        seconds = number * LOOK_SECONDS
        is_wanted = any(pause.at_seconds <= seconds < pause.until_seconds for pause in self._pauses)
        if is_wanted == (self._facts.paused is not None):
            return
        name = f"{'pause' if is_wanted else 'resume'}-{number}"
        order = self._program.pause if is_wanted else self._program.resume
        self._start(name, ORDERS + 2 * number, lambda _process, ports: order(ports, name))
        if self._faults.befalls(Kind.TICK_TWICE, name, ORDERS + number) is not None:  # two people, or two clicks
            self._start(f"{name}b", ORDERS + 2 * number + 1, lambda _process, ports: order(ports, f"{name}b"))
