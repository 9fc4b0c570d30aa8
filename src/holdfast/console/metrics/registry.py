"""Metrics for Prometheus. Uses its own registry: other libraries may add to the global one."""

import platform

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from holdfast.console.metrics.cluster import ClusterMetrics
from holdfast.console.metrics.github import GitHubMetrics
from holdfast.console.metrics.jobs import JobMetrics
from holdfast.console.metrics.migration import MigrationMetrics
from holdfast.ports.store import Consumed

# From a SQLite read to a DynamoDB call that timed out.
_CALL_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_TAKEN = frozenset({"stored", "duplicate"})


class Metrics:
    content_type = CONTENT_TYPE_LATEST

    def __init__(self, version: str) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        Info("holdfast_build", "Version information.", registry=self._registry).info(
            {"version": version, "python": platform.python_version()}
        )
        self.cluster = ClusterMetrics(self._registry)
        self.jobs = JobMetrics(self._registry)
        self.migration = MigrationMetrics(self._registry)
        self.github = GitHubMetrics(self._registry)
        by_call = ("table", "call")
        self._seconds = Histogram(
            "holdfast_store_call_seconds",
            "Duration of store calls, including retries.",
            (*by_call, "outcome"),
            buckets=_CALL_SECONDS,
            registry=self._registry,
        )
        self._read_units = Counter(
            "holdfast_store_read_units", "Read units consumed by store calls.", by_call, registry=self._registry
        )
        self._write_units = Counter(
            "holdfast_store_write_units", "Write units consumed by store calls.", by_call, registry=self._registry
        )
        self._conflicts = Counter(
            "holdfast_store_conflicts", "Writes rejected by their condition.", by_call, registry=self._registry
        )

        self._consumed: dict[tuple[str, str], list[Counter]] = {}
        self._webhooks = Counter(
            "holdfast_webhooks",
            "Webhooks by event, HTTP status and result.",
            ("event", "status", "result"),
            registry=self._registry,
        )
        self._taken: dict[tuple[str, str, str], Counter] = {}

    def record_webhook(self, event: str, status: int, result: str) -> None:
        # An unverified sender can use any event name: only accepted events become a label.
        labels = (event if result in _TAKEN else "", str(status), result)
        counter = self._taken.get(labels)
        if counter is None:
            counter = self._taken[labels] = self._webhooks.labels(*labels)
        counter.inc()

    def record_consumed(self, consumed: Consumed) -> None:
        """Callback for the store."""
        labels = (consumed.table, consumed.call)
        counters = self._consumed.get(labels)
        if counters is None:
            # Cached: the lookup by labels takes longer than counting.
            kinds = (self._read_units, self._write_units, self._conflicts)
            counters = self._consumed[labels] = [kind.labels(*labels) for kind in kinds]
        if consumed.read_units:
            counters[0].inc(consumed.read_units)
        if consumed.write_units:
            counters[1].inc(consumed.write_units)
        if consumed.conflict:
            counters[2].inc()

    def record_call(self, table: str, call: str, outcome: str, seconds: float) -> None:
        self._seconds.labels(table, call, outcome).observe(seconds)

    def page(self) -> bytes:
        return generate_latest(self._registry)
