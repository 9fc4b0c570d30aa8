"""The declarations of all tables.

`holdfast tables` creates and checks them, and SQLite builds its schema from them. They have no stream, no point-in-time
recovery and no sharding.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final

from holdfast.ports.store.schema import Index, Projection, Table

STATE: Final = Table(
    name="k3s-autoscaler-state",
    setting="STATE_TABLE",
    purpose="one item per cluster: lease, action, timers; spot interruptions, pause, capacity memory beside it",
    partition="pk",
    ttl="expiresAt",
)

LOGS: Final = Table(
    name="k3s-autoscaler-logs",
    setting="LOGS_TABLE",
    purpose="decisions, drains, launches and spot events, 30 days",
    partition="pk",
    sort="sk",
    ttl="ttl",
)

JOBS: Final = Table(
    name="workflow_jobs",
    setting="JOBS_TABLE",
    purpose="the current state of each GitHub Actions job, 90 days",
    partition="PK",
    sort="SK",
    indexes=(
        # Projects what the views by status show, and what an ordinary job contributes to the figures, so that counting
        # does not read the jobs. DynamoDB projects at most 20 attributes. The other two project only keys, unless
        # JOBS_INDEX_PROJECTION says otherwise: a write costs as much as five reads.
        Index(
            name="GSI1",
            partition="GSI1-PK",
            sort="created_at",
            projection=Projection.INCLUDE,
            # The key of the second contains the repository.
            included=(
                "GSI2-PK",
                "attached_ms",
                "completed_at",
                "conclusion",
                "instance_id",
                "instance_lifecycle",
                "instance_type",
                "job_name",
                "pool_name",
                "region",
                "runner_name",
                "scheduled_at",
                "scheduling_attempt",
                "spot_price_usd_per_hour",
                "started_at",
                "terminated_ms",
                "ttl",
                "waiting_ms",
                "was_interrupted",
                "workflow_name",
            ),
        ),
        Index(name="GSI2", partition="GSI2-PK", sort="created_at", projection=Projection.KEYS_ONLY),
        Index(name="GSI3", partition="GSI3-PK", sort="created_at", projection=Projection.KEYS_ONLY),
    ),
    ttl="ttl",
)

JOB_EVENTS: Final = Table(
    name="workflow_job_events",
    setting="JOB_EVENTS_TABLE",
    purpose="every webhook and every step of a job, never changed, 14 days",
    partition="PK",
    sort="SK",
    ttl="ttl",
)

RUNS: Final = Table(
    name="workflow_runs",
    setting="RUNS_TABLE",
    purpose="workflow runs by attempt, with their job counters, 90 days",
    partition="PK",
    sort="SK",
    ttl="ttl",
)

DEPLOYMENTS: Final = Table(
    name="deployments",
    setting="DEPLOYMENTS_TABLE",
    purpose="deployments and their approval, 90 days",
    partition="PK",
    sort="SK",
    ttl="ttl",
)

TABLES: Final = (STATE, LOGS, JOBS, JOB_EVENTS, RUNS, DEPLOYMENTS)


class IndexProjection(StrEnum):
    """What the jobs' indexes by repository and by run contain beside the keys: nothing, or the status as well."""

    KEYS = "keys"
    STATUS = "status"


# As little as answers the seed's queries on the index alone. All of these change together with the status, or never.
_BY_PROJECTION: Final[Mapping[IndexProjection, Mapping[str, tuple[str, ...]]]] = {
    IndexProjection.KEYS: {"GSI2": (), "GSI3": ()},
    IndexProjection.STATUS: {
        "GSI2": ("completed_at", "conclusion", "started_at", "status", "ttl"),
        "GSI3": ("conclusion", "status", "ttl"),
    },
}


def projecting(tables: tuple[Table, ...], projection: IndexProjection) -> tuple[Table, ...]:
    """The same tables, with this projection of the jobs' indexes by repository and by run."""
    return tuple(_projecting(table, projection) if table.setting == JOBS.setting else table for table in tables)


def _projecting(table: Table, projection: IndexProjection) -> Table:
    included = _BY_PROJECTION[projection]
    indexes = (
        replace(
            index,
            projection=Projection.INCLUDE if included[index.name] else Projection.KEYS_ONLY,
            included=included[index.name],
        )
        if index.name in included
        else index
        for index in table.indexes
    )
    return replace(table, indexes=tuple(indexes))


def projection_of(index: Index) -> IndexProjection | None:
    """The setting that declares this index; None if both do, or neither."""
    found = [
        projection
        for projection, names in _BY_PROJECTION.items()
        if index.name in names and sorted(names[index.name]) == sorted(index.included)
    ]
    return found[0] if index.projection is not Projection.ALL and found else None


def renamed(tables: tuple[Table, ...], names: Mapping[str, str]) -> tuple[Table, ...]:
    """The same tables with their names from settings."""
    return tuple(replace(table, name=names.get(table.setting, table.name)) for table in tables)
