"""The figures of what is asked of GitHub. Absent where GitHub is not asked."""

from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge


class Swept(Protocol):
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
            "holdfast_github_calls", "Calls to GitHub, by status; 0 is no answer.", ("status",), registry=registry
        )
        self._left = Gauge(
            "holdfast_github_calls_left",
            "How many calls GitHub's limit leaves for this hour, by whose limit it is.",
            ("scope",),
            registry=registry,
        )
        self._redelivered = Counter(
            "holdfast_github_redelivered", "Deliveries that failed and were asked for again.", registry=registry
        )
        self._runs = Counter("holdfast_github_runs_asked", "Runs under way that were asked about.", registry=registry)
        self._found = Counter(
            "holdfast_github_jobs_found", "Jobs that were otherwise than known: a webhook was lost.", registry=registry
        )
        self._retried = Counter("holdfast_github_runs_retried", "Runs that were run again.", registry=registry)
        self._problems = Counter(
            "holdfast_github_sweep_problems", "What a sweep could not do; the log has the words.", registry=registry
        )

    def called(self, scope: str, status: int, left: int | None) -> None:
        self._calls.labels(str(status)).inc()
        if left is not None:
            self._left.labels(scope).set(left)

    def swept(self, swept: Swept) -> None:
        self._redelivered.inc(swept.redelivered)
        self._runs.inc(swept.runs_asked)
        self._found.inc(swept.jobs_found)
        self._retried.inc(len(swept.runs_retried))
        self._problems.inc(len(swept.problems))
