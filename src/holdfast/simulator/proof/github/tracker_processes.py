"""The job tracker in a run of the simulator: webhooks, runner reports and sweeps, each a process of the run.

A process that receives webhooks has a memory, like a server or a warm Lambda function. It handles one webhook at a
time, and its memory is lost when it is killed.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from holdfast.simulator.proof.effects import EffectRecorder
from holdfast.simulator.proof.faults import FaultKind, Faults
from holdfast.simulator.proof.github.job_facts import JobFacts
from holdfast.simulator.proof.github.plans import GitHubPlan
from holdfast.simulator.proof.github.scripted_jobs import ScriptedJobs
from holdfast.simulator.proof.github.webhook_delivery import HOOKS, DeliveryAttempt, FaultyGitHub
from holdfast.simulator.proof.ports import Ports
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.world.github_objects import RunnerReport
from holdfast.simulator.world.timeline import Timeline

FLEET: Final = 2 * HOOKS
SWEEPS: Final = 3 * HOOKS
_TRIES_MOST: Final = 1024
_RETRY_SECONDS: Final = 5


class TrackerProgram(Protocol):
    """The job tracker under test. Each call is one invocation, with ports of its own."""

    def sign(self, body: bytes) -> str:
        """The signature that GitHub would send."""
        ...

    def new_memory(self) -> Any:
        """The initial memory of a process that receives webhooks."""
        ...

    def receive(self, ports: Ports, memory: Any, owner: str, headers: Mapping[str, str], body: bytes) -> int:
        """Receive a webhook; returns the status code of the answer."""
        ...

    def report_runner(self, ports: Ports, memory: Any, owner: str, report: RunnerReport) -> str:
        """Receive a runner report; returns the market of the runner if one was scheduled."""
        ...

    def sweep(self, ports: Ports, plan: GitHubPlan, owner: str) -> None: ...


Start = Callable[[str, int, Callable[[Process, Ports], None]], None]  # a process: its name, number and work


class TrackerProcesses:
    """Starts the tracker's processes. `start` runs one."""

    def __init__(
        self,
        program: TrackerProgram,
        facts: JobFacts,
        github: FaultyGitHub,
        faults: Faults,
        recorder: EffectRecorder,
        timeline: Timeline,
        start: Start,
        seconds: int,
    ) -> None:
        self._program = program
        self._facts = facts
        self._plan = facts.plan
        self._github = github
        self._faults = faults
        self._recorder = recorder
        self._timeline = timeline
        self._start = start
        self._idle: list[Any] = []  # memories of processes without work
        github.record = recorder.happened
        github.on_attempt = self._start_attempt
        self._workload = ScriptedJobs(github, facts.plan, timeline, partial(self._start_report, tries=0), faults)
        facts.interrupted = self._workload.interrupted
        for number in range(1, seconds // facts.plan.sweep_seconds + 1):
            timeline.after(number * facts.plan.sweep_seconds - 7, partial(self._sweep_due, number))

    # Webhooks

    def _start_attempt(self, attempt: DeliveryAttempt) -> None:
        self._start(attempt.name, attempt.number, partial(self._receive, attempt))

    def _receive(self, attempt: DeliveryAttempt, process: Process, ports: Ports) -> None:
        status = 0  # killed: the connection breaks
        try:
            memory = self._memory()
            status = self._program.receive(ports, memory, attempt.name, attempt.headers, attempt.webhook.body)
            self._idle.append(memory)
            if 200 <= status < 300:
                self._recorder.acknowledged(process, attempt.webhook)
        finally:
            self._github.answered(attempt, status)

    def _memory(self) -> Any:
        return self._idle.pop() if self._idle else self._program.new_memory()

    # Runner reports

    def _start_report(self, report: RunnerReport, tries: int) -> None:
        """The fleet repeats a report until it is accepted: it has the event in its own records."""
        name = f"fleet-{report.number}" + (f".{tries + 1}" if tries else "")
        self._start(name, FLEET + report.number * _TRIES_MOST + tries, partial(self._report, report, tries))

    def _report(self, report: RunnerReport, tries: int, process: Process, ports: Ports) -> None:
        market = None
        running = self._workload.running_on(report.job)
        is_anothers = report.kind == "runner_interrupted" and running is not report.job
        if is_anothers:
            self._facts.interruption_reported(running, self._timeline.now())
        try:
            memory = self._memory()
            market = self._program.report_runner(ports, memory, process.name, report)
            self._idle.append(memory)
            if is_anothers and running.status == "completed":
                self._facts.unseen.add(running.id)  # the tracker looks among the jobs in progress
            if report.kind in ("runner_scheduled", "runner_rescheduled"):
                self._workload.market[report.job.id] = market
                self._recorder.scheduled(process, report.job, market)
        finally:
            if market is None:
                self._timeline.after(_RETRY_SECONDS * (tries + 1), partial(self._start_report, report, tries + 1))

    # Sweeps

    def _sweep_due(self, number: int) -> None:
        if self._faults.draw(FaultKind.TICK_MISSED, f"sweep-{number}", SWEEPS + number) is not None:
            self._recorder.happened(f"sweep {number} is missed")
            return
        self._sweep(f"sweep-{number}", SWEEPS + 2 * number)
        if self._faults.draw(FaultKind.TICK_TWICE, f"sweep-{number}", SWEEPS + number) is not None:
            self._sweep(f"sweep-{number}b", SWEEPS + 2 * number + 1)

    def _sweep(self, name: str, number: int) -> None:
        self._start(name, number, lambda _process, ports: self._program.sweep(ports, self._plan, name))
