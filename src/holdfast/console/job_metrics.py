"""The jobs' figures at /metrics. What is unknown is NaN, never 0."""

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

_NAN: Final = float("nan")


class JobMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"holdfast_jobs_{name}", text, labels, registry=registry)

        self._stuck = gauge("stuck", "Jobs that are where they are for too long; at most 100 for an installation.")
        self._queue = gauge("queue_seconds", "How long jobs of the last hour waited for a runner.", "percentile")
        self._cost = gauge("cost_usd_today", "What the machines of jobs created since midnight UTC cost.")
        self.unknown()

    def told(self, stuck: int, queue_seconds: Mapping[str, float | None], cost_usd: float) -> None:
        self._stuck.set(stuck)
        for percentile, seconds in queue_seconds.items():
            self._queue.labels(percentile).set(_NAN if seconds is None else seconds)
        self._cost.set(cost_usd)

    def unknown(self) -> None:
        """The store did not answer, or was not asked yet."""
        self.told(0, {"50": None, "95": None, "99": None}, _NAN)
        self._stuck.set(_NAN)
