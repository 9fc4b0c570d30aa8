"""Seed 000, the state item: every attribute and every transition, as it is stored."""

from typing import Any

import pytest

from holdfast.cluster.policy import Policy
from holdfast.cluster.scaling import scale_down, scale_up
from holdfast.cluster.state import cluster_ledger
from holdfast.control.ledger import LeaseLost, Transition
from holdfast.fleet.slots import Slot
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import ActionId, ClusterId, InstanceId
from holdfast.ports.machines import Market
from holdfast.ports.store import Item, Key, attr, set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.k3s import Workload
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.harness import Stage, StageMaker
from tests.simulation.hooks import after, before, raising

CORE = {"lastScaleEpoch": int, "pendingSinceEpoch": int, "idleSinceEpoch": int, "workerCount": int}
UP = {"scaleUpActionId": str, "scaleUpStartedEpoch": int, "scaleUpRequested": int, "scaleUpInstanceIds": list}
DOWN = {
    "scaleDownActionId": str,
    "scaleDownStartedEpoch": int,
    "scaleDownPhase": str,
    "scaleDownTargetInstanceIds": list,
    "scaleDownCompletedInstanceIds": list,
}
ACTION = ActionId("1768464000-1-tick")
SLOT = Slot("subnet-1", "eu-west-1a", Market.SPOT, "t3.medium")
FIRST, SECOND = InstanceId("i-aaa"), InstanceId("i-bbb")


def types_of(item: Item, names: dict[str, Any]) -> dict[str, type]:
    return {name: type(item[name]) for name in names if name in item}


def pressed(stage: Stage) -> Stage:
    stage.world.k3s.run(Workload("web", 35))
    return stage


def idle(stage: Stage) -> Stage:
    stage.world.k3s.run(Workload("web", 6))
    return stage


class Item000:
    """The item under one fence, on the store of a stage."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.ledger = cluster_ledger(stage.store, ClusterId("cluster"))
        stage.store.update(STATE, Key("cluster"), set_all({"fence": 1, "lockOwner": "me"}))

    def take(self, transition: Transition) -> Item:
        self.ledger.write(transition, 1)
        return self.stage.item

    def refuses(self, transition: Transition) -> bool:
        before_it = self.stage.item
        with pytest.raises(WriteConflict):
            self.ledger.write(transition, 1)
        return self.stage.item == before_it

    @property
    def up(self) -> Any:
        return self.stage.state.up

    @property
    def down(self) -> Any:
        return self.stage.state.down


# The table


def test_there_is_one_item_per_cluster_under_its_name(stage_of: StageMaker) -> None:
    """`cluster` by default; several clusters share the table, and do not touch each other's items."""
    one = pressed(stage_of())
    other = Stage(name="other", open_store=lambda _clock: one.store)
    one.tick_until(lambda: one.state.up is not None)
    assert one.item["pk"] == "cluster"
    assert one.item["scalingInProgress"] is True
    assert other.item == {}
    other.tick()
    assert other.item["pk"] == "other"
    assert not other.state.is_acting


def test_the_core_attributes_have_the_seeds_names_and_types(stage_of: StageMaker) -> None:
    stage = pressed(stage_of())
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    assert types_of(stage.item, CORE) == CORE
    assert stage.item["scalingInProgress"] is False
    assert stage.item["workerCount"] == 4


def test_pending_since_and_idle_since_mark_when_the_condition_started_and_0_that_it_does_not_hold() -> None:
    stage = pressed(Stage())
    began = stage.clock.now().epoch_seconds
    stage.tick()
    assert abs(stage.item["pendingSinceEpoch"] - began) <= 1
    assert stage.item["idleSinceEpoch"] == 0
    stage.world.k3s.run(Workload("web", 0))
    stage.tick()
    assert stage.item["pendingSinceEpoch"] == 0
    assert stage.item["idleSinceEpoch"] == stage.clock.now().epoch_seconds


# Scale-up


def test_begin_scale_up_writes_the_seeds_fields_before_anything_is_launched(stage_of: StageMaker) -> None:
    stage = pressed(stage_of())
    items: list[Item] = []
    for _ in range(6):
        stage.tick(gate=before("launch", lambda: items.append(stage.item), times=1))
    first = items[0]
    assert types_of(first, UP) == UP
    assert first["scalingInProgress"] is True
    assert first["scaleUpRequested"] == 2
    assert first["scaleUpInstanceIds"] == []
    assert "lastScaleEpoch" not in first


