"""The cost of tracking a job in DynamoDB's units, including index writes.

The jobs are on DynamoDB Local, which reports the units, and live the whole life that GitHub's App sends: the run's
three webhooks, which its jobs share, the job's own, its machine's three events, and with a deployment also the gate's
webhooks, its review and a second queued. Sizes are those with every attribute stored; runs have 1, 20 and 256 jobs.
The reference is the original design, implemented literally, without the webhooks of run and gate and the machine's end.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Final

from bench.contenders.dynamodb import client_of
from bench.harness.figures import Figure, Goal, value_at_most
from bench.harness.run import Run
from holdfast.adapters.dynamodb.boto3_transport import Boto3Transport
from holdfast.adapters.dynamodb.calls import DynamoCalls
from holdfast.adapters.dynamodb.store import DynamoStore
from holdfast.adapters.dynamodb.tables import DynamoTables
from holdfast.adapters.system_clock import SystemClock
from holdfast.jobs.cost.tracker_units import SIZES_BYTES, JobShape, Measured, measured
from holdfast.ports.store.admin import CreateTable
from holdfast.ports.store.tables import TABLES
from tests.servers import dynamodb_local

RUNS: Final = (1, 20, 256)
QUICK_RUNS: Final = (1,)
# The seed's plan with counters and deployments, for a job of 1.3 KB: measured when the layout was designed.
SEEDS_PLAN: Final = {False: 45.6, True: 54.6}
# Decision 33 says why a run of one job has none, and why a deployment's are not 30. A test holds every shape.
# Two units are for the figures: the index by status also changes with the start and the end of the machine.
GOALS: Final = {
    (1331, False, 20): 26 + 2,
    (1331, False, 256): 26 + 2,
    (1331, True, 20): 43.5 + 2,
    (1331, True, 256): 43.5 + 2,
}


def measure(run: Run) -> list[Figure]:
    return list(_figures(run))


def _figures(run: Run) -> Iterator[Figure]:
    run.progress.step("starting DynamoDB Local")
    try:
        server = dynamodb_local.start(run.directory)
    except dynamodb_local.Unavailable as reason:
        run.note(f"Everything is left out: {reason}")
        return
    with ExitStack() as opened:
        opened.callback(server.stop)
        client = client_of(server.url)
        opened.enter_context(closing(client))
        for size_bytes in SIZES_BYTES:
            for has_deployment in (False, True):
                for jobs in QUICK_RUNS if run.quick else RUNS:
                    shape = JobShape(size_bytes, jobs, has_deployment)
                    run.progress.step(_name(shape))
                    yield _figure(_measured(client, shape))


def _measured(client: object, shape: JobShape) -> Measured:
    """On its own tables, which are removed afterwards."""
    clock = SystemClock()
    calls = DynamoCalls(Boto3Transport(client), clock)
    names = {table.setting: f"{table.name}-bench" for table in TABLES}
    for table in TABLES:
        DynamoTables(calls, names).carry_out(CreateTable(table))
    try:
        return measured(lambda meter: DynamoStore(calls, names).metered(meter), clock, shape)
    finally:
        for name in names.values():
            calls.call("DeleteTable", {"TableName": name})


def _figure(found: Measured) -> Figure:
    shape = found.shape
    limit = GOALS.get((shape.size_bytes, shape.has_deployment, shape.jobs))
    goal: Goal | None = value_at_most(limit) if limit is not None else None
    reference = SEEDS_PLAN[shape.has_deployment] if shape.size_bytes == 1331 else None
    return Figure(_name(shape), found.total, "units", reference, goal)


def _name(shape: JobShape) -> str:
    with_deployment = " with a deployment" if shape.has_deployment else ""
    runs = "a run of its own" if shape.jobs == 1 else f"a run of {shape.jobs}"
    return f"a job of {shape.size_bytes / 1024:.1f} KB{with_deployment}, in {runs}"
