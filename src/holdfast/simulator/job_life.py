"""The life of GitHub's jobs: each goes its way by its script, and a fleet of machines tells what it does for them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdfast.kernel.ids import InstallationId, InstanceId, JobId
from holdfast.kernel.instants import Instant
from holdfast.simulator.github import FAILED, SENT_MOST, SimulatedGitHub
from holdfast.simulator.github_objects import JobPlan, SimJob, SimRun
from holdfast.simulator.job_plans import INTERRUPTED, NEVER, GitHubPlan, JobScript, RunScript
from holdfast.simulator.timeline import Timeline

INSTALLATIONS: Final = (InstallationId(7), InstallationId(8))
REPOSITORY: Final = "acme/api"
NOTICE_SECONDS: Final = 120
_ATTACH_SECONDS: Final = 15


@dataclass(frozen=True, slots=True)
class FleetTold:
    """What the fleet tells of a job's machine. It stays the same however often it is told."""

    number: int
    run: SimRun
    job: SimJob
    kind: str
    at: Instant
    instance: InstanceId


class JobLife:
    """Moves the jobs of a plan on. `market` has what the machine of each job is, once that is known."""

    def __init__(
        self, github: SimulatedGitHub, plan: GitHubPlan, timeline: Timeline, tell: Callable[[FleetTold], None]
    ) -> None:
        self._github = github
        self._timeline = timeline
        self._tell = tell
        self._scripts: dict[int, RunScript] = {}
        self._jobs: dict[tuple[int, str], JobScript] = {}
        self._told: dict[int, int] = {}
        self.market: dict[JobId, str] = {}
        self.interrupted: set[JobId] = set()
        github.on_job = self._begin
        for script in plan.runs:
            timeline.after(script.at_seconds, partial(self._start, script))

    def _start(self, script: RunScript) -> None:
        ordinal = len(self._github.runs)
        self._scripts[ordinal] = script
        self._jobs |= {(ordinal, job.name): job for stage in script.stages for job in stage}
        first, *later = ([JobPlan(job.name, job.environment) for job in stage] for stage in script.stages)
        run = self._github.start_run(INSTALLATIONS[script.installation], REPOSITORY, first, later)
        if not script.starts:
            self._timeline.after(30, partial(self._github.fail_to_start, run))

    def _begin(self, job: SimJob) -> None:
        run, script = self._of(job)
        if not self._scripts[run.ordinal].starts:
            return
        if job.environment is None:
            self._timeline.after(script.queue_seconds, partial(self._order, job))
        elif script.review is not None:
            self._timeline.after(script.review_seconds, partial(self._review, job))

    def _review(self, job: SimJob) -> None:
        _, script = self._of(job)
        if script.review == "rejected":
            self._github.reject(job)
            self._look_after(job)
        else:
            self._github.approve(job)
            self._timeline.after(script.queue_seconds, partial(self._order, job))

    def _order(self, job: SimJob) -> None:
        """A machine is ordered; or somebody cancels the job first."""
        _, script = self._of(job)
        if script.end_of(job.run_attempt) == "cancelled":
            self._finish(job, "cancelled")
            return
        self._say(job, "runner_scheduled")
        self._timeline.after(_ATTACH_SECONDS, partial(self._run, job))

    def _run(self, job: SimJob) -> None:
        _, script = self._of(job)
        self._github.start(job, f"runner {job.id}")
        self._say(job, "runner_attached")
        end = script.end_of(job.run_attempt)
        if end == INTERRUPTED:
            self._timeline.after(script.run_seconds / 2, partial(self._interrupt, job))
        elif end != NEVER:
            self._timeline.after(script.run_seconds, partial(self._finish, job, end))

    def _interrupt(self, job: SimJob) -> None:
        _, script = self._of(job)
        if self.market.get(job.id) != "spot":
            self._timeline.after(script.run_seconds / 2, partial(self._finish, job, "success"))
            return
        self.interrupted.add(job.id)
        self._say(job, "runner_interrupted")
        self._timeline.after(NOTICE_SECONDS, partial(self._finish, job, "failure"))

    def _finish(self, job: SimJob, conclusion: str) -> None:
        self._github.finish(job, conclusion)
        if job.started is not None:
            self._say(job, "runner_terminated")
        self._look_after(job)

    def _look_after(self, job: SimJob) -> None:
        """Somebody may run again what failed, once."""
        run, _ = self._of(job)
        seconds = self._scripts[run.ordinal].again_seconds
        if run.status == "completed" and run.attempt == 1 and job.conclusion in FAILED and seconds is not None:
            self._timeline.after(seconds, partial(self._again, run))

    def _again(self, run: SimRun) -> None:
        if run.status == "completed" and run.attempt == 1:
            self._github.run_again(run)

    def _say(self, job: SimJob, kind: str) -> None:
        run, _ = self._of(job)
        number = self._told.get(run.ordinal, 0)
        self._told[run.ordinal] = number + 1
        instance = InstanceId(f"i-{job.id:016x}")
        self._tell(FleetTold(run.ordinal * SENT_MOST + number, run, job, kind, self._timeline.now(), instance))

    def _of(self, job: SimJob) -> tuple[SimRun, JobScript]:
        run = self._github.runs[job.run_id]
        return run, self._jobs[run.ordinal, job.name]