def test_a_begin_while_an_action_is_under_way_changes_nothing(stage_of: StageMaker) -> None:
    """No action begins while another of either kind is under way, nor over the flag alone."""
    item = Item000(stage_of())
    now = item.stage.clock.now()
    begins = [scale_up.begin(ActionId("b"), (SLOT,), "lt-0:1", now), scale_down.begin(ActionId("b"), (FIRST,), now)]
    item.take(scale_up.begin(ACTION, (SLOT,), "lt-0:1", now))
    assert all(item.refuses(begin) for begin in begins)
    item.stage.store.put(STATE, {"pk": "cluster", "fence": 1})
    item.take(scale_down.begin(ACTION, (FIRST,), now))
    assert all(item.refuses(begin) for begin in begins)
    item.stage.store.put(STATE, {"pk": "cluster", "fence": 1, "scalingInProgress": True})
    assert all(item.refuses(begin) for begin in begins)


@pytest.mark.parametrize("number", range(16))
def test_two_ticks_at_once_begin_one_action(number: int) -> None:
    """The second tick runs completely just before one of the calls of the first: one action begins in either case."""
    stage = pressed(Stage())
    stage.tick()
    stage.tick()
    second: list[object] = []

    def hook(call: PortCall, moment: CallPoint) -> None:
        if (call.number, moment) == (number, CallPoint.BEFORE):
            second.append(stage.tick(seconds=0))

    stage.tick(gate=CallGate(hook))
    assert len(second) == 1
    assert stage.state.action_seq == 1
    stage.tick_until(lambda: not stage.state.is_acting)
    assert len(stage.world.ec2.launches) == 4


def test_recording_instances_needs_the_same_action(stage_of: StageMaker) -> None:
    item = Item000(stage_of())
    item.take(scale_up.begin(ACTION, (SLOT,), "lt-0:1", item.stage.clock.now()))
    record = scale_up.record(item.up, 0, FIRST, 3)
    item.stage.store.update(STATE, Key("cluster"), attr("scaleUpActionId").set_to("1768464000-1-other"))
    assert item.refuses(record)
    item.stage.store.update(STATE, Key("cluster"), attr("scaleUpActionId").set_to(ACTION))
    assert item.take(record)["scaleUpInstanceIds"] == [FIRST]


def test_recording_twice_records_once(stage_of: StageMaker) -> None:
    """The response to the first write was lost: the item already is as the second write would leave it."""
    item = Item000(stage_of())
    item.take(scale_up.begin(ACTION, (SLOT,), "lt-0:1", item.stage.clock.now()))
    record = scale_up.record(item.up, 0, FIRST, 3)
    assert item.take(record) == item.take(record)
    assert item.stage.item["scaleUpInstanceIds"] == [FIRST]


def test_complete_scale_up_starts_the_cooldown_and_removes_the_fields(stage_of: StageMaker) -> None:
    stage = pressed(stage_of())
    stage.tick_until(lambda: stage.state.up is not None)
    assert "lastScaleEpoch" not in stage.item, "no cooldown before the nodes are Ready"
    stage.tick_until(lambda: stage.state.up is None)
    assert stage.item["lastScaleEpoch"] == stage.clock.now().epoch_seconds
    assert stage.item["scalingInProgress"] is False
    assert not [name for name in stage.item if name.startswith("scaleUp")]


def test_fail_scale_up_clears_the_fields_and_starts_no_cooldown(stage_of: StageMaker) -> None:
    stage = pressed(stage_of())
    stage.world.joins = False
    stage.tick_until(lambda: stage.state.up_failures == 1)
    assert stage.item["scalingInProgress"] is False
    assert "lastScaleEpoch" not in stage.item
    assert not [name for name in stage.item if name.startswith("scaleUp")]


# Scale-down


def test_begin_scale_down_stores_the_plan_before_any_destructive_call(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=5))
    items: list[Item] = []
    for _ in range(14):
        stage.tick(gate=before("change_node", lambda: items.append(stage.item), times=1))
    first = items[0]
    assert types_of(first, DOWN) == DOWN
    assert first["scalingInProgress"] is True
    assert first["scaleDownPhase"] == "DRAINING"
    assert len(first["scaleDownTargetInstanceIds"]) == 1
    assert first["scaleDownCompletedInstanceIds"] == []


