"""GitHub's API, as far as it is used: the log of deliveries, runs and their jobs, and re-running failed jobs.

Everything else arrives by webhook. Each call counts against a rate limit, so callers have a budget. URLs in webhooks
are never followed: calls name only installations, repositories and ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.kernel.errors import HoldfastError, Retryable
from holdfast.kernel.ids import InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant


class GitHubUnavailable(Retryable):
    """No response, or a failure of GitHub. The request may or may not have been executed."""


class RateLimited(Retryable):
    """Nothing was done; retry at `until`."""

    def __init__(self, message: str, until: Instant) -> None:
        super().__init__(message)
        self.until = until


class GitHubRefused(HoldfastError):
    """A permanent refusal: nothing was done, and a retry would be refused again."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """One attempt to deliver a webhook. A redelivery has another id and the same guid."""

    id: int
    guid: str
    delivered_at: Instant
    is_redelivery: bool
    status_code: int  # our response; 0: none
    event: str

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Newest first. Without a cursor, there is nothing older."""

    records: Sequence[DeliveryRecord]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class RunSeen:
    """The latest attempt of a run."""

    run_id: RunId
    run_attempt: int
    status: str
    conclusion: str | None
    updated_at: Instant
    created_at: Instant | None = None


@dataclass(frozen=True, slots=True)
class RepositorySeen:
    """A repository of an installation. `is_active`: neither archived nor disabled, so that it may have runs."""

    name: str
    is_active: bool = True


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A job from the API; times are GitHub's text."""

    id: JobId
    run_id: RunId
    run_attempt: int
    status: str
    conclusion: str | None = None
    name: str | None = None
    workflow_name: str | None = None
    head_sha: str | None = None
    head_branch: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    labels: Sequence[str] = ()
    runner_id: int | None = None
    runner_name: str | None = None
    runner_group_id: int | None = None


class GitHub(Protocol):
    def deliveries(self, cursor: str | None = None) -> DeliveryPage:
        """The App's log of deliveries of the last three days, up to 100 per page."""
        ...

    def redeliver(self, delivery_id: int) -> None:
        """Request one more attempt. Calling it twice gives two attempts, which is harmless."""
        ...

    def run(self, installation: InstallationId, repository: str, run_id: RunId) -> RunSeen | None:
        """The run, or None if GitHub does not know it."""
        ...

    def repositories(self, installation: InstallationId, page: int = 1) -> Sequence[RepositorySeen]:
        """The repositories of an installation, up to 100 per page; an empty page is past the end."""
        ...

    def runs_of_repository(
        self, installation: InstallationId, repository: str, status: str | None = None, page: int = 1
    ) -> Sequence[RunSeen]:
        """Runs, newest first, up to 100 per page; none if GitHub does not know the repository."""
        ...

    def jobs_of_run(
        self, installation: InstallationId, repository: str, run_id: RunId, run_attempt: int, page: int = 1
    ) -> Sequence[JobSeen]:
        """The jobs of one attempt, up to 100 per page; an empty page is past the end."""
        ...

    def rerun_failed_jobs(self, installation: InstallationId, repository: str, run_id: RunId) -> None:
        """Start the next attempt, with the failed jobs. Refused while an attempt is in progress."""
        ...
