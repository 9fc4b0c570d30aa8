"""What is true of GitHub's jobs, and what of it was told, claimed and asked for; kept up event by event."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.kernel.ids import JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Query, Store, Table, every_item
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, RUNS
from holdfast.simulator.github import SimulatedGitHub
from holdfast.simulator.github_objects import SimJob, SimRun
from holdfast.simulator.job_plans import GitHubPlan

Attempt = tuple[RunId, int]
CLOCK_OFF_SECONDS: Final = 3600
DAY_SECONDS: Final = 86_400


def days_between(first: Instant, last: Instant) -> set[str]:
    """The days that a clock may show between the two, if it is off by an hour at most."""
    begin, end = first.plus(-CLOCK_OFF_SECONDS), last.plus(CLOCK_OFF_SECONDS)
    days = int(end.seconds_since(begin) // DAY_SECONDS) + 1
    return {min(begin.plus(day * DAY_SECONDS), end).date() for day in range(days + 1)}


@dataclass
class JobFacts:
    """The truth is `github`; `store` is read when the world has healed, and for what was not seen being written."""

    github: SimulatedGitHub
    store: Store
    plan: GitHubPlan
    interrupted: set[JobId] = field(default_factory=set)  # their spot machines were taken
    told: set[tuple[str, str]] = field(default_factory=set)  # job and delivery, in the history
    claimed: dict[Attempt, Instant] = field(default_factory=dict)
    run_again: dict[Attempt, Instant] = field(default_factory=dict)  # by the tracker: GitHub did so

    def event_written(self, entry: Item) -> None:
        self.told.add((entry["PK"], entry.get("delivery", "")))

    def run_written(self, item: Item, at: Instant) -> None:
        if "retry" in item:
            _, run, attempt = item["PK"].split("#")
            self.claimed.setdefault((RunId(int(run)), int(attempt)), at)

    def run_again_on(self, day: str, run: SimRun) -> int:
        """How many runs of its repository the tracker surely had run again that day.

        Its clock may be off by an hour, so around midnight the day is one of two, and it is not sure.
        """
        return sum(days_between(at, at) == {day} for at in self._of_repository(run, self.run_again))

    def counted_on(self, day: str, run: SimRun) -> int:
        """How many runs of its repository the tracker may have counted that day.

        Where GitHub did not answer and somebody else had it run again, nobody can tell who did: it counts.
        """
        counted = {
            (run_id, attempt): at
            for (run_id, attempt), at in self.claimed.items()
            if self.github.runs[run_id].attempt > attempt and not self._is_held_back(run_id, attempt)
        }
        found = self._of_repository(run, counted | self.run_again)
        return sum(day in days_between(at, at) for at in found)

    def _of_repository(self, run: SimRun, attempts: Mapping[Attempt, Instant]) -> Iterator[Instant]:
        for (run_id, _), at in attempts.items():
            other = self.github.runs[run_id]
            if (other.installation, other.repository) == (run.installation, run.repository):
                yield at

    def _is_held_back(self, run_id: RunId, attempt: int) -> bool:
        retry = self.run_item(self.github.runs[run_id], attempt).get("retry", {})
        return retry.get("state") == "refused" and "AUTO_RETRY_DAILY" in retry.get("because", "")

    def is_told(self, job: SimJob, delivery: str) -> bool:
        key = self.key_of(job)
        return (key, delivery) in self.told or any(entry.get("delivery") == delivery for entry in self.history(job))

    def history(self, job: SimJob) -> Iterator[Item]:
        return iter(every_item(self.store, Query(JOB_EVENTS, self.key_of(job))))

    def key_of(self, job: SimJob) -> str:
        return f"{self.github.runs[job.run_id].installation}#{job.id}"

    def job_item(self, job: SimJob) -> Item | None:
        return self._item(JOBS, self.key_of(job))

    def run_item(self, run: SimRun, attempt: int) -> Item:
        return self._item(RUNS, f"{run.installation}#{run.id}#{attempt}") or {}

    def deployment_item(self, job: SimJob) -> Item:
        installation = self.github.runs[job.run_id].installation
        return self._item(DEPLOYMENTS, f"{installation}#{job.deployment_id}") or {}

    def _item(self, table: Table, partition: str) -> Item | None:
        return self.store.get(table, Key(partition, "v"))

    # What must be known by now

    def settled_jobs(self, now: Instant) -> list[SimJob]:
        return [job for job in self.github.jobs.values() if self.is_settled(job, now)]

    def settled_attempts(self, now: Instant) -> Iterator[tuple[SimRun, int, list[SimJob]]]:
        for run in self.github.runs.values():
            for attempt in range(1, run.attempt + 1):
                jobs = run.jobs_of(attempt)
                if all(self.is_settled(job, now) for job in jobs) and self._is_old(run.updated, now):
                    yield run, attempt, jobs

    def is_settled(self, job: SimJob, now: Instant) -> bool:
        """Nothing has happened to the job, or to its run, for long enough."""
        return self._is_old(job.changed, now) and self._is_old(self.github.runs[job.run_id].updated, now)

    def _is_old(self, changed: Instant | None, now: Instant) -> bool:
        return changed is not None and now.seconds_since(changed) >= self.plan.settle_seconds

    def state_of(self, job: SimJob) -> tuple[str, str | None]:
        """Status and conclusion. Nobody tells the end of a job whose run never started: it has ended all the same."""
        if self.github.runs[job.run_id].conclusion == "startup_failure":
            return "completed", "startup_failure"
        return job.status, job.conclusion
