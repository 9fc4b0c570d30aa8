"""The final contents of the tracker's tables, for comparisons."""

from collections.abc import Iterable

from holdfast.adapters.embedded import EmbeddedStore
from holdfast.jobs.model.keys import DeploymentKey, JobKey, RunKey
from holdfast.ports.store import Item, Query, Store, Table, every_item
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, RUNS

# Depends on when and how often a delivery arrived, not on its contents.
_ARRIVAL = ("ttl", "received_at", "deliveries", "changes", "changes_lost", "received_by")

Tables = dict[str, list[Item]]


def tables(
    store: Store | EmbeddedStore, jobs: Iterable[JobKey], runs: Iterable[RunKey], waited: Iterable[DeploymentKey] = ()
) -> Tables:
    """The items of these jobs, runs and deployments, without what depends on arrival."""
    jobs = list(jobs)
    return {
        "jobs": _got(store, JOBS, [job.item.partition for job in jobs]),
        "events": [
            plain(item) for job in jobs for item in every_item(store, Query(JOB_EVENTS, job.partition, consistent=True))
        ],
        "runs": _got(store, RUNS, [run.item.partition for run in runs]),
        "deployments": _got(store, DEPLOYMENTS, [one.item.partition for one in waited]),
    }


def plain(item: Item) -> Item:
    return {name: value for name, value in item.items() if name not in _ARRIVAL}


def _got(store: Store, table: Table, partitions: list[str]) -> list[Item]:
    found = [every_item(store, Query(table, partition, consistent=True)) for partition in partitions]
    return [plain(item) for items in found for item in items]
