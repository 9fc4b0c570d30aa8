"""GitHub's REST API, as far as `holdfast.ports.github` needs it.

Repeated requests carry an ETag: a response of "not modified" does not count against the rate limit. Ids and times are
validated here; text is kept as received.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from holdfast.adapters.github.calls import GitHubCalls, NotSignedIn
from holdfast.adapters.github.identity import Identity
from holdfast.adapters.http_calls import HttpAnswer
from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.ids import InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.github import (
    DeliveryPage,
    DeliveryRecord,
    GitHubRefused,
    GitHubUnavailable,
    JobSeen,
    RepositorySeen,
    RunSeen,
)

T = TypeVar("T")

_PAGE: Final = 100
_PENDING_MOST: Final = 1000
_KEPT_MOST: Final = 256
_ETAG: Final = re.compile(r'(W/)?"[!#-~]{1,200}"')
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
# Not found, gone, or unavailable for legal reasons.
_GONE: Final = frozenset({404, 410, 451})

_Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Attempt = Annotated[int, Meta(ge=1, le=1_000_000)]


class _Delivery(msgspec.Struct):
    id: _Id
    guid: str
    delivered_at: str
    redelivery: bool = False
    status_code: Annotated[int, Meta(ge=0, le=999)] | None = None
    event: str = ""


class _RunBody(msgspec.Struct):
    id: _Id
    updated_at: str
    run_attempt: _Attempt = 1
    status: str | None = None
    conclusion: str | None = None
    created_at: str | None = None


class _Runs(msgspec.Struct):
    workflow_runs: Annotated[list[_RunBody], Meta(max_length=_PAGE)]


class _Repository(msgspec.Struct):
    full_name: str
    archived: bool = False
    disabled: bool = False


class _Repositories(msgspec.Struct):
    repositories: Annotated[list[_Repository], Meta(max_length=_PAGE)]


class _Job(msgspec.Struct):
    id: _Id
    run_id: _Id
    status: str
    run_attempt: _Attempt = 1
    conclusion: str | None = None
    name: str | None = None
    workflow_name: str | None = None
    head_sha: str | None = None
    head_branch: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    labels: list[str] | None = None
    runner_id: _Id | None = None
    runner_name: str | None = None
    runner_group_id: _Id | None = None


class _Jobs(msgspec.Struct):
    jobs: Annotated[list[_Job], Meta(max_length=_PAGE)]


class _Environment(msgspec.Struct):
    name: str


class _Reviewer(msgspec.Struct):
    """A user has a login, a team a slug."""

    login: str | None = None
    slug: str | None = None


class _Reviewing(msgspec.Struct):
    reviewer: _Reviewer | None = None


class _Pending(msgspec.Struct):
    environment: _Environment
    wait_timer: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    wait_timer_started_at: str | None = None
    reviewers: Annotated[list[_Reviewing], Meta(max_length=_PAGE)] | None = None


_AllPending = Annotated[list[_Pending], Meta(max_length=_PENDING_MOST)]


@dataclass(frozen=True, slots=True)
class PendingDeployment:
    """An environment that a run waits for: for an approval, or for a timer."""

    environment: str
    wait_minutes: int
    wait_began_at: str | None
    reviewers: Sequence[str]


_Deliveries = Annotated[list[_Delivery], Meta(max_length=_PAGE)]


class GitHubApi:
    """Implements `holdfast.ports.github.GitHub`. Thread-safe."""

    def __init__(self, calls: GitHubCalls, identity: Identity) -> None:
        self._calls = calls
        self._identity = identity
        self._kept: OrderedDict[tuple[InstallationId | None, str], tuple[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def deliveries(self, cursor: str | None = None) -> DeliveryPage:
        # No ETag: the log always changes.
        path = f"/app/hook/deliveries?per_page={_PAGE}" + (f"&cursor={cursor}" if cursor else "")
        answer = self._asked(None, "GET", path)
        found: list[_Delivery] = self._calls.decoded(answer.body, _Deliveries)
        records = [
            DeliveryRecord(d.id, d.guid, self._instant(d.delivered_at), d.redelivery, d.status_code or 0, d.event)
            for d in found
        ]
        return DeliveryPage(records, self._calls.next_cursor(answer))

    def redeliver(self, delivery_id: int) -> None:
        self._asked(None, "POST", f"/app/hook/deliveries/{int(delivery_id)}/attempts")

    def run(self, installation: InstallationId, repository: str, run_id: RunId) -> RunSeen | None:
        try:
            run = self._got(installation, _run_path(repository, run_id), _RunBody)
        except GitHubRefused as error:
            if error.status in _GONE:
                return None
            raise
        if run.id != run_id:
            raise GitHubUnavailable(f"{self._calls}: requested run {run_id}, but received run {run.id}")
        return self._run_seen(run)

    def repositories(self, installation: InstallationId, page: int = 1) -> Sequence[RepositorySeen]:
        path = f"/installation/repositories?per_page={_PAGE}&page={int(page)}"
        found = self._got(installation, path, _Repositories).repositories
        return [RepositorySeen(each.full_name, not (each.archived or each.disabled)) for each in found]

    def runs_of_repository(
        self, installation: InstallationId, repository: str, status: str | None = None, page: int = 1
    ) -> Sequence[RunSeen]:
        path = f"{_runs_path(repository)}?per_page={_PAGE}&page={int(page)}&exclude_pull_requests=true"
        try:
            runs = self._got(installation, path + (f"&status={status}" if status else ""), _Runs).workflow_runs
        except GitHubRefused as error:
            if error.status in _GONE:
                return []
            raise
        return [self._run_seen(run) for run in runs]

    def jobs_of_run(
        self, installation: InstallationId, repository: str, run_id: RunId, run_attempt: int, page: int = 1
    ) -> Sequence[JobSeen]:
        try:
            path = f"{_run_path(repository, run_id)}/attempts/{int(run_attempt)}/jobs?per_page={_PAGE}&page={int(page)}"
            jobs = self._got(installation, path, _Jobs).jobs
        except GitHubRefused as error:
            if error.status in _GONE:
                return []
            raise
        if any(job.run_id != run_id for job in jobs):
            raise GitHubUnavailable(f"{self._calls}: requested the jobs of run {run_id}, but received another run's")
        return [_seen(job) for job in jobs]

    def pending_deployments(
        self, installation: InstallationId, repository: str, run_id: RunId
    ) -> Sequence[PendingDeployment]:
        """What the run's latest attempt waits for; empty if GitHub does not know the run."""
        try:
            path = f"{_run_path(repository, run_id)}/pending_deployments"
            found: list[_Pending] = self._got(installation, path, _AllPending)
        except GitHubRefused as error:
            if error.status in _GONE:
                return []
            raise
        return [_pending(each) for each in found]

    def rerun_failed_jobs(self, installation: InstallationId, repository: str, run_id: RunId) -> None:
        self._asked(installation, "POST", f"{_run_path(repository, run_id)}/rerun-failed-jobs")

    def _got(self, installation: InstallationId, path: str, kind: type[T]) -> T:
        """The object at the path; the known one if GitHub says that it has not changed."""
        key = (installation, path)
        with self._lock:
            etag, known = self._kept.get(key, ("", None))
        answer = self._asked(installation, "GET", path, etag)
        if answer.status == 304:
            if not etag:
                raise GitHubUnavailable(f"{self._calls}: answered 304 to a request without an ETag")
            found: T = known
            return found
        found = self._calls.decoded(answer.body, kind)
        new_etag = answer.headers.get("etag", "")
        with self._lock:
            self._kept.pop(key, None)
            if _ETAG.fullmatch(new_etag):
                self._kept[key] = (new_etag, found)
                if len(self._kept) > _KEPT_MOST:
                    self._kept.popitem(last=False)
        return found

    def _asked(self, who: InstallationId | None, method: str, path: str, etag: str = "") -> HttpAnswer:
        """Send an authenticated request; once more with a new token if the token is refused."""
        scope = "the App" if who is None else f"installation {who}"
        try:
            return self._calls.send(method, path, self._identity.bearer(who), scope, etag)
        except NotSignedIn:
            self._identity.forget(who)
        try:
            return self._calls.send(method, path, self._identity.bearer(who), scope, etag)
        except NotSignedIn as error:
            raise NeedsOperator(
                f"{self._calls}: authentication failed (401: {error or 'no reason given'}); check that the key belongs "
                "to GITHUB_APP_ID, or that the token is still valid"
            ) from error

    def _run_seen(self, run: _RunBody) -> RunSeen:
        updated = self._instant(run.updated_at)
        created = self._instant(run.created_at) if run.created_at else None
        return RunSeen(RunId(run.id), run.run_attempt, run.status or "queued", run.conclusion, updated, created)

    def _instant(self, text: str) -> Instant:
        try:
            return Instant.from_iso(text)
        except (ValueError, OverflowError) as error:
            raise GitHubUnavailable(f"{self._calls}: {cut(text)!r} is not a time") from error


def _run_path(repository: str, run_id: RunId) -> str:
    return f"{_runs_path(repository)}/{int(run_id)}"


def _runs_path(repository: str) -> str:
    # The name is from a webhook: it must not change the path.
    if not _REPOSITORY.fullmatch(repository) or not {".", ".."}.isdisjoint(repository.split("/")):
        raise GitHubRefused(f"{cut(repository)!r} is not the name of a repository; nothing was sent", 404)
    return f"/repos/{repository}/actions/runs"


def _pending(found: _Pending) -> PendingDeployment:
    reviewers = [each.reviewer for each in found.reviewers or () if each.reviewer is not None]
    names = [name for name in (reviewer.login or reviewer.slug for reviewer in reviewers) if name]
    return PendingDeployment(found.environment.name, found.wait_timer or 0, found.wait_timer_started_at, names)


def _seen(job: _Job) -> JobSeen:
    fields = msgspec.structs.asdict(job)
    return JobSeen(**{**fields, "id": JobId(job.id), "run_id": RunId(job.run_id), "labels": tuple(job.labels or ())})
