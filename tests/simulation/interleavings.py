"""All interleavings of two invocations, up to a number of switches from one to the other.

At every call through a port the running process either continues or yields. A schedule is the number of steps of each
turn; after the last turn, the process that is left runs to its end.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from greenlet import getcurrent, greenlet

from holdfast.kernel.instants import Instant
from holdfast.simulator.proof.faults import ScriptedFaults
from holdfast.simulator.proof.processes import Killed, Process, Scheduler
from holdfast.simulator.proof.run import Outcome, Program, Run, Stopped
from holdfast.simulator.proof.swarm import Setup

STEP_SECONDS = 0.001
SLEEP_SECONDS = 1.0  # a shorter wait is the latency of a call, and takes one step


class Interleaving(Scheduler):
    """Runs two processes by a schedule, not by time. One that sleeps gives up its turn, and takes none until it wakes.

    `usual` runs every other process that becomes due while both of them sleep.
    """

    def __init__(self, usual: Scheduler, schedule: Sequence[int]) -> None:
        super().__init__(usual.timeline)
        self.on_sleep, self.on_end, self.on_step = usual.on_sleep, usual.on_end, usual.on_step
        self._usual = usual
        self._schedule = list(schedule)
        self._wakes: dict[greenlet, Instant] = {}
        self.steps = [0, 0]

    def wait(self, process: Process, seconds: float) -> None:
        fiber = process.fiber
        if fiber is None or process.number not in self._alive:
            self._usual.wait(process, seconds)
            return
        if seconds >= SLEEP_SECONDS:
            self._wakes[fiber] = self.timeline.now().plus(seconds)
        self._hub.switch()
        if process.is_dead:
            raise Killed

    def run(self, pair: Sequence[tuple[Process, Callable[[], None]]]) -> None:
        fibers = []
        for process, work in pair:
            process.fiber = greenlet(partial(self._body, process, work), getcurrent())
            self._alive[process.number] = process
            fibers.append(process.fiber)
        who, left = 0, self._schedule.pop(0) if self._schedule else -1
        while awake := self._awake([fiber for fiber in fibers if not fiber.dead]):
            if fibers[who] not in awake or left == 0:
                who = 1 - who
                left = self._schedule.pop(0) if self._schedule else -1
                continue
            fibers[who].switch()
            self.steps[who] += 1
            left -= 1
            self.on_step()
            self.timeline.run_until(self.timeline.now().plus(STEP_SECONDS))

    def _awake(self, alive: Sequence[greenlet]) -> list[greenlet]:
        """Those of them that do not sleep; if all do, the first to wake, after time has passed until then."""
        if alive and all(fiber in self._wakes for fiber in alive):
            self.timeline.run_until(min(self._wakes[fiber] for fiber in alive))
        now = self.timeline.now()
        self._wakes = {fiber: wakes for fiber, wakes in self._wakes.items() if wakes > now}
        return [fiber for fiber in alive if fiber not in self._wakes]


def outcome_of_turns(
    program: Program, setup: Setup, at_tick: int, schedule: Sequence[int], *, settles: bool = False
) -> tuple[Outcome, list[int]]:
    """Two ticks at once, just before this one was due; then, if asked, the rest of the run. Also the steps of each."""
    run = Run(program, setup, ScriptedFaults({}))
    usual = run.scheduler
    turns = Interleaving(usual, schedule)
    try:
        run.run_until(at_tick * 60 + 0.5)
        run.calls.scheduler = turns
        turns.run([run.tick_process(f"first-{at_tick}"), run.tick_process(f"second-{at_tick}")])
        run.calls.scheduler = usual
    except Stopped:
        turns.end_all()
        return run.ended(), turns.steps
    return (run.outcome() if settles else run.ended()), turns.steps


def schedules(steps: Sequence[int], switches: int) -> Iterator[tuple[int, ...]]:
    """Every schedule with that many switches: a turn of the first, one of the second, one of the first again, …"""
    if switches == 0:
        yield ()
        return
    for turn in range(1, steps[0] + 1):
        for rest in schedules((steps[1], steps[0] - turn), switches - 1):
            yield (turn, *rest)
