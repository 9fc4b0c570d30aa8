"""All interleavings of two invocations, up to a number of switches from one to the other.

At every call through a port the one that runs either goes on or gives way. A schedule is how many steps each of its
turns has; after the last one, whoever is left runs to its end.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from greenlet import getcurrent, greenlet

from holdfast.simulator.faults import ScriptedFaults
from holdfast.simulator.gate import Killed
from holdfast.simulator.process import Process, Scheduler
from holdfast.simulator.run import Outcome, Program, Run, Stopped
from holdfast.simulator.swarm import Setup
from holdfast.simulator.timeline import Timeline

STEP_SECONDS = 0.001


class Turns(Scheduler):
    """Runs two processes by a schedule, not by time."""

    def __init__(self, timeline: Timeline, schedule: Sequence[int]) -> None:
        super().__init__(timeline)
        self._schedule = list(schedule)
        self.steps = [0, 0]

    def wait(self, process: Process, seconds: float) -> None:  # noqa: ARG002 -- the schedule decides, not time
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
        while not all(fiber.dead for fiber in fibers):
            if fibers[who].dead or left == 0:
                who = 1 - who
                left = self._schedule.pop(0) if self._schedule else -1
                continue
            fibers[who].switch()
            self.steps[who] += 1
            left -= 1
            self.on_step()
            self.timeline.run_until(self.timeline.now().plus(STEP_SECONDS))


def outcome_of_turns(
    program: Program, setup: Setup, at_tick: int, schedule: Sequence[int], *, settles: bool = False
) -> tuple[Outcome, list[int]]:
    """Two ticks at once, just before this one was due; then, if asked, the rest of the run. And each one's steps."""
    run = Run(program, setup, ScriptedFaults({}))
    usual = run.scheduler
    turns = Turns(run.world.timeline, schedule)
    try:
        run.run_until(at_tick * 60 + 0.5)
        turns.on_sleep, turns.on_end, turns.on_step = usual.on_sleep, usual.on_end, usual.on_step
        run.calls.scheduler = turns
        turns.run([run.tick_process(f"first-{at_tick}"), run.tick_process(f"second-{at_tick}")])
        run.calls.scheduler = usual
    except Stopped:
        turns.end_all()
        return run.ended(), turns.steps
    return (run.outcome() if settles else run.ended()), turns.steps


def schedules(steps: Sequence[int], switches: int) -> Iterator[tuple[int, ...]]:
    """Every schedule of so many switches: the first one's turn, the second one's, the first one's again, …"""
    if switches == 0:
        yield ()
        return
    for turn in range(1, steps[0] + 1):
        for rest in schedules((steps[1], steps[0] - turn), switches - 1):
            yield (turn, *rest)
