"""Seed 001, the lock: which process may act, for how long, and what happens when it dies."""

import pytest

from holdfast.cluster.state import ClusterState, Timers, cluster_ledger
from holdfast.control.lease import LEASE_SECONDS, LeaseHeld, acquire, release, renewed
from holdfast.control.ledger import LeaseLost, Ledger
from holdfast.kernel.ids import ClusterId
from holdfast.ports.store import Key, set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.k3s import Workload
from tests.simulation.harness import Stage, StageMaker
from tests.simulation.hooks import before, raising


def ledger_of(stage: Stage) -> Ledger[ClusterState]:
    return cluster_ledger(stage.store, ClusterId("cluster"))


def test_the_table_and_its_key_are_the_seeds() -> None:
    assert STATE.name == "k3s-autoscaler-state"
    assert (STATE.partition, STATE.sort) == ("pk", None)


def test_the_lock_names_its_owner_and_its_end(stage_of: StageMaker) -> None:
    stage = stage_of()
    acquire(ledger_of(stage), "request-1", stage.clock.now())
    assert stage.item["lockOwner"] == "request-1"
    assert stage.item["lockUntilEpoch"] == stage.clock.now().plus(LEASE_SECONDS).epoch_seconds


@pytest.mark.parametrize(
    "item",
    [{}, {"scalingInProgress": False}, {"lockOwner": "", "lockUntilEpoch": 0}, {"lockOwner": "x", "lockUntilEpoch": 5}],
    ids=["no item", "not scaling", "given back", "expired"],
)
def test_a_free_or_expired_lock_can_be_acquired(stage_of: StageMaker, item: dict[str, object]) -> None:
    stage = stage_of()
    if item:
        stage.store.update(STATE, Key("cluster"), set_all(item))
    lease, _ = acquire(ledger_of(stage), "request-1", stage.clock.now())
    assert lease.fence == 1


def test_other_processes_stand_by_while_a_lock_is_held_and_say_for_how_long(stage_of: StageMaker) -> None:
    stage = stage_of()
    acquire(ledger_of(stage), "request-1", stage.clock.now())
    stage.clock.sleep(30)
    with pytest.raises(LeaseHeld, match="held by request-1 for 60 s more"):
        acquire(ledger_of(stage), "request-2", stage.clock.now())


def test_a_dead_holders_lock_expires_and_the_next_process_recovers(stage_of: StageMaker) -> None:
    stage = stage_of()
    stage.world.k3s.run(Workload("web", 35))
    stage.tick()
    stage.tick()
    assert stage.tick(gate=before("launch", raising(Killed()))) is None
    assert stage.item["lockOwner"] != ""
    assert stage.tick() is None, "its holder may still be at work"
    assert stage.tick() is not None
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    assert len(stage.alive) == 4


def test_a_waiting_action_holds_no_lock(stage_of: StageMaker) -> None:
    """The seed has one flag for both: here a lock lasts seconds, and an action minutes."""
    stage = stage_of()
    stage.world.k3s.run(Workload("web", 35))
    stage.tick_until(lambda: stage.state.up is not None)
    assert stage.item["scalingInProgress"] is True
    assert (stage.item["lockOwner"], stage.item["lockUntilEpoch"]) == ("", 0)


def test_a_lock_is_released_only_by_its_owner(stage_of: StageMaker) -> None:
    """The first owner does not release a lock that expired and was acquired by another."""
    stage = stage_of()
    ledger = ledger_of(stage)
    first, _ = acquire(ledger, "request-1", stage.clock.now())
    stage.clock.sleep(LEASE_SECONDS + 10)
    acquire(ledger, "request-2", stage.clock.now())
    with pytest.raises(LeaseLost):
        release(ledger, first, Timers().stored(), stage.clock.now())
    with pytest.raises(LeaseLost):
        renewed(ledger, first, stage.clock.now())
    assert stage.item["lockOwner"] == "request-2"


def test_a_lock_is_renewed_while_its_holder_works(stage_of: StageMaker) -> None:
    stage = stage_of()
    stage.world.k3s.run(Workload("web", 35))
    stage.tick()
    stage.tick()
    ends: list[int] = []

    def slowly() -> None:
        ends.append(stage.item["lockUntilEpoch"])
        stage.clock.sleep(45)

    assert stage.tick(gate=before("launch", slowly)) is not None
    assert len(ends) == 2
    assert ends[1] > ends[0]


def test_a_scale_up_has_two_phases_launch_and_verify(stage_of: StageMaker) -> None:
    stage = stage_of()
    stage.world.k3s.run(Workload("web", 35))
    stage.tick_until(lambda: stage.state.up is not None)
    assert len(stage.item["scaleUpInstanceIds"]) == 2
    assert stage.item["scaleUpPhase"] == "VERIFYING"
    ticked = stage.tick_until(lambda: not stage.state.is_acting)
    assert [step.kind for step in ticked[-1].done][-1] == "complete_scale_up"
