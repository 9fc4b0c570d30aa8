"""Retries of attempts that failed by spot interruptions: when they may and must be re-run."""

from collections.abc import Mapping
from typing import Final

from holdfast.kernel.ids import RunId
from holdfast.ports.store import Item
from holdfast.simulator.checkers.base import Checker
from holdfast.simulator.checkers.jobs import JobChecker
from holdfast.simulator.proof.github.job_facts import days_between
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.world.github import FAILED
from holdfast.simulator.world.github_objects import SimJob, SimRun

ATTEMPTS_MOST: Final = 3
RETRIES_EACH_DAY_MOST: Final = 20
_NEXT: Final[Mapping[str, tuple[str, ...]]] = {  # state of a retry: possible next states
    "unclaimed": ("intended",),
    "intended": ("requested", "refused"),
    "requested": (),
    "refused": (),
}


class RunDoneOnce(JobChecker):
    name = "RunDoneOnce"
    says = "the retry of an attempt is claimed once and settled once, and in the end no claim is open"

    def run_written(self, by: Process, old: Item, new: Item) -> None:
        before, after = (item.get("retry", {}).get("state", "unclaimed") for item in (old, new))
        if before != after and after not in _NEXT[before]:
            self.fail(by, f"the retry of run {new['PK']} went from {before} to {after}")

    def healed(self) -> None:
        for run, attempt, _ in self.jobs.settled_attempts(self.facts.now()):
            if self.jobs.run_item(run, attempt).get("retry", {}).get("state") == "intended":
                self.fail(None, f"run {run.id}, attempt {attempt}: its retry was claimed but never settled")


class RetryOnce(JobChecker):
    name = "RetryOnce"
    says = "we re-run an attempt only under a claim that was stored before, unless the process slept for a minute"

    def rerun_requested(self, by: Process, run: SimRun, attempt: int) -> None:
        # GitHub has no fence: a process that slept through a whole attempt re-runs the next one.
        is_late = self.facts.now().seconds_since(by.started) >= 60
        if (run.id, attempt) not in self.jobs.claimed and not is_late:
            self.fail(by, f"attempt {attempt} of run {run.id} was re-run without a claim")


class RetryJust(JobChecker):
    name = "RetryJust"
    says = "we re-run an attempt only if all its failed jobs lost their spot runners"

    def rerun_requested(self, by: Process, run: SimRun, attempt: int) -> None:
        if (run.id, attempt) not in self.jobs.claimed:
            return
        failed = {job.id for job in run.jobs_of(attempt) if job.conclusion in FAILED}
        if not failed or not failed <= self.jobs.interrupted:
            others = sorted(failed - self.jobs.interrupted)
            self.fail(by, f"attempt {attempt} of run {run.id} was re-run, but jobs {others} did not lose a spot runner")


class RetryCapped(JobChecker):
    name = "RetryCapped"
    says = "we re-run at most 20 runs of a repository a day"

    def rerun_requested(self, by: Process, run: SimRun, attempt: int) -> None:
        today = self.facts.now().date()
        count = self.jobs.reruns_on(today, run)
        if count > RETRIES_EACH_DAY_MOST:
            self.fail(by, f"run {run.id} is the {count}th of {run.repository} to be re-run on {today}")


class RetryOnDemand(JobChecker):
    name = "RetryOnDemand"
    says = "the jobs of an attempt that we re-ran get on-demand runners"

    def scheduled(self, by: Process, job: SimJob, market: str) -> None:
        before = (RunId(job.run_id), job.run_attempt - 1)
        if before in self.jobs.rerun and market != "on-demand":
            self.fail(by, f"job {job.id} got a {market} runner after an interruption")


class RetryLive(JobChecker):
    name = "RetryLive"
    says = (
        "in the end, no attempt is left that failed by spot interruptions alone, unless it is the third, one "
        "of its jobs deploys, the daily limit was reached, or a job's machine was launched for another job and was "
        "interrupted before the job's start was stored, or reported after its end"
    )

    def healed(self) -> None:
        for run, attempt, jobs in self.jobs.settled_attempts(self.facts.now()):
            failed = [job for job in jobs if job.conclusion in FAILED]
            if attempt != run.attempt or run.status != "completed" or attempt >= ATTEMPTS_MOST or not failed:
                continue
            if any(job.id not in self.jobs.interrupted or job.environment for job in failed):
                continue
            if any(job.id in self.jobs.unseen for job in failed):
                continue
            retry = self.jobs.run_item(run, attempt).get("retry", {})
            if not (retry.get("state") == "refused" and self._is_limit_reached(run)):
                self.fail(
                    None, f"run {run.id} failed by interruptions in attempt {attempt} and was not re-run: {retry}"
                )

    def _is_limit_reached(self, run: SimRun) -> bool:
        """Whether the limit was reached on a day on which the tracker may have considered the run."""
        days = days_between(run.updated or run.created, self.facts.now())
        return any(self.jobs.counted_on(day, run) >= RETRIES_EACH_DAY_MOST for day in days)


CHECKERS: tuple[type[Checker], ...] = (RunDoneOnce, RetryOnce, RetryJust, RetryCapped, RetryOnDemand, RetryLive)
