"""Seed 004, scale-up: everything but the rules (`unit/cluster/test_decide.py`) and the item (seed 000)."""

import pytest
from msgspec.structs import replace

from holdfast.cluster.policy import Policy
from holdfast.cluster.spot.notice import SpotKind
from holdfast.ports.machines import LaunchOrder, MachineError, Market
from holdfast.ports.store import Item
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.k3s import Workload
from tests.simulation.harness import TAGS, Stage, StageMaker
from tests.simulation.hooks import after, before, raising
from tests.simulation.scenarios import noted


def pressed(stage: Stage, pods: int = 35) -> Stage:
    stage.world.k3s.run(Workload("web", pods))
    return stage


def launched(stage: Stage) -> list[LaunchOrder]:
    return [order for order, _ in stage.world.ec2.launches if not order.token.startswith("early-")]


# Launching


def test_each_machine_is_launched_into_the_zone_that_is_emptiest_at_that_moment(stage_of: StageMaker) -> None:
    stage = pressed(stage_of(workers=4, policy=Policy(max_batch_up=5)), pods=90)
    # a: 2, b: 1, c: 1
    stage.tick_until(lambda: stage.state.up is not None)
    assert [order.zone[-1] for order in launched(stage)] == ["b", "c", "a", "b", "c"]


def test_machines_that_are_still_pending_count_for_their_zone(stage_of: StageMaker) -> None:
    stage = stage_of(workers=3)
    subnet = stage.world.subnets[0]
    order = LaunchOrder("by-hand", "lt-0:1", "t3.medium", Market.SPOT, subnet.id, subnet.zone, TAGS, "")
    stage.world.ec2.launch(order)
    pressed(stage, pods=45)
    stage.tick_until(lambda: stage.state.up is not None)
    assert subnet.zone not in [order.zone for order in launched(stage)[1:]]


def test_a_subnet_without_free_addresses_is_not_used(stage_of: StageMaker) -> None:
    stage = pressed(stage_of(workers=2))
    full = stage.world.subnets[2]
    stage.world.ec2._subnets[full.id] = replace(full, free_addresses=0)
    stage.tick_until(lambda: stage.state.up is not None)
    assert full.id not in [order.subnet_id for order in launched(stage)]


def test_spot_is_tried_first_then_on_demand_in_one_tick(stage_of: StageMaker) -> None:
    stage = pressed(stage_of(), pods=25)
    for subnet in stage.world.subnets:
        for instance_type in stage.choices.instance_types:
            stage.world.ec2.run_out(instance_type, subnet.zone, Market.SPOT)
    stage.tick_until(lambda: stage.state.up is not None)
    assert [order.market for order in launched(stage)] == [Market.ON_DEMAND]


def test_a_spot_attempt_and_its_fallback_have_different_tokens(stage_of: StageMaker) -> None:
    stage = pressed(stage_of(), pods=25)
    stage.world.ec2.run_out("t3.medium", "eu-west-1c", Market.SPOT)
    stage.tick_until(lambda: stage.state.up is not None)
    tokens = [token for token, _zone in stage.world.ec2._tokens if not token.startswith("early-")]
    assert len(tokens) == len(set(tokens)) == 2


def test_each_id_is_recorded_before_the_next_machine_is_launched(stage_of: StageMaker) -> None:
    """The seed records ids after all launches; a crash in between would lose machines."""
    stage = pressed(stage_of())
    items: list[Item] = []
    for _ in range(5):
        stage.tick(gate=before("launch", lambda: items.append(stage.item)))
    assert [len(item["scaleUpInstanceIds"]) for item in items] == [0, 1]


# Verification


def test_a_node_that_exists_and_is_not_ready_has_not_joined(stage_of: StageMaker) -> None:
    stage = pressed(stage_of())
    stage.tick_until(lambda: stage.state.up is not None)
    stage.clock.sleep(120)
    for node in stage.world.k3s.nodes():
        if node.taints:
            stage.world.k3s.put(replace(node, is_ready=False))
    stage.tick()
    assert stage.state.up is not None
    assert [node.taints != () for node in stage.world.k3s.nodes()].count(True) == 2
    for node in stage.world.k3s.nodes():
        stage.world.k3s.put(replace(node, is_ready=True))
    stage.tick_until(lambda: stage.state.up is None)
    assert stage.state.last_scale.epoch_ms > 0


