"""Seed 004, end to end in the simulated world."""

from collections import Counter

from holdfast.cluster.policy import Choices, Policy
from holdfast.cluster.state import UpPhase
from holdfast.ports.machines import Market
from holdfast.simulator.world.k3s import Workload
from tests.simulation.harness import StageMaker


def test_pending_pods_and_high_cpu_launch_machines_that_join_and_run_them(stage_of: StageMaker) -> None:
    """The whole way: rules, plan, launch, join, acceptance, cooldown."""
    stage = stage_of()
    stage.world.k3s.run(Workload("web", 35))
    ticked = stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    assert len(stage.alive) == 4
    assert all(pod.node is not None for pod in stage.world.k3s.pods())
    kinds = [step.kind for one in ticked for step in one.done]
    assert kinds == [
        "begin_scale_up",
        "launch_slot",
        "launch_slot",
        "enter_phase",
        "accept_node",
        "accept_node",
        "complete_scale_up",
    ]
    assert not stage.state.is_flagged
    assert stage.state.up is None


def test_nothing_is_launched_while_one_of_the_seeds_conditions_fails(stage_of: StageMaker) -> None:
    """High CPU without pending pods; pending pods without high CPU; both, but not for long enough."""
    busy = stage_of()
    busy.world.k3s.run(Workload("web", 20))
    for _ in range(10):
        busy.tick()
    assert len(busy.alive) == 2
    stage = stage_of()
    stage.world.k3s.run(Workload("web", 25))
    stage.tick()
    stage.tick()
    assert len(stage.alive) == 2
    assert stage.state.timers.pending_since is not None


def test_machines_go_to_the_emptiest_zone_spot_first(stage_of: StageMaker) -> None:
    stage = stage_of(policy=Policy(max_batch_up=4), workers=2)
    stage.world.k3s.run(Workload("web", 60))
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    zones = Counter(machine.zone for machine in stage.alive)
    assert sorted(zones.values()) == [2, 2, 2]
    launched = [order.market for order, _ in stage.world.ec2.launches if not order.token.startswith("early-")]
    assert launched == [Market.SPOT] * 4


def test_without_spot_capacity_it_falls_back_to_on_demand_and_remembers(stage_of: StageMaker) -> None:
    stage = stage_of(choices=Choices(instance_types=("t3.medium",)))
    for subnet in stage.world.subnets:
        stage.world.ec2.run_out("t3.medium", subnet.zone, Market.SPOT)
    stage.world.k3s.run(Workload("web", 25))
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    assert stage.alive[-1].market is Market.ON_DEMAND
    assert len(stage.alive) == 3


def test_machines_that_never_join_are_terminated_and_the_action_fails_without_a_cooldown(stage_of: StageMaker) -> None:
    stage = stage_of()
    stage.world.joins = False
    stage.world.k3s.run(Workload("web", 25))
    stage.tick_until(lambda: stage.state.up_failures > 0)
    assert len(stage.alive) == 2
    assert stage.state.last_scale.epoch_ms == 0
    assert stage.state.up is None


def test_below_the_minimum_machines_are_launched_whatever_cpu_says(stage_of: StageMaker) -> None:
    stage = stage_of(workers=0)
    stage.tick()
    assert stage.state.up is not None
    assert stage.state.up.phase is UpPhase.VERIFYING
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    assert len(stage.alive) == 2
