"""Job metrics. An unknown value is NaN, never 0."""

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

_NAN: Final = float("nan")


class JobMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"holdfast_jobs_{name}", text, labels, registry=registry)

        self._stuck = gauge("stuck", "Stuck jobs; at most 100 per installation.")
        self._queue = gauge("queue_seconds", "Queue time of jobs in the last hour.", "percentile")
        self._cost = gauge("cost_usd_today", "Cost of jobs created since midnight UTC.")
        self.unknown()

    def record(self, stuck: int, queue_seconds: Mapping[str, float | None], cost_usd: float) -> None:
        self._stuck.set(stuck)
        for percentile, seconds in queue_seconds.items():
            self._queue.labels(percentile).set(_NAN if seconds is None else seconds)
        self._cost.set(cost_usd)

    def unknown(self) -> None:
        """The store did not answer, or has not been read yet."""
        self.record(0, {"50": None, "95": None, "99": None}, _NAN)
        self._stuck.set(_NAN)
