"""Reads a run together with its jobs: the one place that knows how both are stored."""

from holdfast.jobs.model.keys import JobKey, RunKey, job_key_of
from holdfast.jobs.model.run_jobs import run_of, with_states
from holdfast.kernel.ids import JobId
from holdfast.ports.store import Item, Query, Store, every_item
from holdfast.ports.store.tables import JOBS, RUNS


def registered_run(store: Store, key: RunKey, *, consistent: bool = True) -> Item | None:
    """The run with the ids of its `jobs` and their gates, in one query; None if nothing of it is known."""
    return run_of(every_item(store, Query(RUNS, key.partition, consistent=consistent)))


def run_with_jobs(store: Store, key: RunKey) -> Item | None:
    """The run with its `open`, `done` and `failed` jobs.

    The jobs are read after the list of them: one that is added in between is missing, as if this were a moment earlier.
    The index by run also finds a job whose process died before it could list it, if nothing was delivered again.
    """
    run = registered_run(store, key)
    indexed = (job_key_of(entry["PK"]).job_id for entry in every_item(store, Query(JOBS, key.partition, index="GSI3")))
    numbers = sorted({*indexed, *map(JobId, (run or {}).get("jobs", ()))})
    if run is None and not numbers:
        return None
    keys = [JobKey(key.installation_id, number).item for number in numbers]
    jobs = store.batch_get(JOBS, keys, consistent=True) if keys else []
    return with_states(run or RUNS.key_item(key.item), dict(zip(numbers, jobs, strict=True)))
