"""Metrics of the migration from S3, for both sides. Absent without a migration.

Hit rate: reads of `store` with `hit`, divided by those plus reads of `s3` with `fallback` or `stood_in`.
"""

from prometheus_client import CollectorRegistry, Histogram

from holdfast.jobs.migration.counts import StorageCall

# From a DynamoDB read to an S3 call that timed out.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class MigrationMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "holdfast_migration_call_seconds",
            "Duration of reads and writes of the tables and of S3.",
            ("call", "side", "outcome"),
            buckets=_SECONDS,
            registry=registry,
        )

    def record(self, call: StorageCall) -> None:
        self._seconds.labels(call.call, call.side, call.outcome).observe(call.seconds)
