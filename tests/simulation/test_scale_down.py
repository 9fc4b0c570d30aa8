"""Seed 003, as told by the simulated world."""

from holdfast.simulator.k3s import Workload
from holdfast.simulator.world import ZONES
from tests.simulation.conftest import StageMaker


def test_an_idle_cluster_gives_one_worker_back_at_a_time(stage_of: StageMaker) -> None:
    """The whole way: rules, plan, cordon, eviction, commit, termination, cooldown."""
    stage = stage_of(workers=5)
    stage.world.k3s.run(Workload("web", 6))
    ticked = stage.tick_until(lambda: len(stage.alive) == 3, most=90)
    kinds = [step.kind for one in ticked for step in one.done]
    assert kinds.count("begin_scale_down") == 2
    assert kinds.count("terminate_target") == 2
    stage.tick_until(lambda: not stage.state.is_acting)
    assert sum(1 for pod in stage.world.k3s.pods() if pod.node) == 6
    for _ in range(30):
        stage.tick()
    # Two would be enough, but no zone is emptied while there are several.
    assert sorted(machine.zone for machine in stage.alive) == list(ZONES)


def test_a_drain_that_a_budget_blocks_is_given_up_and_the_node_is_opened_again(stage_of: StageMaker) -> None:
    stage = stage_of(workers=4)
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    stage.tick_until(lambda: stage.state.down is not None)
    stage.tick_until(lambda: stage.state.down is None)
    assert len(stage.alive) == 4
    assert not any(node.is_unschedulable for node in stage.world.k3s.nodes())
    assert stage.state.last_scale.epoch_ms == 0
