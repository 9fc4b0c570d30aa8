"""Attempts that spot took down: run again once, if they may be, and not otherwise."""

from collections.abc import Mapping
from typing import Final

from holdfast.kernel.ids import RunId
from holdfast.ports.store import Item
from holdfast.simulator.checkers.base import Checker
from holdfast.simulator.checkers.jobs import JobChecker
from holdfast.simulator.github import FAILED
from holdfast.simulator.github_objects import SimJob, SimRun
from holdfast.simulator.job_facts import days_between
from holdfast.simulator.process import Process

ATTEMPTS_MOST: Final = 3
RETRIES_EACH_DAY_MOST: Final = 20
_NEXT: Final[Mapping[str, tuple[str, ...]]] = {  # of the retry of an attempt
    "unclaimed": ("intended",),
    "intended": ("requested", "refused"),
    "requested": (),
    "refused": (),
}


class RunDoneOnce(JobChecker):
    name = "RunDoneOnce"
    says = "that an attempt is run again is claimed once and settled once, and in the end no claim is open"

    def run_written(self, by: Process, old: Item, new: Item) -> None:
        before, after = (item.get("retry", {}).get("state", "unclaimed") for item in (old, new))
        if before != after and after not in _NEXT[before]:
            self.fail(by, f"the retry of run {new['PK']} was {before}, and is {after}")

    def healed(self) -> None:
        for run, attempt, _ in self.jobs.settled_attempts(self.facts.now()):
            if self.jobs.run_item(run, attempt).get("retry", {}).get("state") == "intended":
                self.fail(None, f"run {run.id}, attempt {attempt}: its retry was claimed, and never settled")


class RetryOnce(JobChecker):
    name = "RetryOnce"
    says = "we have GitHub run an attempt again only under a claim that was stored before, unless we slept for a minute"

    def ran_again(self, by: Process, run: SimRun, attempt: int) -> None:
        # Nothing can fence GitHub: who slept through a whole attempt asks for the next one.
        is_late = self.facts.now().seconds_since(by.started) >= 60
        if (run.id, attempt) not in self.jobs.claimed and not is_late:
            self.fail(by, f"attempt {attempt} of run {run.id} was run again, and nobody had claimed it")


class RetryJust(JobChecker):
    name = "RetryJust"
    says = "we have an attempt run again only if spot took the machines of all its failed jobs"

    def ran_again(self, by: Process, run: SimRun, attempt: int) -> None:
        if (run.id, attempt) not in self.jobs.claimed:
            return
        failed = {job.id for job in run.jobs_of(attempt) if job.conclusion in FAILED}
        if not failed or not failed <= self.jobs.interrupted:
            others = sorted(failed - self.jobs.interrupted)
            self.fail(by, f"attempt {attempt} of run {run.id} was run again, and spot did not take {others}")


class RetryCapped(JobChecker):
    name = "RetryCapped"
    says = "we have no more than 20 runs of a repository run again in a day"

    def ran_again(self, by: Process, run: SimRun, attempt: int) -> None:
        today = self.facts.now().date()
        count = self.jobs.run_again_on(today, run)
        if count > RETRIES_EACH_DAY_MOST:
            self.fail(by, f"run {run.id} is the {count}th of {run.repository} that was run again on {today}")


class RetryOnDemand(JobChecker):
    name = "RetryOnDemand"
    says = "the jobs of an attempt that we had run again get on-demand machines"

    def scheduled(self, by: Process, job: SimJob, market: str) -> None:
        before = (RunId(job.run_id), job.run_attempt - 1)
        if before in self.jobs.run_again and market != "on-demand":
            self.fail(by, f"job {job.id} got a {market} machine, and spot had taken the one before")


class RetryLive(JobChecker):
    name = "RetryLive"
    says = (
        "in the end no attempt is left of which spot alone took jobs, unless it is the third, a job of it deploys, or "
        "the day was full and it was refused for that"
    )

    def healed(self) -> None:
        for run, attempt, jobs in self.jobs.settled_attempts(self.facts.now()):
            failed = [job for job in jobs if job.conclusion in FAILED]
            if attempt != run.attempt or run.status != "completed" or attempt >= ATTEMPTS_MOST or not failed:
                continue
            if any(job.id not in self.jobs.interrupted or job.environment for job in failed):
                continue
            retry = self.jobs.run_item(run, attempt).get("retry", {})
            if not (retry.get("state") == "refused" and self._is_day_full(run)):
                self.fail(None, f"run {run.id} failed by spot in attempt {attempt}, and was not run again: {retry}")

    def _is_day_full(self, run: SimRun) -> bool:
        """Whether the cap was reached on a day on which it may have been looked at."""
        days = days_between(run.updated or run.created, self.facts.now())
        return any(self.jobs.counted_on(day, run) >= RETRIES_EACH_DAY_MOST for day in days)


CHECKERS: tuple[type[Checker], ...] = (RunDoneOnce, RetryOnce, RetryJust, RetryCapped, RetryOnDemand, RetryLive)
