"""Processes: invocations that run concurrently over one world, in one thread.

Each is a greenlet that yields at every port call, so production code stays plain and synchronous. The timeline decides
which process resumes next: each one that waits is an event on it.
"""

from collections.abc import Callable
from functools import partial

from greenlet import GreenletExit, getcurrent, greenlet

from holdfast.kernel.errors import Retryable
from holdfast.kernel.instants import Instant
from holdfast.simulator.world.timeline import Timeline


class Killed(BaseException):
    """The process was killed. Not an Exception, so no handler in the program under test catches it."""


class Process:
    """One invocation. `looked` is when it last read the cluster's state; `faults` counts the faults it met."""

    def __init__(self, name: str, number: int, now: Instant, subject: str = "") -> None:
        self.name = name
        self.number = number
        self.subject = subject  # the machine that an interruption is about
        self.started = now
        self.looked = now
        self.calls = 0
        self.faults = 0
        self.is_dead = False
        self.saw_old_list = False
        self.offset_seconds = 0.0
        self.fiber: greenlet | None = None

    def __str__(self) -> str:
        return self.name


class ProcessClock:
    """Implements `holdfast.ports.clock.Clock`: one process's clock, which may be wrong."""

    def __init__(self, scheduler: "Scheduler", process: Process) -> None:
        self._scheduler = scheduler
        self._process = process
        self._timeline = scheduler.timeline

    def now(self) -> Instant:
        now = self._timeline.now()
        offset = self._process.offset_seconds
        return now.plus(offset) if offset else now

    def monotonic_seconds(self) -> float:
        return self._timeline.monotonic_seconds()

    def sleep(self, seconds: float) -> None:
        self._scheduler.on_sleep(self._process)
        self._scheduler.wait(self._process, seconds)


class Scheduler:
    """Runs processes. Create it in the greenlet that runs the timeline: the others switch back to that one."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.on_sleep: Callable[[Process], None] = lambda _: None
        self.on_end: Callable[[Process, BaseException | None], None] = lambda _process, _error: None
        self.on_step: Callable[[], None] = lambda: (
            None
        )  # called in the timeline's greenlet after each step of a process
        self.is_calm: Callable[[], bool] = lambda: True  # whether a process may continue without that step
        self._hub = getcurrent()
        self._alive: dict[int, Process] = {}
        self._idle: list[greenlet] = []  # greenlets whose process has ended, kept for reuse
        self._is_alone = False  # a process runs, and the event that resumed it has nothing else to do

    def start(self, process: Process, work: Callable[[], None]) -> None:
        process.fiber = fiber = self._idle.pop() if self._idle else greenlet(self._carry, self._hub)
        self._alive[process.number] = process
        fiber.switch(process, work)
        self.on_step()

    def wait(self, process: Process, seconds: float) -> None:
        """Called by a process: let the others run, and resume it after `seconds` unless it was killed."""
        if self._is_alone and self.is_calm() and self.timeline.passes(seconds):
            return  # no other event is due until then
        self.timeline.after(seconds, partial(self._resume, process))
        self._hub.switch()
        if process.is_dead:
            raise Killed

    def end_all(self) -> None:
        """End the world: kill every process that still waits."""
        for process in list(self._alive.values()):
            process.is_dead = True
            if process.fiber is not None and not process.fiber.dead:
                process.fiber.throw(Killed)
        while self._idle:  # a greenlet that never ends is never freed
            self._idle.pop().throw(GreenletExit)

    def _resume(self, process: Process) -> None:
        if process.fiber is not None and not process.fiber.dead:
            self._is_alone = True
            process.fiber.switch()
            self._is_alone = False
            self.on_step()

    def _carry(self, process: Process, work: Callable[[], None]) -> None:
        """Run one process after another. A new greenlet for each took a twelfth of a run's time."""
        fiber = getcurrent()
        while True:
            self._body(process, work)
            process.fiber = None
            self._idle.append(fiber)
            process, work = self._hub.switch()

    def _body(self, process: Process, work: Callable[[], None]) -> None:
        error: BaseException | None = None
        try:
            work()
        except (Killed, Retryable) as ended:
            error = ended
        except Exception as crashed:
            error = crashed
        del self._alive[process.number]
        self.on_end(process, error)
