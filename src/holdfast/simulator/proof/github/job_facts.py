"""What is true of GitHub's jobs, and what the tracker recorded, claimed and re-ran; updated event by event."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.kernel.ids import JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Query, SortRange, Store, Table, every_item
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, RUNS
from holdfast.simulator.proof.github.plans import GitHubPlan
from holdfast.simulator.world.github import SimulatedGitHub
from holdfast.simulator.world.github_objects import SimJob, SimRun

RunAttempt = tuple[RunId, int]
CLOCK_OFF_SECONDS: Final = 3600
DAY_SECONDS: Final = 86_400
INDEX_OLD_SECONDS: Final = 30


def days_between(first: Instant, last: Instant) -> set[str]:
    """The days that a clock may show between the two, if it is wrong by at most an hour."""
    begin, end = first.plus(-CLOCK_OFF_SECONDS), last.plus(CLOCK_OFF_SECONDS)
    days = int(end.seconds_since(begin) // DAY_SECONDS) + 1
    return {min(begin.plus(day * DAY_SECONDS), end).date() for day in range(days + 1)}


@dataclass
class JobFacts:
    """The truth is `github`; `store` is read once the world has healed, and for writes that were not recorded here."""

    github: SimulatedGitHub
    store: Store
    plan: GitHubPlan
    interrupted: set[JobId] = field(default_factory=set)  # their spot runners were interrupted
    unseen: set[JobId] = field(default_factory=set)  # interrupted on another job's machine before the tracker knew
    started: dict[str, Instant] = field(default_factory=dict)  # when the tracker stored that a job has a runner
    recorded: set[tuple[str, str]] = field(default_factory=set)  # job and delivery, in the job's history
    claimed: dict[RunAttempt, Instant] = field(default_factory=dict)
    rerun: dict[RunAttempt, Instant] = field(default_factory=dict)  # by the tracker, successfully

    def job_written(self, item: Item, at: Instant) -> None:
        if "runner_name" in item:
            self.started.setdefault(item["PK"], at)

    def interruption_reported(self, job: SimJob, at: Instant) -> None:
        """Of a machine that runs another job than the one it was launched for. Indexes are up to 20 s old."""
        known = self.started.get(self.key_of(job))
        if known is None or at.seconds_since(known) < INDEX_OLD_SECONDS:
            self.unseen.add(job.id)
        else:
            self.unseen.discard(job.id)

    def event_written(self, entry: Item) -> None:
        self.recorded.add((entry["PK"], _event_of(entry.get("delivery", ""))))

    def run_written(self, item: Item, at: Instant) -> None:
        if "retry" in item:
            _, run, attempt = item["PK"].split("#")
            self.claimed.setdefault((RunId(int(run)), int(attempt)), at)

    def reruns_on(self, day: str, run: SimRun) -> int:
        """How many runs of this repository the tracker certainly re-ran that day.

        Its clock may be wrong by an hour, so a re-run around midnight belongs to either day and is not counted.
        """
        return sum(days_between(at, at) == {day} for at in self._of_repository(run, self.rerun))

    def counted_on(self, day: str, run: SimRun) -> int:
        """How many re-runs of this repository the tracker may have counted that day.

        A claimed attempt that was re-run by a person counts too: the tracker cannot know who re-ran it.
        """
        counted = {
            (run_id, attempt): at
            for (run_id, attempt), at in self.claimed.items()
            if self.github.runs[run_id].attempt > attempt and not self._is_over_daily_limit(run_id, attempt)
        }
        found = self._of_repository(run, counted | self.rerun)
        return sum(day in days_between(at, at) for at in found)

    def _of_repository(self, run: SimRun, attempts: Mapping[RunAttempt, Instant]) -> Iterator[Instant]:
        for (run_id, _), at in attempts.items():
            other = self.github.runs[run_id]
            if (other.installation, other.repository) == (run.installation, run.repository):
                yield at

    def _is_over_daily_limit(self, run_id: RunId, attempt: int) -> bool:
        retry = self.run_item(self.github.runs[run_id], attempt).get("retry", {})
        return retry.get("state") == "refused" and "AUTO_RETRY_DAILY" in retry.get("because", "")

    def is_recorded(self, job: SimJob, delivery: str) -> bool:
        """Under this delivery id, or that of another hook that was sent the same event."""
        key, event = self.key_of(job), _event_of(delivery)
        if (key, event) in self.recorded:
            return True
        return any(_event_of(entry.get("delivery", "")) == event for entry in self.history(job))

    def history(self, job: SimJob) -> Iterator[Item]:
        return iter(every_item(self.store, Query(JOB_EVENTS, self.key_of(job))))

    def key_of(self, job: SimJob) -> str:
        return f"{self.github.runs[job.run_id].installation}#{job.id}"

    def job_item(self, job: SimJob) -> Item | None:
        return self._item(JOBS, self.key_of(job))

    def run_item(self, run: SimRun, attempt: int) -> Item:
        return self._item(RUNS, f"{run.installation}#{run.id}#{attempt}") or {}

    def counted_jobs(self, run: SimRun, attempt: int) -> dict[JobId, Item]:
        """The jobs that the run counts, with their items."""
        partition = f"{run.installation}#{run.id}#{attempt}"
        items = every_item(self.store, Query(RUNS, partition, sort=SortRange.begins_with("job#"), consistent=True))
        numbers = [JobId(int(item["SK"].removeprefix("job#"))) for item in items]
        return {number: self._item(JOBS, f"{run.installation}#{number}") or {} for number in numbers}

    def deployment_item(self, job: SimJob) -> Item:
        installation = self.github.runs[job.run_id].installation
        return self._item(DEPLOYMENTS, f"{installation}#{job.deployment_id}") or {}

    def _item(self, table: Table, partition: str) -> Item | None:
        return self.store.get(table, Key(partition, "v"))

    # What the tracker must know by now

    def settled_jobs(self, now: Instant) -> list[SimJob]:
        return [job for job in self.github.jobs.values() if self.is_settled(job, now)]

    def settled_attempts(self, now: Instant) -> Iterator[tuple[SimRun, int, list[SimJob]]]:
        for run in self.github.runs.values():
            for attempt in range(1, run.attempt + 1):
                jobs = run.jobs_of(attempt)
                if all(self.is_settled(job, now) for job in jobs) and self._is_old(run.updated, now):
                    yield run, attempt, jobs

    def is_settled(self, job: SimJob, now: Instant) -> bool:
        """Whether nothing has happened to the job or its run for long enough."""
        return self._is_old(job.changed, now) and self._is_old(self.github.runs[job.run_id].updated, now)

    def _is_old(self, changed: Instant | None, now: Instant) -> bool:
        return changed is not None and now.seconds_since(changed) >= self.plan.settle_seconds

    def state_of(self, job: SimJob) -> tuple[str, str | None]:
        """Status and conclusion. A job whose run failed to start has ended, though no webhook says so."""
        if self.github.runs[job.run_id].conclusion == "startup_failure":
            return "completed", "startup_failure"
        return job.status, job.conclusion


def _event_of(delivery: str) -> str:
    """A delivery id without its last part, which tells the hooks apart that were sent the same event."""
    return delivery.rpartition("-")[0] or delivery
