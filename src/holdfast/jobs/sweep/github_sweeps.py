"""A GitHub sweep: recover lost deliveries, retry runs that spot interrupted, and poll active runs.

The daemon or a Lambda schedule runs one every few minutes, with a limited number of calls. Concurrent sweeps are
harmless.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from holdfast.jobs.intake.tracker import installations
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.interrupted_jobs import retry_interrupted
from holdfast.jobs.sweep.lost_webhooks import is_behind, restart_sweep, sweep_deliveries
from holdfast.jobs.sweep.polling import RUNS_MOST, PollResult, poll_runs
from holdfast.jobs.sweep.repositories import walk_repositories
from holdfast.jobs.sweep.retry import RetryPolicy
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.github import GitHub, GitHubRefused, GitHubUnavailable, RateLimited
from holdfast.ports.store import Store

# Of a sweep that catches up after an outage: 3,600 of the 5,000 calls that GitHub allows an App per hour. Calls of
# installations have limits of their own.
_CATCH_UP_PER_SECOND: Final = 1
_WALK_SHARE: Final = 4  # a quarter of the calls is for runs that no webhook announced
_PAGES_EACH: Final = 4  # pages of active runs: one for each status, if there are few


class TimedBudget(CallBudget):
    """A call budget that also ends after `seconds`."""

    def __init__(self, calls: int, clock: Clock, seconds: float) -> None:
        super().__init__(calls)
        self._clock = clock
        self._end_seconds = clock.monotonic_seconds() + seconds

    def spend(self) -> bool:
        if self._clock.monotonic_seconds() >= self._end_seconds:
            self.calls = 0
        return super().spend()


@dataclass
class SweepCounts:
    """What one sweep did, and the problems it met."""

    redelivered: int = 0
    runs_asked: int = 0
    jobs_found: int = 0
    runs_retried: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, polled: PollResult) -> None:
        self.runs_asked += polled.runs
        self.jobs_found += len(polled.found)
        self.problems += [polled.refused] if polled.refused else []
        self.problems += polled.given_up

    def shown(self) -> dict[str, Any]:
        return {
            "redelivered": self.redelivered,
            "runsAsked": self.runs_asked,
            "jobsFound": self.jobs_found,
            "runsRetried": self.runs_retried,
            "problems": self.problems,
        }


class SweepObserver(Protocol):
    """Counts calls to GitHub and the results of sweeps."""

    def called(self, scope: str, status: int, left: int | None) -> None: ...

    def swept(self, swept: SweepCounts) -> None: ...


class NoSweepObserver:
    def called(self, scope: str, status: int, left: int | None) -> None:
        """Ignored."""

    def swept(self, swept: SweepCounts) -> None:
        """Ignored."""


@dataclass(frozen=True)
class GitHubSweeps:
    """What a sweep needs, for every installation."""

    store: Store
    github: GitHub
    clock: Clock
    policy: RetryPolicy
    app_id: int | None  # None: a token cannot read the delivery log
    received_by: str
    every_seconds: int = 300
    watch: SweepObserver = field(default_factory=NoSweepObserver)

    def sweep(self, calls: int, seconds: float) -> SweepCounts:
        """Sweep within `calls` and `seconds`. Deliveries get at most half: after an outage there may be thousands.

        A sweep that resumes an unfinished one has more calls for deliveries, so that it catches up.
        """
        now = self.clock.now()
        swept = SweepCounts()
        budget = TimedBudget(calls, self.clock, seconds)
        known = _in_turn(installations(self.store), now, self.every_seconds)
        if self.app_id is not None:
            most = calls // 2
            if is_behind(self.store, self.app_id):
                most = max(most, self.every_seconds * _CATCH_UP_PER_SECOND)
            share = TimedBudget(most, self.clock, seconds / 2)
            self._guarded(swept, partial(self._deliveries, swept, self.app_id, now, share))
            budget.calls -= min(calls // 2, most - share.calls)
            walk = TimedBudget(calls // _WALK_SHARE, self.clock, seconds / 2)
            for installation in known:
                self._guarded(swept, partial(self._walk, swept, installation, now, walk))
            budget.calls -= calls // _WALK_SHARE - walk.calls
        for installation in known:
            self._guarded(swept, partial(self._retry, swept, installation, now, budget))
            self._guarded(swept, partial(self._poll, swept, installation, now, budget))
        return swept

    def _deliveries(self, swept: SweepCounts, app_id: int, now: Instant, budget: CallBudget) -> None:
        try:
            swept.redelivered = len(sweep_deliveries(self.store, self.github, app_id, now, budget).redelivered)
        except GitHubRefused:
            restart_sweep(self.store, app_id)
            raise

    def _retry(self, swept: SweepCounts, installation: InstallationId, now: Instant, budget: CallBudget) -> None:
        retried = retry_interrupted(self.store, self.github, installation, self.policy, now, budget)
        swept.runs_retried += map(str, retried.runs)
        swept.problems += [retried.refused] if retried.refused else []

    def _poll(self, swept: SweepCounts, installation: InstallationId, now: Instant, budget: CallBudget) -> None:
        for _ in range(_PAGES_EACH):
            # An incomplete page is read again, so start one only if the budget covers it.
            if budget.calls < RUNS_MOST:
                return
            swept.add(poll_runs(self.store, self.github, installation, now, budget, self.received_by))

    def _walk(self, swept: SweepCounts, installation: InstallationId, now: Instant, budget: CallBudget) -> None:
        swept.add(walk_repositories(self.store, self.github, installation, now, budget, self.received_by))

    def _guarded(self, swept: SweepCounts, part: Callable[[], None]) -> None:
        """An installation that is suspended or rate-limited does not stop the others."""
        try:
            part()
        except (GitHubRefused, GitHubUnavailable, RateLimited) as error:
            swept.problems.append(str(error))


def _in_turn(known: Sequence[InstallationId], now: Instant, every_seconds: int) -> Sequence[InstallationId]:
    """Start with a different installation each time: the budget may not cover all."""
    first = now.epoch_seconds // every_seconds % len(known) if known else 0
    return [*known[first:], *known[:first]]
