"""Metrics of calls to GitHub and of sweeps. Absent without access to GitHub."""

from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge


class SweepFigures(Protocol):
    @property
    def redelivered(self) -> int: ...

    @property
    def runs_asked(self) -> int: ...

    @property
    def jobs_found(self) -> int: ...

    @property
    def runs_retried(self) -> list[str]: ...

    @property
    def problems(self) -> list[str]: ...


class GitHubMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "holdfast_github_calls",
            "Calls to GitHub by HTTP status; 0 means no response.",
            ("status",),
            registry=registry,
        )
        self._left = Gauge(
            "holdfast_github_calls_left",
            "Remaining calls in GitHub's hourly rate limit.",
            ("scope",),
            registry=registry,
        )
        self._redelivered = Counter(
            "holdfast_github_redelivered", "Failed deliveries that were requested again.", registry=registry
        )
        self._runs = Counter("holdfast_github_runs_asked", "Active runs that were polled.", registry=registry)
        self._found = Counter("holdfast_github_jobs_found", "Jobs corrected from missed webhooks.", registry=registry)
        self._retried = Counter(
            "holdfast_github_runs_retried", "Runs retried after a spot interruption.", registry=registry
        )
        self._problems = Counter(
            "holdfast_github_sweep_problems", "Problems during sweeps; see the log.", registry=registry
        )

    def called(self, scope: str, status: int, left: int | None) -> None:
        self._calls.labels(str(status)).inc()
        if left is not None:
            self._left.labels(scope).set(left)

    def swept(self, swept: SweepFigures) -> None:
        self._redelivered.inc(swept.redelivered)
        self._runs.inc(swept.runs_asked)
        self._found.inc(swept.jobs_found)
        self._retried.inc(len(swept.runs_retried))
        self._problems.inc(len(swept.problems))
