"""The figures of the way over from S3: both sides beside each other. Absent where nothing is migrated.

Hit rate: reads by `store` with `hit`, of those and reads by `s3` with `fallback` or `stood_in`.
"""

from prometheus_client import CollectorRegistry, Histogram

from holdfast.jobs.migration.counts import Told

# From a DynamoDB read to an S3 call that used up its time.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class MigrationMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "holdfast_migration_call_seconds",
            "How long reads and writes of the tables and of S3 took; _count is their number.",
            ("call", "side", "outcome"),
            buckets=_SECONDS,
            registry=registry,
        )

    def told(self, told: Told) -> None:
        self._seconds.labels(told.call, told.side, told.outcome).observe(told.seconds)
