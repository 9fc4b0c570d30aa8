"""The demo's organisation: a workload of pushes, matrices, approvals, re-runs and runners on the simulated GitHub.

Webhooks and runner reports wait in `outbox` until they are delivered. Everything is drawn from a generator of its own,
and every event is a bound method or a partial, so the organisation can be stored with its future. Only runs that may
still change are kept.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from holdfast.kernel.ids import InstanceId, JobId
from holdfast.simulator.demo.repositories import (
    INSTALLATION,
    JOB_KINDS,
    OWNER,
    POOLS,
    REPOSITORIES,
    DemoRepository,
    JobKind,
    Workflow,
)
from holdfast.simulator.world.github import SimulatedGitHub
from holdfast.simulator.world.github_objects import JobPlan, RunDetails, RunnerReport, SimJob, SimRun, Webhook
from holdfast.simulator.world.timeline import Timeline

OutboxMessage = Webhook | RunnerReport

# No pushes while this many messages wait: a world that runs faster than its machine must not pile them up.
OUTBOX_MOST: Final = 60
_DAY_SECONDS: Final = 86_400
# Between pushes, at noon and at night.
_NOON_SECONDS: Final = 150.0
_NIGHT_SECONDS: Final = 900.0
_NOTICE_SECONDS: Final = 120
_FAILED_SHARE: Final = 0.03
_INTERRUPTED_SHARE: Final = 0.03
_REJECTED_SHARE: Final = 0.1
_NO_CAPACITY_SHARE: Final = 0.06
_RERUN_SHARE: Final = 0.6
_ATTEMPTS_MOST: Final = 3


class OutboxGitHub(SimulatedGitHub):
    """Puts webhooks into an outbox, in order. Another process delivers them."""

    def __init__(self, timeline: Timeline, outbox: list[OutboxMessage], first_number: int) -> None:
        super().__init__(timeline, first_number=first_number)
        self._outbox = outbox

    def send(self, webhook: Webhook) -> None:
        self._outbox.append(webhook)

    def send_again(self, webhook: Webhook) -> None:
        self._outbox.append(webhook)


@dataclass(slots=True)
class DemoRunner:
    """The runner of a job. `attempt` counts launches."""

    market: str
    attempt: int = 1
    instance: InstanceId | None = None
    is_interrupted: bool = False


class Organisation:
    def __init__(self, timeline: Timeline, seed: int) -> None:
        self._timeline = timeline
        self._chance = random.Random(seed)  # noqa: S311 -- a simulation wants chance that can be repeated
        self.outbox: list[OutboxMessage] = []
        self.github = OutboxGitHub(timeline, self.outbox, 40_000_000 + seed % 1000 * 1_000_000)
        self.github.on_job = self._begin
        self._runners: dict[JobId, DemoRunner] = {}
        self._waiting: dict[str, list[SimJob]] = {pool: [] for pool in POOLS}
        self._busy: dict[str, int] = dict.fromkeys(POOLS, 0)
        self._after((5, 60), self._push)

    # Runs

    def _push(self) -> None:
        if len(self.outbox) <= OUTBOX_MOST:
            repository = self._chance.choices(REPOSITORIES, [each.share for each in REPOSITORIES])[0]
            self.start(repository, self._chance.choice(repository.workflows))
        seconds = self._timeline.now().epoch_seconds % _DAY_SECONDS
        night = (1 + math.cos(2 * math.pi * seconds / _DAY_SECONDS)) / 2  # 1 at midnight, 0 at noon
        mean = _NOON_SECONDS + (_NIGHT_SECONDS - _NOON_SECONDS) * night
        self._after((mean * 0.3, mean * 1.7), self._push)

    def start(self, repository: DemoRepository, workflow: Workflow) -> None:
        details = RunDetails(
            workflow.name,
            workflow.id,
            branch=self._chance.choice(workflow.branches),
            sha=f"{self._chance.getrandbits(160):040x}",
            is_private=repository.private,
            team=repository.team,
        )
        first, *later = ([_plan(kind) for kind in stage] for stage in workflow.stages)
        self.github.start_run(INSTALLATION, f"{OWNER}/{repository.name}", first, later, details)

    def _begin(self, job: SimJob) -> None:
        if job.environment is None:
            self._queue(job)
        else:
            self._after((60, 5400), partial(self._review, job))

    def _review(self, job: SimJob) -> None:
        if self._chance.random() < _REJECTED_SHARE:
            run = self.github.runs[job.run_id]
            self.github.reject(job)
            self._end_if_completed(run)
        else:
            self.github.approve(job)
            self._queue(job)

    def _end_if_completed(self, run: SimRun) -> None:
        if run.status != "completed":
            return
        if run.conclusion == "failure" and run.attempt < _ATTEMPTS_MOST and self._chance.random() < _RERUN_SHARE:
            self._after((120, 900), partial(self.github.rerun, run))  # by a person
        else:
            self.github.forget(run)

    # Runners

    def _queue(self, job: SimJob) -> None:
        pool = self._kind_of(job).pool
        self._waiting[pool].append(job)
        self._after((2, 9), partial(self._assign, pool))

    def _assign(self, pool: str) -> None:
        """Launch a runner for the first waiting job, if the pool has room."""
        if self._waiting[pool] and self._busy[pool] < POOLS[pool].most:
            self._busy[pool] += 1
            self._launch(self._waiting[pool].pop(0))

    def _launch(self, job: SimJob) -> None:
        is_spot = self._chance.random() < POOLS[self._kind_of(job).pool].spot_share
        runner = self._runners[job.id] = DemoRunner("spot" if is_spot else "on-demand")
        self._report(job, "runner_scheduled", self._machine(job))
        if runner.market == "spot" and self._chance.random() < _NO_CAPACITY_SHARE:
            self._after((10, 40), partial(self._relaunch, job))
        else:
            self._after((8, 25), partial(self._attach, job))

    def _relaunch(self, job: SimJob) -> None:
        runner = self._runners[job.id]
        runner.market, runner.attempt = "on-demand", runner.attempt + 1
        self._report(job, "runner_rescheduled", self._machine(job))
        self._after((8, 25), partial(self._attach, job))

    def _attach(self, job: SimJob) -> None:
        self._runners[job.id].instance = InstanceId(f"i-{self._chance.getrandbits(68):017x}")
        boot = self._chance.uniform(12, 30)
        register = boot + self._chance.uniform(3, 8)
        now = self._timeline.now()
        times = {"booted_at": now.plus(boot).iso(), "registered_at": now.plus(register).iso()}
        self._report(job, "runner_attached", self._machine(job) | times)
        self._timeline.after(register + self._chance.uniform(1, 4), partial(self._start_job, job))

    def _start_job(self, job: SimJob) -> None:
        kind, runner = self._kind_of(job), self._runners[job.id]
        self.github.start(job, f"{kind.pool}-{(runner.instance or '')[-6:]}", runner_group_id=1)
        seconds = self._chance.uniform(*kind.seconds)
        if runner.market == "spot" and self._chance.random() < _INTERRUPTED_SHARE:
            self._timeline.after(seconds * self._chance.random(), partial(self._interrupt, job))
        else:
            self._timeline.after(seconds, partial(self._finish, job))

    def interrupt_one(self) -> str:
        """Interrupt the spot runner of a running job; returns what was done, as text."""
        running = [
            job
            for job in self.github.jobs.values()
            if job.status == "in_progress"
            and self._runners[job.id].market == "spot"
            and not self._runners[job.id].is_interrupted
        ]
        if not running:
            return "no job runs on a spot machine"
        chosen = self._chance.choice(running)
        self._interrupt(chosen)
        repository = self.github.runs[chosen.run_id].repository.removeprefix(f"{OWNER}/")
        return f"EC2 gave notice to the runner of {chosen.name} in {repository}"

    def _interrupt(self, job: SimJob) -> None:
        if job.status == "completed" or self._runners[job.id].is_interrupted:
            return
        self._runners[job.id].is_interrupted = True
        self._report(job, "runner_interrupted")
        self._timeline.after(_NOTICE_SECONDS, partial(self._finish, job))

    def _finish(self, job: SimJob) -> None:
        if job.status == "completed":
            return  # an interrupted job can end on its own within its two minutes of notice
        is_failed = self._runners[job.id].is_interrupted or self._chance.random() < _FAILED_SHARE
        self._report(job, "runner_terminated")
        del self._runners[job.id]
        pool = self._kind_of(job).pool
        self._busy[pool] -= 1
        self._after((1, 4), partial(self._assign, pool))
        run = self.github.runs[job.run_id]
        self.github.finish(job, "failure" if is_failed else "success")
        self._end_if_completed(run)

    def _machine(self, job: SimJob) -> dict[str, str]:
        pool = self._kind_of(job).pool
        return {
            "instance_type": POOLS[pool].instance_type,
            "instance_lifecycle": self._runners[job.id].market,
            "pool_name": pool,
        }

    def _report(self, job: SimJob, kind: str, attributes: Mapping[str, str] | None = None) -> None:
        run, runner, now = self.github.runs[job.run_id], self._runners[job.id], self._timeline.now()
        self.outbox.append(
            RunnerReport(run, job, kind, now, runner.instance, attempt=runner.attempt, attributes=attributes or {})
        )

    def _kind_of(self, job: SimJob) -> JobKind:
        return JOB_KINDS[self.github.runs[job.run_id].details.workflow_id, job.name]

    def _after(self, span: tuple[float, float], event: Any) -> None:
        self._timeline.after(self._chance.uniform(*span), event)


def _plan(kind: JobKind) -> JobPlan:
    return JobPlan(kind.name, kind.environment, ("self-hosted", "linux", kind.pool))
