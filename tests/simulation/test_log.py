"""The decision log: what became of each tick, also of those that came to nothing."""

import pytest

from holdfast.cluster.lease import LeaseHeld
from holdfast.cluster.log import Entry, entries
from holdfast.cluster.observe import NoLook
from holdfast.cluster.tick import tick
from holdfast.kernel.errors import HoldfastError, StoreUnavailable, TableProblem
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import MachineError, Market
from holdfast.ports.store import Key, set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.gate import Gate, Moment, PortCall
from holdfast.simulator.k3s import Workload
from tests.simulation.conftest import StageMaker
from tests.simulation.harness import Stage

# Ahead of any clock that this is run by: DynamoDB Local removes what has expired by its own clock, not by the world's.
START = Instant.from_iso("2100-01-15T08:00:00Z")


def logged(stage: Stage) -> list[Entry]:
    return list(entries(stage.store, ClusterId("cluster"), START, stage.clock.now()))


def failing(port: str, method: str, error: HoldfastError) -> Gate:
    def hook(call: PortCall, moment: Moment) -> None:
        if (call.port, call.method, moment) == (port, method, Moment.BEFORE):
            raise error

    return Gate(hook)


def test_a_tick_that_stood_by_is_logged_once_for_five_minutes(stage_of: StageMaker) -> None:
    stage = stage_of(workers=0, start=START)
    until = stage.clock.now().plus(3000).epoch_seconds
    stage.store.update(STATE, Key("cluster"), set_all({"lockOwner": "other", "lockUntilEpoch": until}))
    for _ in range(4):
        assert stage.tick() is None
    (entry,) = logged(stage)
    assert (entry.kind, entry.ticks) == ("no-tick", 4)
    assert entry.stopped is not None
    assert "lease held by other" in entry.stopped
    for _ in range(3):
        stage.tick()
    assert [entry.ticks for entry in logged(stage)] == [4, 3]


def test_a_tick_that_could_not_look_is_logged_with_its_reason(stage_of: StageMaker) -> None:
    stage = stage_of(start=START)
    gate = failing("machines", "tagged", MachineError("RequestLimitExceeded", "slow down"))
    assert stage.tick(gate=gate) is None
    (entry,) = logged(stage)
    assert entry.stopped is not None
    assert "EC2 does not tell what machines there are: RequestLimitExceeded: slow down" in entry.stopped
    assert entry.shown()["ticks"] == 1


def test_different_reasons_are_told_apart() -> None:
    stage = Stage(workers=0, start=START)
    until = stage.clock.now().plus(3000).epoch_seconds
    stage.store.update(STATE, Key("cluster"), set_all({"lockOwner": "other", "lockUntilEpoch": until}))
    stage.tick(seconds=10)
    stage.tick(seconds=10, gate=failing("machines", "subnets", MachineError("InternalError", "oops")))
    assert sorted((entry.stopped or "")[:5] for entry in logged(stage)) == ["EC2 d", "lease"]


@pytest.mark.parametrize("why", [StoreUnavailable("no answer"), TableProblem("there is no LOGS_TABLE")])
def test_a_log_that_cannot_be_written_neither_fails_the_tick_nor_hides_its_error(why: HoldfastError) -> None:
    stage = Stage(start=START)
    stage.clock.sleep(60)
    assert tick(stage.cluster(failing("store", "put", why)), "a").stopped is None
    until = stage.clock.now().plus(3000).epoch_seconds
    stage.store.update(STATE, Key("cluster"), set_all({"lockOwner": "other", "lockUntilEpoch": until}))

    def hook(call: PortCall, moment: Moment) -> None:
        if call.port == "machines":
            raise MachineError("InternalError", "oops")
        if call.method == "update" and moment is Moment.BEFORE:
            raise why

    with pytest.raises(NoLook):
        tick(stage.cluster(Gate(hook)), "b")
    stage.world.k3s.run(Workload("web", 60))
    with pytest.raises(LeaseHeld):
        tick(stage.cluster(), "c")


def test_a_pod_that_stays_is_told_with_the_budget_that_holds_it(stage_of: StageMaker) -> None:
    stage = stage_of(workers=4, start=START)
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    stage.tick_until(lambda: any(entry.told for entry in logged(stage)))
    (told,) = next(entry.told for entry in logged(stage) if entry.told)
    assert told.startswith("pod default/db-")
    assert "The disruption budget db needs 4 healthy pods and has 4 currently" in told


def test_launches_and_refusals_are_told(stage_of: StageMaker) -> None:
    stage = stage_of(start=START)
    for subnet in stage.world.subnets:
        stage.world.ec2.run_out("t3.medium", subnet.zone, Market.SPOT)
    stage.world.k3s.run(Workload("web", 25))
    stage.tick_until(lambda: stage.state.up is not None)
    told = logged(stage)[-1].told
    assert told[0].startswith("no t3.medium in eu-west-1c, spot: InsufficientInstanceCapacity")
    assert told[-1] == f"launched {stage.alive[-1].id}: t3a.medium in eu-west-1c, spot"
