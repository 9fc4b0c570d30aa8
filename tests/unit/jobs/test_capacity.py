"""What tracking a job costs: no more than the budget, and no more than before."""

from collections.abc import Iterator
from itertools import count

import pytest

from holdfast.adapters.dynamodb.calls import DynamoCalls
from holdfast.adapters.dynamodb.store import DynamoStore
from holdfast.adapters.dynamodb.tables import DynamoTables
from holdfast.adapters.memory import memory_store
from holdfast.jobs.cost.tracker_units import JobShape, Measured, OpenStore, measured, rows
from holdfast.ports.store.admin import CreateTable
from holdfast.ports.store.tables import TABLES, IndexProjection, projecting
from tests.clocks import StillClock
from tests.contracts import backends
from tests.servers.processes import RunningServer

# Two of them are for the figures: the index by status also changes with the start and the end of the machine.
NORMAL_MOST = 26 + 2
WITH_DEPLOYMENT_MOST = 43.5 + 2
# Size in bytes, with a deployment, jobs in the run: units per job. Must not grow.
UNITS = {
    (1126, False, 1): 28,
    (1126, False, 20): 25.15,
    (1126, False, 256): 25.012,
    (1126, True, 1): 45.5,
    (1126, True, 20): 42.2,
    (1126, True, 256): 42.045,
    (1331, False, 1): 30,
    (1331, False, 20): 27.15,
    (1331, False, 256): 27.012,
    (1331, True, 1): 48.5,
    (1331, True, 20): 45.2,
    (1331, True, 256): 45.045,
    (2150, False, 1): 34,
    (2150, False, 20): 31.15,
    (2150, False, 256): 31.012,
    (2150, True, 1): 56.5,
    (2150, True, 20): 53.2,
    (2150, True, 256): 53.045,
}
# With a deployment, units with keys, units with status: of a job of 1.3 KB in a run of 20.
PROJECTED = ((False, 27.15, 33.15), (True, 45.2, 55.2))
_NUMBERS = count(1)


@pytest.fixture(params=["memory", pytest.param("dynamodb", marks=pytest.mark.real)])
def open_store(request: pytest.FixtureRequest) -> Iterator[OpenStore]:
    clock = StillClock()
    if request.param == "memory":
        yield lambda meter: memory_store(clock, meter)
        return
    server: RunningServer = request.getfixturevalue("dynamodb_server")
    transport = backends.dynamodb_calls(server.url, clock).transport
    calls = DynamoCalls(transport, clock)
    names = {table.setting: f"{table.name}-capacity-{next(_NUMBERS)}" for table in TABLES}
    for table in TABLES:
        DynamoTables(calls, names).carry_out(CreateTable(table))
    yield lambda meter: DynamoStore(calls, names).metered(meter)
    for name in names.values():
        calls.call("DeleteTable", {"TableName": name})
    transport.close()


def on_memory(shape: JobShape) -> Measured:
    clock = StillClock()
    return measured(lambda meter: memory_store(clock, meter), clock, shape)


@pytest.mark.parametrize(("has_deployment", "most"), [(False, NORMAL_MOST), (True, WITH_DEPLOYMENT_MOST)])
def test_a_job_of_1_3_kb_stays_within_its_budget(open_store: OpenStore, has_deployment: bool, most: float) -> None:
    """As reported by DynamoDB Local; memory must calculate the same."""
    found = measured(open_store, StillClock(), JobShape(1331, 20, has_deployment))
    assert found.total <= most
    assert found.total == pytest.approx(on_memory(found.shape).total)


@pytest.mark.parametrize("case", UNITS)
def test_no_kind_of_job_costs_more_than_before(case: tuple[int, bool, int]) -> None:
    size_bytes, has_deployment, jobs = case
    assert on_memory(JobShape(size_bytes, jobs, has_deployment)).total <= UNITS[case] + 0.005


@pytest.mark.parametrize("projection", IndexProjection)
def test_a_projected_status_costs_what_the_decision_says(projection: IndexProjection) -> None:
    """Each change of the status then writes two more indexes: decision 32."""
    clock, tables = StillClock(), projecting(TABLES, projection)
    for has_deployment, keys, status in PROJECTED:
        shape = JobShape(1331, 20, has_deployment)
        found = measured(lambda meter: memory_store(clock, meter, tables), clock, shape)
        assert found.total == pytest.approx(keys if projection is IndexProjection.KEYS else status)


def test_the_cost_is_reported_by_step_and_by_table() -> None:
    [row] = rows([on_memory(JobShape(jobs=1))])
    assert row["by_step"] == {
        "run requested": 1,
        "queued": 7,
        "run in progress": 1,
        "scheduled": 4,
        "attached": 3,
        "in_progress": 4,
        "completed": 5,
        "terminated": 4,
        "run completed": 1,
    }
    assert row["by_table"] == {"workflow_jobs": 19, "workflow_job_events": 6, "workflow_runs": 5}
    assert row["stored_bytes"] < 1331
