"""The daemon's GitHub sweeps and the refresh of runs that pages show; access to GitHub, as the settings give it.

Without access to GitHub there are no sweeps, only webhooks.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.entrypoints.daemon import Loop
from holdfast.jobs.model.keys import RunKey
from holdfast.jobs.model.run_jobs import updated
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.github_sweeps import GitHubSweeps, NoSweepObserver, SweepObserver
from holdfast.jobs.sweep.live_run import Gates, ListsPendingDeployments, current_run, pending_gates
from holdfast.jobs.sweep.retry import RetryPolicy
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.github import GitHub, GitHubRefused
from holdfast.ports.store import Item, Store

if TYPE_CHECKING:
    from holdfast.adapters.github.identity import Secret
    from holdfast.adapters.server_date import ServerDate

NO_GITHUB_ACCESS: Final = (
    "no access to GitHub: set GITHUB_APP_ID and its key, or a token; without it, lost webhooks are not recovered "
    "and interrupted runs are not retried"
)
_log = logging.getLogger(__name__)


def is_configured(settings: Settings) -> bool:
    """Whether GitHub can be called; never in the simulated world."""
    s = settings
    return s.holdfast_world != "sim" and any((s.github_app_id, s.github_token_file, s.github_token_parameter))


def open_github(
    settings: Settings, clock: Clock, watch: SweepObserver | None = None, date: "ServerDate | None" = None
) -> GitHub:
    """Imports are local, so that processes without GitHub access do not load the adapters."""
    from holdfast.adapters.github.api import GitHubApi
    from holdfast.adapters.github.calls import GitHubCalls
    from holdfast.adapters.github.identity import AppIdentity, Identity, TokenIdentity
    from holdfast.adapters.http_calls import HttpEndpoint

    s = settings
    place = HttpEndpoint(s.github_api_url, clock, setting="GITHUB_API_URL", ca_file=s.github_ca_file, https_only=True)
    calls = GitHubCalls(place, clock, (watch or NoSweepObserver()).called, date)
    identity: Identity
    if s.github_app_id is not None:
        key = github_secret(clock, "GITHUB_APP_KEY_FILE", s.github_app_key_file, s.github_app_key_parameter)
        identity = AppIdentity(s.github_app_id, key, calls, clock)
    else:
        identity = TokenIdentity(
            github_secret(clock, "GITHUB_TOKEN_FILE", s.github_token_file, s.github_token_parameter)
        )
    return GitHubApi(calls, identity)


def github_secret(clock: Clock, setting: str, file: Path | None, parameter: str | None) -> "Secret":
    """The key or token, read from its file or its SSM parameter."""
    from holdfast.adapters.github.identity import secret_in
    from holdfast.entrypoints.wiring.world import ssm_parameters

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
    settings: Settings,
    store: Store,
    clock: Clock,
    received_by: str,
    watch: SweepObserver | None = None,
    date: "ServerDate | None" = None,
) -> GitHubSweeps | None:
    """None without access to GitHub, with a warning in the log. `date` gets GitHub's time."""
    if not is_configured(settings):
        if settings.holdfast_world != "sim":
            _log.warning(NO_GITHUB_ACCESS)
        return None
    s, watch = settings, watch or NoSweepObserver()
    github, policy = open_github(s, clock, watch, date), retry_policy(s)
    return GitHubSweeps(store, github, clock, policy, s.github_app_id, received_by, s.github_sweep_sec, watch)


def github_loop(found: GitHubSweeps, calls: int, check_clock: Callable[[], None]) -> Loop:
    return Loop("github", lambda: run_sweep(found, calls, check_clock))


def run_sweep(found: GitHubSweeps, calls: int, check_clock: Callable[[], None]) -> float:
    """Run one sweep and log its result; returns the seconds until the next. With a wrong clock, none begins."""
    try:
        check_clock()
        swept = found.sweep(calls, found.every_seconds)
    except HoldfastError as error:
        _log.warning("GitHub: %s", error)
        return found.every_seconds
    found.watch.swept(swept)
    for problem in dict.fromkeys(swept.problems):
        _log.warning("GitHub: %s", problem)
    if swept.redelivered or swept.jobs_found or swept.runs_retried:
        _log.info(
            "GitHub: requested %d deliveries again, corrected %d jobs from missed webhooks, retried runs: %s",
            swept.redelivered,
            swept.jobs_found,
            ", ".join(swept.runs_retried) or "none",
        )
    return found.every_seconds


class RunRefresher:
    """Refreshes runs from GitHub when our data is old, with at most `per_minute` calls."""

    def __init__(self, found: GitHubSweeps, per_minute: int = 30) -> None:
        self._found = found
        self._per_minute = per_minute
        self._minute = 0
        self._budget = CallBudget(0)

    def __call__(self, key: RunKey, run: Item) -> Item:
        found, now = self._found, self._found.clock.now()
        repository = run.get("repo_full_name", "")
        try:
            current = current_run(found.store, found.github, key, repository, now, self._budget_of(now))
            return updated(run, current or {})
        except (GitHubRefused, NeedsOperator):
            return run  # the sweep reports it

    def pending(self, key: RunKey, run: Item) -> Gates | None:
        """The approvals that the run waits for, from GitHub; None if they cannot be read."""
        found, now = self._found, self._found.clock.now()
        if not isinstance(found.github, ListsPendingDeployments):
            return None
        try:
            return pending_gates(found.store, found.github, key, run, now, self._budget_of(now))
        except (GitHubRefused, NeedsOperator):
            return None  # the sweep reports it

    def _budget_of(self, now: Instant) -> CallBudget:
        if self._minute != now.epoch_seconds // 60:
            self._minute, self._budget = now.epoch_seconds // 60, CallBudget(self._per_minute)
        return self._budget
