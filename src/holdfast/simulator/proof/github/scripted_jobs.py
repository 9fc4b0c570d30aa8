"""GitHub's workload in a run of the simulator: jobs that follow their scripts, and the reports of their runners."""

from collections.abc import Callable
from functools import partial
from typing import Final

from holdfast.kernel.ids import InstallationId, InstanceId, JobId
from holdfast.simulator.proof.faults import FaultKind, Faults
from holdfast.simulator.proof.github.plans import INTERRUPTED, NEVER, GitHubPlan, JobScript, RunScript
from holdfast.simulator.world.github import FAILED, WEBHOOKS_MOST, SimulatedGitHub
from holdfast.simulator.world.github_objects import JobPlan, RunnerReport, SimJob, SimRun
from holdfast.simulator.world.timeline import Timeline

INSTALLATIONS: Final = (InstallationId(7), InstallationId(8))
REPOSITORIES: Final = ("acme/api", "globex/api")  # of each installation
NOTICE_SECONDS: Final = 120
DAY_SECONDS: Final = 86_400
_PAST_RUNS_MOST: Final = 4
_PAST_RUN_SECONDS: Final = 3600  # each is drawn once in so long
_ATTACH_SECONDS: Final = 15


class ScriptedJobs:
    """Runs the jobs of a plan. `market` has the market of each job's runner, once it is known."""

    def __init__(
        self,
        github: SimulatedGitHub,
        plan: GitHubPlan,
        timeline: Timeline,
        report: Callable[[RunnerReport], None],
        faults: Faults,
    ) -> None:
        self._faults = faults
        self._attempts: dict[JobId, int] = {}  # to provide a runner
        self._github = github
        self._timeline = timeline
        self._report = report
        self._scripts: dict[int, RunScript] = {}
        self._jobs: dict[tuple[int, str], JobScript] = {}
        self._reports: dict[int, int] = {}  # how many, by run
        self.market: dict[JobId, str] = {}
        self.interrupted: set[JobId] = set()
        self._without_runner: list[SimJob] = []  # a machine was launched for each, and none has attached
        self._launched_for: dict[JobId, SimJob] = {}  # for which job the machine of a job was launched, if for another
        github.on_job = self._begin
        for script in plan.runs:
            timeline.after(script.at_seconds, partial(self._start_run, script))
        for number in range(_PAST_RUNS_MOST):
            timeline.after(number * _PAST_RUN_SECONDS + 1800, partial(self._past_run, number))

    def _start_run(self, script: RunScript) -> None:
        ordinal = self._github.runs_started
        self._scripts[ordinal] = script
        self._jobs |= {(ordinal, job.name): job for stage in script.stages for job in stage}
        first, *later = ([JobPlan(job.name, job.environment) for job in stage] for stage in script.stages)
        number = script.installation
        run = self._github.start_run(INSTALLATIONS[number], REPOSITORIES[number], first, later)
        if not script.starts:
            self._timeline.after(30, partial(self._github.fail_to_start, run))

    def _past_run(self, number: int) -> None:
        days = self._faults.draw(FaultKind.HOOK_DAYS_LATE, f"past-run-{number}", number)
        if days is not None:
            index = number % len(INSTALLATIONS)
            ago_seconds = (1 + 1.5 * days) * DAY_SECONDS  # GitHub redelivers for three days
            self._github.past_run(INSTALLATIONS[index], REPOSITORIES[index], JobPlan("nightly"), ago_seconds)

    def _begin(self, job: SimJob) -> None:
        run, script = self._of(job)
        if not self._scripts[run.ordinal].starts:
            return
        if job.environment is not None and self._meets(FaultKind.DEPLOYMENT_EVENTS, job):
            self._github.announce_deployment(job)
            self._github.announce_deployment(job, "waiting")
        if job.environment is None:
            self._timeline.after(script.queue_seconds, partial(self._schedule_runner, job))
        elif script.review is not None:
            self._timeline.after(script.review_seconds, partial(self._review, job))

    def _review(self, job: SimJob) -> None:
        _, script = self._of(job)
        if script.review == "rejected":
            self._github.reject(job)
            self._rerun_later(job)
        else:
            self._github.approve(job)
            self._timeline.after(script.queue_seconds, partial(self._schedule_runner, job))

    def _schedule_runner(self, job: SimJob) -> None:
        _, script = self._of(job)
        if script.end_of(job.run_attempt) == "cancelled":
            self._finish(job, "cancelled")
            return
        self._send_report(job, "runner_scheduled")
        if self._meets(FaultKind.RESCHEDULED, job):
            self._timeline.after(_ATTACH_SECONDS, partial(self._reschedule_runner, job))
        else:
            self._start_job_later(job)

    def _reschedule_runner(self, job: SimJob) -> None:
        """The first machine is given up, and says so only after the second one has attached."""
        self._timeline.after(2 * _ATTACH_SECONDS, partial(self._send_report, job, "runner_terminated", attempt=1))
        self._attempts[job.id] = 2
        self._send_report(job, "runner_rescheduled")
        self._start_job_later(job)

    def _start_job_later(self, job: SimJob) -> None:
        self._without_runner.append(job)
        self._timeline.after(_ATTACH_SECONDS, partial(self._start_job, job))

    def _meets(self, kind: FaultKind, job: SimJob) -> bool:
        return self._faults.draw(kind, f"job-{job.id}", job.id) is not None

    def _start_job(self, job: SimJob) -> None:
        _, script = self._of(job)
        if self._meets(FaultKind.RUNNER_STOLEN, job):
            self._swap_runners(job)
        self._without_runner.remove(job)
        launched_for = self._launched_for.get(job.id)
        name = f"runner {job.id}" if launched_for is None else f"runner--{self._machine_of(launched_for)}--x"
        self._github.start(job, name)
        self._send_report(job, "runner_attached")
        end = script.end_of(job.run_attempt)
        if end == INTERRUPTED:
            self._timeline.after(script.run_seconds / 2, partial(self._interrupt, job))
        elif end != NEVER:
            self._timeline.after(script.run_seconds, partial(self._finish, job, end))

    def _swap_runners(self, job: SimJob) -> None:
        """GitHub gives a job to any idle runner with its labels."""
        if job.id in self._launched_for:
            return
        installation = self._of(job)[0].installation
        for other in self._without_runner:
            is_free = other is not job and other.id not in self._launched_for
            if is_free and self._of(other)[0].installation == installation:
                self._launched_for |= {job.id: other, other.id: job}
                return

    def running_on(self, machine_of: SimJob) -> SimJob:
        """The job that runs on the machine that was launched for this one."""
        return self._launched_for.get(machine_of.id, machine_of)

    def _interrupt(self, job: SimJob) -> None:
        _, script = self._of(job)
        if self.market.get(self._launched_for.get(job.id, job).id) != "spot":
            self._timeline.after(script.run_seconds / 2, partial(self._finish, job, "success"))
            return
        self.interrupted.add(job.id)
        self._send_report(job, "runner_interrupted")
        self._timeline.after(NOTICE_SECONDS, partial(self._finish, job, "failure"))

    def _finish(self, job: SimJob, conclusion: str) -> None:
        self._github.finish(job, conclusion)
        if job.started is not None:
            self._send_report(job, "runner_terminated")
        self._rerun_later(job)

    def _rerun_later(self, job: SimJob) -> None:
        """A person may re-run a failed run, once."""
        run, _ = self._of(job)
        seconds = self._scripts[run.ordinal].rerun_seconds
        if run.status == "completed" and run.attempt == 1 and job.conclusion in FAILED and seconds is not None:
            self._timeline.after(seconds, partial(self._rerun, run))

    def _rerun(self, run: SimRun) -> None:
        if run.status == "completed" and run.attempt == 1:
            self._github.rerun(run)

    def _send_report(self, job: SimJob, kind: str, attempt: int | None = None) -> None:
        if kind in ("runner_attached", "runner_interrupted") or (kind == "runner_terminated" and attempt is None):
            job = self._launched_for.get(job.id, job)  # the fleet knows a machine by the job that it was launched for
        of_attempt = attempt or self._attempts.get(job.id, 1)
        run, _ = self._of(job)
        number = self._reports.get(run.ordinal, 0)
        self._reports[run.ordinal] = number + 1
        instance = self._machine_of(job, of_attempt)
        number += run.ordinal * WEBHOOKS_MOST
        self._report(RunnerReport(run, job, kind, self._timeline.now(), instance, number, of_attempt))

    def _machine_of(self, job: SimJob, attempt: int | None = None) -> InstanceId:
        """The machine that was launched for the job."""
        return InstanceId(f"i-{job.id + ((attempt or self._attempts.get(job.id, 1)) - 1 << 40):017x}")

    def _of(self, job: SimJob) -> tuple[SimRun, JobScript]:
        run = self._github.runs[job.run_id]
        return run, self._jobs[run.ordinal, job.name]
