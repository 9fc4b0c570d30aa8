"""The job tracker in a run of the simulator: webhooks, what the fleet tells, and sweeps, each a process of the run.

A process that takes in webhooks has a memory, as a server has or a Lambda function that stays warm. It takes one at a
time, and its memory dies with it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from holdfast.simulator.calls import Ports
from holdfast.simulator.faults import Faults, Kind
from holdfast.simulator.job_facts import JobFacts
from holdfast.simulator.job_life import FleetTold, JobLife
from holdfast.simulator.job_plans import GitHubPlan
from holdfast.simulator.post import HOOKS, Attempt, PostedGitHub
from holdfast.simulator.process import Process
from holdfast.simulator.timeline import Timeline
from holdfast.simulator.watch import Watch

FLEET: Final = 2 * HOOKS
SWEEPS: Final = 3 * HOOKS
_TRIES_MOST: Final = 1024
_AGAIN_SECONDS: Final = 5


class TrackerProgram(Protocol):
    """What is run of the tracker. Each call is one invocation, over ports of its own."""

    def sign(self, body: bytes) -> str:
        """As GitHub signs."""
        ...

    def new_memory(self) -> Any:
        """What a process that takes in webhooks remembers, to begin with."""
        ...

    def receive(self, ports: Ports, memory: Any, owner: str, headers: Mapping[str, str], body: bytes) -> int:
        """Take in a webhook; the status code of the answer."""
        ...

    def tell(self, ports: Ports, memory: Any, owner: str, told: FleetTold) -> str:
        """Take in what the fleet tells; the market of the machine, where one was ordered."""
        ...

    def sweep(self, ports: Ports, plan: GitHubPlan, owner: str) -> None: ...


Start = Callable[[str, int, Callable[[Process, Ports], None]], None]  # a process: its name, number and work


class Tracking:
    """Brings the tracker's processes about. `start` runs one."""

    def __init__(
        self,
        program: TrackerProgram,
        facts: JobFacts,
        github: PostedGitHub,
        faults: Faults,
        watch: Watch,
        timeline: Timeline,
        start: Start,
        seconds: int,
    ) -> None:
        self._program = program
        self._plan = facts.plan
        self._github = github
        self._faults = faults
        self._watch = watch
        self._timeline = timeline
        self._start = start
        self._idle: list[Any] = []  # memories of processes that wait for work
        github.say = watch.happened
        github.take = self._take
        self._life = JobLife(github, facts.plan, timeline, partial(self._told, tries=0))
        facts.interrupted = self._life.interrupted
        for number in range(1, seconds // facts.plan.sweep_seconds + 1):
            timeline.after(number * facts.plan.sweep_seconds - 7, partial(self._sweep_due, number))

    # Webhooks

    def _take(self, attempt: Attempt) -> None:
        self._start(attempt.name, attempt.number, partial(self._receive, attempt))

    def _receive(self, attempt: Attempt, process: Process, ports: Ports) -> None:
        status = 0  # killed: the connection ends
        try:
            memory = self._memory()
            status = self._program.receive(ports, memory, attempt.name, attempt.headers, attempt.sent.body)
            self._idle.append(memory)
            if 200 <= status < 300:
                self._watch.acknowledged(process, attempt.sent)
        finally:
            self._github.answered(attempt, status)

    def _memory(self) -> Any:
        return self._idle.pop() if self._idle else self._program.new_memory()

    # The fleet

    def _told(self, told: FleetTold, tries: int) -> None:
        """It tells until it was heard: it has the event in its own records."""
        name = f"fleet-{told.number}" + (f".{tries + 1}" if tries else "")
        self._start(name, FLEET + told.number * _TRIES_MOST + tries, partial(self._tell, told, tries))

    def _tell(self, told: FleetTold, tries: int, process: Process, ports: Ports) -> None:
        market = None
        try:
            memory = self._memory()
            market = self._program.tell(ports, memory, process.name, told)
            self._idle.append(memory)
            if told.kind == "runner_scheduled":
                self._life.market[told.job.id] = market
                self._watch.scheduled(process, told.job, market)
        finally:
            if market is None:
                self._timeline.after(_AGAIN_SECONDS * (tries + 1), partial(self._told, told, tries + 1))

    # Sweeps

    def _sweep_due(self, number: int) -> None:
        if self._faults.befalls(Kind.TICK_MISSED, f"sweep-{number}", SWEEPS + number) is not None:
            self._watch.happened(f"sweep {number} is missed")
            return
        self._sweep(f"sweep-{number}", SWEEPS + 2 * number)
        if self._faults.befalls(Kind.TICK_TWICE, f"sweep-{number}", SWEEPS + number) is not None:
            self._sweep(f"sweep-{number}b", SWEEPS + 2 * number + 1)

    def _sweep(self, name: str, number: int) -> None:
        self._start(name, number, lambda _process, ports: self._program.sweep(ports, self._plan, name))