def test_the_phase_is_draining_while_pods_leave_and_then_terminating(
    stage_of: StageMaker,
) -> None:
    stage = idle(stage_of(workers=5))
    phases: dict[str, set[str]] = {"evict": set(), "terminate": set()}

    def hook(call: PortCall, _moment: CallPoint) -> None:
        if call.method in phases:
            phases[call.method].add(stage.item["scaleDownPhase"])

    stage.gate = CallGate(hook)
    stage.tick_until(lambda: stage.state.down is not None)
    stage.tick_until(lambda: stage.state.down is None)
    assert phases == {"evict": {"DRAINING"}, "terminate": {"TERMINATING"}}


def test_a_target_that_is_completed_is_skipped(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=5))
    stage.tick()
    done, rest = stage.alive[0].id, stage.alive[1].id
    plan = {"scaleDownTargetInstanceIds": [done, rest], "scaleDownCompletedInstanceIds": [done]}
    values = {"scalingInProgress": True, "scaleDownActionId": "1730000300-req-xyz", "scaleDownPhase": "DRAINING"}
    started = {"scaleDownStartedEpoch": stage.clock.now().epoch_seconds}
    stage.store.update(STATE, Key("cluster"), set_all({**values, **plan, **started}))
    ticked = stage.tick_until(lambda: not stage.state.is_acting)
    touched = {getattr(step, "instance", None) for one in ticked for step in one.done}
    assert rest in touched
    assert done not in touched


def test_marking_an_instance_done_twice_keeps_it_once(stage_of: StageMaker) -> None:
    """The whole list is written, so a repeated update changes nothing."""
    item = Item000(stage_of())
    item.take(scale_down.begin(ACTION, (FIRST, SECOND), item.stage.clock.now()))
    item.take(scale_down.commit(item.down, FIRST))
    done = scale_down.done(item.down, FIRST)
    item.take(done)
    item.take(done)
    assert item.stage.item["scaleDownCompletedInstanceIds"] == [FIRST]


@pytest.mark.parametrize("method", ["change_node", "evict", "terminate"])
def test_a_scale_down_whose_process_died_is_resumed_by_the_next(stage_of: StageMaker, method: str) -> None:
    """Killed just after a cordon, an eviction or a termination: nothing is done twice, nothing is forgotten."""
    stage = idle(stage_of(workers=5, policy=Policy(max_batch_down=2)))
    gate = after(method, raising(Killed()), times=1)
    stage.gate = gate
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    stage.tick()
    assert len(stage.alive) == 3
    assert sum(1 for pod in stage.world.k3s.pods() if pod.node) == 6


def test_complete_scale_down_starts_the_cooldown_and_removes_the_fields(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=5))
    stage.tick_until(lambda: stage.state.down is not None)
    assert "lastScaleEpoch" not in stage.item
    stage.tick_until(lambda: stage.state.down is None)
    assert stage.item["lastScaleEpoch"] == stage.clock.now().epoch_seconds
    assert stage.item["scalingInProgress"] is False
    assert not [name for name in stage.item if name.startswith("scaleDown")]


def test_a_scale_down_that_lasts_fifteen_minutes_is_cleared_and_starts_no_cooldown(stage_of: StageMaker) -> None:
    """The drain's own limit is set higher here, so it does not time out first."""
    stage = stage_of(workers=4, policy=Policy(drain_seconds=9000, newest_kept_seconds=86_400))
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    stage.tick_until(lambda: stage.state.down is not None)
    began = stage.clock.now()
    stage.tick_until(lambda: stage.state.down is None)
    assert 900 <= stage.clock.now().seconds_since(began) <= 1020
    assert "lastScaleEpoch" not in stage.item
    assert stage.item["scalingInProgress"] is False
    assert not any(node.is_unschedulable for node in stage.world.k3s.nodes())


def test_a_write_of_another_fence_changes_nothing(stage_of: StageMaker) -> None:
    """Conditional writes: a process that lost the lease writes nothing more."""
    item = Item000(stage_of())
    begin = scale_up.begin(ACTION, (SLOT,), "lt-0:1", item.stage.clock.now())
    item.stage.store.update(STATE, Key("cluster"), attr("fence").set_to(2))
    before_it = item.stage.item
    with pytest.raises(LeaseLost):
        item.ledger.write(begin, 1)
    assert item.stage.item == before_it
