"""What is asked of GitHub by itself: lost deliveries, runs under way, and to run again what spot took down.

One sweep every few minutes, by a thread of the daemon or by a schedule of Lambda's; each within a number of calls. Two
at once do no harm. Without access to GitHub there is no sweep: webhooks are all there is then.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.entrypoints.daemon import Loop
from holdfast.jobs.budget import Budget
from holdfast.jobs.fresh import fresh_run
from holdfast.jobs.ingest import installations
from holdfast.jobs.interrupted import retry_interrupted
from holdfast.jobs.keys import RunKey
from holdfast.jobs.pending import Gates, TellsPending, pending_gates
from holdfast.jobs.polling import RUNS_MOST, poll_runs
from holdfast.jobs.recovery import begin_again, sweep_deliveries
from holdfast.jobs.retry import RetryPolicy
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.github import GitHub, GitHubRefused, GitHubUnavailable, RateLimited
from holdfast.ports.store import Item, Store

if TYPE_CHECKING:
    from holdfast.adapters.github_app import Secret

NOT_ASKED: Final = (
    "GitHub is not asked: set GITHUB_APP_ID and its key, or a token; until then a webhook that is lost stays lost, "
    "and nothing is run again"
)
_PAGES_EACH: Final = 4  # of runs under way: one for each status, where there are few
_log = logging.getLogger(__name__)


class TimedBudget(Budget):
    """Calls, until a moment."""

    def __init__(self, calls: int, clock: Clock, seconds: float) -> None:
        super().__init__(calls)
        self._clock = clock
        self._end_seconds = clock.monotonic_seconds() + seconds

    def spend(self) -> bool:
        if self._clock.monotonic_seconds() >= self._end_seconds:
            self.calls = 0
        return super().spend()


@dataclass
class Swept:
    """What one sweep did, and what it could not do."""

    redelivered: int = 0
    runs_asked: int = 0
    jobs_found: int = 0
    runs_retried: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def shown(self) -> dict[str, Any]:
        return {
            "redelivered": self.redelivered,
            "runsAsked": self.runs_asked,
            "jobsFound": self.jobs_found,
            "runsRetried": self.runs_retried,
            "problems": self.problems,
        }


class Watch(Protocol):
    """Who counts what is asked of GitHub, and what sweeps find."""

    def called(self, scope: str, status: int, left: int | None) -> None: ...

    def swept(self, swept: Swept) -> None: ...


class Unwatched:
    def called(self, scope: str, status: int, left: int | None) -> None:
        """Nobody counts."""

    def swept(self, swept: Swept) -> None:
        """Nobody counts."""


@dataclass(frozen=True)
class GitHubSweeps:
    store: Store
    github: GitHub
    clock: Clock
    policy: RetryPolicy
    app_id: int | None  # None: there is no log of deliveries to read
    received_by: str
    every_seconds: int = 300
    watch: Watch = field(default_factory=Unwatched)

    def sweep(self, calls: int, seconds: float) -> Swept:
        """So many calls, in so many seconds. Half of them is for deliveries: after an outage there may be thousands."""
        now = self.clock.now()
        swept = Swept()
        budget = TimedBudget(calls, self.clock, seconds)
        if self.app_id is not None:
            share = TimedBudget(calls // 2, self.clock, seconds / 2)
            self._guarded(swept, partial(self._deliveries, swept, self.app_id, now, share))
            budget.calls -= calls // 2 - share.calls
        for installation in _in_turn(installations(self.store), now, self.every_seconds):
            self._guarded(swept, partial(self._retry, swept, installation, now, budget))
            self._guarded(swept, partial(self._poll, swept, installation, now, budget))
        return swept

    def _deliveries(self, swept: Swept, app_id: int, now: Instant, budget: Budget) -> None:
        try:
            swept.redelivered = len(sweep_deliveries(self.store, self.github, app_id, now, budget).redelivered)
        except GitHubRefused:
            begin_again(self.store, app_id)
            raise

    def _retry(self, swept: Swept, installation: InstallationId, now: Instant, budget: Budget) -> None:
        retried = retry_interrupted(self.store, self.github, installation, self.policy, now, budget)
        swept.runs_retried += map(str, retried.runs)
        swept.problems += [retried.refused] if retried.refused else []

    def _poll(self, swept: Swept, installation: InstallationId, now: Instant, budget: Budget) -> None:
        for _ in range(_PAGES_EACH):
            # A page that is not read to its end is read again: one that cannot be is not begun.
            if budget.calls < RUNS_MOST:
                return
            polled = poll_runs(self.store, self.github, installation, now, budget, self.received_by)
            swept.runs_asked += polled.runs
            swept.jobs_found += len(polled.found)
            swept.problems += [polled.refused] if polled.refused else []

    def _guarded(self, swept: Swept, part: Callable[[], None]) -> None:
        """One installation that is suspended, or has used up its calls, does not stop the others."""
        try:
            part()
        except (GitHubRefused, GitHubUnavailable, RateLimited) as error:
            swept.problems.append(str(error))


def _in_turn(known: Sequence[InstallationId], now: Instant, every_seconds: int) -> Sequence[InstallationId]:
    """Another one is the first each time: the calls may not suffice for all."""
    first = now.epoch_seconds // every_seconds % len(known) if known else 0
    return [*known[first:], *known[:first]]


def is_configured(settings: Settings) -> bool:
    """The simulated world has no GitHub that could be asked about it, whatever is set."""
    s = settings
    return s.holdfast_world != "sim" and any((s.github_app_id, s.github_token_file, s.github_token_parameter))


def open_github(settings: Settings, clock: Clock, watch: Watch | None = None) -> GitHub:
    """Imported here: whoever does not ask GitHub does not load what asks it."""
    from holdfast.adapters.github import GitHubApi
    from holdfast.adapters.github_app import AppIdentity, Identity, TokenIdentity
    from holdfast.adapters.github_calls import GitHubCalls
    from holdfast.adapters.http_calls import HttpPlace

    s = settings
    place = HttpPlace(s.github_api_url, clock, setting="GITHUB_API_URL", ca_file=s.github_ca_file, https_only=True)
    calls = GitHubCalls(place, clock, (watch or Unwatched()).called)
    identity: Identity
    if s.github_app_id is not None:
        key = _secret(clock, "GITHUB_APP_KEY_FILE", s.github_app_key_file, s.github_app_key_parameter)
        identity = AppIdentity(s.github_app_id, key, calls, clock)
    else:
        identity = TokenIdentity(_secret(clock, "GITHUB_TOKEN_FILE", s.github_token_file, s.github_token_parameter))
    return GitHubApi(calls, identity)


def _secret(clock: Clock, setting: str, file: Path | None, parameter: str | None) -> "Secret":
    from holdfast.adapters.github_app import secret_in
    from holdfast.entrypoints.world import ssm_parameters

    if file is not None:
        return secret_in(file, setting)
    parameters = ssm_parameters(clock)
    return lambda: parameters.secret(parameter or "")


def retry_policy(settings: Settings) -> RetryPolicy:
    return RetryPolicy(
        is_enabled=settings.auto_retry,
        attempts_most=settings.auto_retry_attempts,
        per_repository_and_day_most=settings.auto_retry_daily,
        with_deployments=settings.auto_retry_deployments,
    )


def github_sweeps(
    settings: Settings, store: Store, clock: Clock, received_by: str, watch: Watch | None = None
) -> GitHubSweeps | None:
    """None where GitHub cannot be asked; that is told, once."""
    if not is_configured(settings):
        if settings.holdfast_world != "sim":
            _log.warning(NOT_ASKED)
        return None
    s, watch = settings, watch or Unwatched()
    github, policy = open_github(s, clock, watch), retry_policy(s)
    return GitHubSweeps(store, github, clock, policy, s.github_app_id, received_by, s.github_sweep_sec, watch)


def github_loop(found: GitHubSweeps, calls: int) -> Loop:
    return Loop("github", lambda: swept_once(found, calls))


def swept_once(found: GitHubSweeps, calls: int) -> float:
    """One sweep of the daemon's, told in the log; in how many seconds to sweep again."""
    try:
        swept = found.sweep(calls, found.every_seconds)
    except HoldfastError as error:
        _log.warning("GitHub: %s", error)
        return found.every_seconds
    found.watch.swept(swept)
    for problem in dict.fromkeys(swept.problems):
        _log.warning("GitHub: %s", problem)
    if swept.redelivered or swept.jobs_found or swept.runs_retried:
        _log.info(
            "GitHub: %d deliveries asked for again, %d jobs were otherwise than known, run again: %s",
            swept.redelivered,
            swept.jobs_found,
            ", ".join(swept.runs_retried) or "none",
        )
    return found.every_seconds


