"""Operators who pause and resume the cluster in a run of the simulator.

They check every 45 s and request what they want again, so a lost request is repeated and one that took effect too late
is undone.
"""

from functools import partial
from typing import Final, Protocol

from holdfast.simulator.proof.effects import EffectRecorder
from holdfast.simulator.proof.faults import FaultKind, Faults
from holdfast.simulator.proof.github.tracker_processes import Start
from holdfast.simulator.proof.github.webhook_delivery import HOOKS
from holdfast.simulator.proof.ports import Ports
from holdfast.simulator.proof.swarm import Setup
from holdfast.simulator.world.timeline import Timeline

REQUESTS: Final = 4 * HOOKS
CHECK_SECONDS: Final = 45


class PauseProgram(Protocol):
    """Pauses and resumes the cluster. Each call is one invocation, with ports of its own."""

    def pause(self, ports: Ports, by: str) -> None: ...

    def resume(self, ports: Ports, by: str) -> None: ...


class PauseRequests:
    """Starts the processes that pause and resume. `start` runs one."""

    def __init__(
        self,
        program: PauseProgram,
        setup: Setup,
        recorder: EffectRecorder,
        faults: Faults,
        timeline: Timeline,
        start: Start,
    ) -> None:
        self._program = program
        self._pauses = setup.pauses
        self._facts = recorder.facts
        self._faults = faults
        self._start = start
        for pause in setup.pauses:
            begin = partial(recorder.outage_began, "a pause is wanted", pause.until_seconds - pause.at_seconds)
            timeline.after(pause.at_seconds, begin)
        if setup.pauses:
            for number in range(setup.seconds // CHECK_SECONDS):
                timeline.after(number * CHECK_SECONDS, partial(self._check, number))

    def _check(self, number: int) -> None:
        seconds = number * CHECK_SECONDS
        is_wanted = any(pause.at_seconds <= seconds < pause.until_seconds for pause in self._pauses)
        if is_wanted == (self._facts.paused is not None):
            return
        name = f"{'pause' if is_wanted else 'resume'}-{number}"
        request = self._program.pause if is_wanted else self._program.resume
        self._start(name, REQUESTS + 2 * number, lambda _process, ports: request(ports, name))
        if self._faults.draw(FaultKind.TICK_TWICE, name, REQUESTS + number) is not None:  # two people, or two clicks
            self._start(f"{name}b", REQUESTS + 2 * number + 1, lambda _process, ports: request(ports, f"{name}b"))