def test_a_scale_up_waits_for_missing_nodes_and_fails_at_the_timeout(stage_of: StageMaker) -> None:
    """Machines that joined are kept, the others terminated; there is a back-off, and no cooldown."""
    stage = pressed(stage_of())
    stage.tick_until(lambda: stage.state.up is not None)
    began = stage.clock.now()
    stage.clock.sleep(100)
    late = [node for node in stage.world.k3s.nodes() if node.taints][-1]
    stage.world.k3s.put(replace(late, is_ready=False))
    stage.tick_until(lambda: stage.state.up is None)
    assert 600 <= stage.clock.now().seconds_since(began) <= 720
    assert late.name not in {machine.id for machine in stage.alive}
    assert len(stage.alive) == 3
    assert stage.state.last_scale.epoch_ms == 0
    assert stage.state.up_failures == 1


def test_verifying_twice_at_once_completes_once(stage_of: StageMaker) -> None:
    """Another invocation completes it between the first one's observation and its lease."""
    stage = pressed(stage_of())
    stage.tick_until(lambda: stage.state.up is not None)
    stage.tick(seconds=300)
    assert stage.state.is_acting, "its nodes are accepted; only completing it is left"
    ended: list[int] = []

    def meanwhile() -> None:
        stage.tick(seconds=0)
        ended.append(stage.item["lastScaleEpoch"])
        stage.clock.sleep(5)

    stage.tick(seconds=0, gate=after("pending_pods", meanwhile, times=1))
    assert ended == [stage.item["lastScaleEpoch"]], "the second changed nothing"
    assert "scaleUpActionId" not in stage.item
    assert len(launched(stage)) == 2


def test_after_each_failure_the_next_attempt_waits_longer(stage_of: StageMaker) -> None:
    stage = pressed(stage_of())
    stage.world.joins = False
    stage.tick_until(lambda: stage.state.up_failures == 3, most=90)
    assert len(stage.alive) == 2
    waits = stage.state.up_backoff_until.seconds_since(stage.clock.now())
    assert 180 < waits <= 240
    stage.world.joins = True
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0, most=40)
    assert stage.state.up_failures == 0


def test_the_next_scale_up_waits_for_its_cooldown(stage_of: StageMaker) -> None:
    stage = pressed(stage_of(), pods=80)
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    completed = stage.clock.now()
    stage.tick_until(lambda: stage.state.up is not None)
    assert 300 <= stage.clock.now().seconds_since(completed) <= 360


# Crashes, partial success, replacements


@pytest.mark.parametrize("how", ["killed", "answer lost"])
def test_a_launch_with_an_unknown_outcome_is_retried_without_a_second_machine(stage_of: StageMaker, how: str) -> None:
    error = Killed() if how == "killed" else MachineError("RequestTimeout", "no answer")
    stage = pressed(stage_of())
    stage.gate = after("launch", raising(error), times=1)
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    assert len(launched(stage)) == 2
    assert len(stage.alive) == 4


def test_a_partly_successful_scale_up_completes_with_the_machines_it_got(stage_of: StageMaker) -> None:
    """One of two slots gets nothing: the other machine is verified, and the action completes."""
    stage = pressed(stage_of())
    refusals = iter([None, MachineError("UnauthorizedOperation", "not for you")])

    def maybe() -> None:
        error = next(refusals, None)
        if error is not None:
            raise error

    stage.gate = before("launch", maybe)
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    assert len(stage.alive) == 3


def test_a_replacement_is_placed_like_any_machine_and_has_its_own_lock(stage_of: StageMaker) -> None:
    """During a scale-up: it goes to the emptiest zone, and the scale-up is left alone."""
    stage = stage_of(workers=3)
    spot = stage.world.add_worker("eu-west-1b", TAGS, market="spot")
    pressed(stage, pods=45)
    stage.tick_until(lambda: stage.state.up is not None)
    before_it = {name: value for name, value in stage.item.items() if name.startswith("scaleUp")}
    noted(stage, spot.id, SpotKind.INTERRUPTION)
    stage.tick(seconds=1)
    assert {name: value for name, value in stage.item.items() if name.startswith("scaleUp")} == before_it
    assert launched(stage)[-1].tags["holdfast.dev/action"] == f"spot:{spot.id}"
    stage.tick_until(lambda: not stage.open_notices and not stage.state.is_acting)
    zones = sorted(machine.zone for machine in stage.alive)
    assert max(zones.count(zone) for zone in zones) - min(zones.count(zone) for zone in zones) <= 1