class FreshRuns:
    """Runs as GitHub has them, where our own word is old: a few calls a minute, whoever asks however often."""

    def __init__(self, found: GitHubSweeps, per_minute: int = 30) -> None:
        self._found = found
        self._per_minute = per_minute
        self._minute = 0
        self._budget = Budget(0)

    def __call__(self, key: RunKey, run: Item) -> Item:
        found, now = self._found, self._found.clock.now()
        repository = run.get("repo_full_name", "")
        try:
            return fresh_run(found.store, found.github, key, repository, now, self._budget_of(now)) or run
        except (GitHubRefused, NeedsOperator):
            return run  # the sweep tells of it

    def pending(self, key: RunKey, run: Item) -> Gates | None:
        """What the run waits for, as GitHub says; None where it cannot be asked."""
        found, now = self._found, self._found.clock.now()
        if not isinstance(found.github, TellsPending):
            return None
        try:
            return pending_gates(found.store, found.github, key, run, now, self._budget_of(now))
        except (GitHubRefused, NeedsOperator):
            return None  # the sweep tells of it

    def _budget_of(self, now: Instant) -> Budget:
        if self._minute != now.epoch_seconds // 60:
            self._minute, self._budget = now.epoch_seconds // 60, Budget(self._per_minute)
        return self._budget
