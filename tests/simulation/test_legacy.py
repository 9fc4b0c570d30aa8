"""Items of an older autoscaler, as the seeds write them, are adopted in place and continued.

The items are the seeds' examples verbatim, or with values from the seeds' tables; only ids and times come from the
world where a machine has to exist.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.cluster.state import DownPhase
from holdfast.cluster.tick import tick
from holdfast.control.stored_attributes import StateDamaged
from holdfast.ports.store import Key, set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.world.k3s import Workload
from tests.simulation.harness import Stage, StageMaker
from tests.simulation.scenarios import ended_commit, ended_plan, launch

IDLE: dict[str, Any] = {
    "pk": "cluster",
    "scalingInProgress": False,
    "lastScaleEpoch": 1730000000,
    "pendingSinceEpoch": 0,
    "idleSinceEpoch": 1730000100,
    "workerCount": 2,
}
SCALING_UP: dict[str, Any] = {
    "pk": "cluster",
    "scalingInProgress": True,
    "lastScaleEpoch": 1730000000,
    "scaleUpActionId": "1730000300-req-xyz",
    "scaleUpStartedEpoch": 1730000300,
    "scaleUpRequested": 2,
    "scaleUpInstanceIds": ["i-aaa", "i-bbb"],
}
SCALING_DOWN: dict[str, Any] = {
    "pk": "cluster",
    "scalingInProgress": True,
    "lastScaleEpoch": 1730000000,
    "scaleDownActionId": "1730000300-req-xyz",
    "scaleDownStartedEpoch": 1730000300,
    "scaleDownPhase": "DRAINING",
    "scaleDownTargetInstanceIds": ["i-aaa", "i-bbb"],
    "scaleDownCompletedInstanceIds": ["i-aaa"],
}


def kinds(stage: Stage, ticks: int) -> list[str]:
    done = [stage.tick() for _ in range(ticks)]
    return [step.kind for one in done if one is not None for step in one.done]


def busy(stage: Stage) -> Stage:
    """Neither idle nor short of workers: only the stored state makes it act."""
    stage.world.k3s.run(Workload("web", len(stage.alive) * 5))
    return stage


def test_the_seeds_idle_item_is_continued(stage_of: StageMaker) -> None:
    """Its idle timer has run since 2024, and its cooldown is long over: it scales down at the first tick."""
    stage = stage_of(workers=4)
    stage.store.put(STATE, IDLE)
    assert "begin_scale_down" in kinds(stage, 1)


def test_the_seeds_scale_up_in_progress_with_machines_that_ec2_forgot_fails_and_is_cleared(
    stage_of: StageMaker,
) -> None:
    """Begun in 2024 for unknown machines: past its join timeout, so cleaned up and failed, without a cooldown."""
    stage = busy(stage_of())
    stage.store.put(STATE, SCALING_UP)
    assert kinds(stage, 1) == ["enter_phase", "terminate_unjoined"]
    # A machine that EC2 does not list may have just been launched; it counts as gone eleven minutes later.
    stage.tick_until(lambda: stage.state.up_failures == 1, most=14)
    assert stage.item["lastScaleEpoch"] == 1730000000
    assert not stage.state.is_flagged
    assert not any(name.startswith("scaleUp") for name in stage.item)
    assert len(stage.alive) == 2


def test_the_seeds_scale_down_in_progress_with_machines_that_ec2_forgot_is_cleared(stage_of: StageMaker) -> None:
    stage = busy(stage_of())
    stage.store.put(STATE, SCALING_DOWN)
    assert kinds(stage, 1) == ["abort_scale_down", "clear_scale_down"]
    assert not any(name.startswith("scaleDown") for name in stage.item)
    assert len(stage.alive) == 2


def test_a_scale_up_with_recorded_machines_is_verified_and_completed(stage_of: StageMaker) -> None:
    stage = busy(stage_of())
    ids = [launch(stage, f"legacy-{number}", {}) for number in range(2)]
    now = stage.clock.now().epoch_seconds
    stage.store.put(STATE, {**SCALING_UP, "scaleUpStartedEpoch": now, "scaleUpInstanceIds": ids})
    stage.tick()
    assert stage.state.up is not None, "they have not joined yet"
    stage.tick_until(lambda: not stage.state.is_acting)
    assert stage.item["lastScaleEpoch"] >= now
    assert len(stage.alive) == 4


def test_a_scale_up_without_ids_adopts_what_was_launched_since_it_began(stage_of: StageMaker) -> None:
    """It stores its ids after all launches, and died before that. Nothing more is launched for it."""
    stage = busy(stage_of())
    now = stage.clock.now().epoch_seconds
    stage.store.put(STATE, {**SCALING_UP, "scaleUpStartedEpoch": now, "scaleUpInstanceIds": []})
    ids = [launch(stage, f"legacy-{number}", {}) for number in range(2)]
    ticked = stage.tick(seconds=10)
    assert ticked is not None
    assert [step.kind for step in ticked.done] == ["adopt_untagged", "adopt_untagged"]
    assert sorted(stage.item["scaleUpInstanceIds"]) == sorted(ids)
    stage.tick_until(lambda: not stage.state.is_acting)
    assert stage.state.last_scale.epoch_seconds >= now
    assert len(stage.alive) == 4


def test_a_scale_up_without_a_requested_count_is_verified_and_completed(stage_of: StageMaker) -> None:
    """As seed 001 has the item: without scaleUpRequested, and with a lock whose holder died."""
    stage = busy(stage_of())
    ids = [launch(stage, f"legacy-{number}", {}) for number in range(2)]
    now = stage.clock.now()
    item = {name: value for name, value in SCALING_UP.items() if name != "scaleUpRequested"}
    item |= {"scaleUpStartedEpoch": now.epoch_seconds, "scaleUpInstanceIds": ids, "workerCount": 2}
    stage.store.put(STATE, {**item, "lockOwner": "req-1", "lockUntilEpoch": now.plus(30).epoch_seconds})
    stage.tick_until(lambda: not stage.state.is_acting)
    assert stage.state.last_scale.epoch_seconds >= now.epoch_seconds
    assert len(stage.alive) == 4


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "not recorded"])
def test_a_scale_up_of_two_that_launched_one_machine_is_completed_with_it(
    stage_of: StageMaker, is_recorded: bool
) -> None:
    """It died between two launches, before or after it recorded the first; that machine has joined."""
    stage = busy(stage_of())
    now = stage.clock.now().epoch_seconds
    machine = launch(stage, "legacy", {})
    ids = [machine] if is_recorded else []
    stage.store.put(STATE, {**SCALING_UP, "scaleUpStartedEpoch": now, "scaleUpInstanceIds": ids})
    stage.tick_until(lambda: not stage.state.is_acting, most=20)
    assert machine in {one.id for one in stage.alive}
    assert stage.state.up_failures == 0
    assert stage.state.last_scale.epoch_seconds >= now


def test_a_scale_up_adopts_the_first_machines_up_to_its_count_and_none_of_ours(stage_of: StageMaker) -> None:
    stage = busy(stage_of())
    now = stage.clock.now().epoch_seconds
    stage.store.put(STATE, {**SCALING_UP, "scaleUpStartedEpoch": now, "scaleUpRequested": 1, "scaleUpInstanceIds": []})
    stage.clock.sleep(2)
    launch(stage, "ours", {"holdfast.dev/action": "1768464000-9-other", "holdfast.dev/seq": "9"})
    first = launch(stage, "first", {})
    stage.clock.sleep(2)
    launch(stage, "second", {})
    stage.tick(seconds=10)
    assert stage.item["scaleUpInstanceIds"] == [first]


def test_a_scale_up_that_launched_nothing_fails_at_the_join_timeout(stage_of: StageMaker) -> None:
    stage = busy(stage_of())
    now = stage.clock.now().epoch_seconds
    stage.store.put(STATE, {**SCALING_UP, "scaleUpStartedEpoch": now, "scaleUpInstanceIds": []})
    stage.tick_until(lambda: stage.state.up_failures == 1, most=12)
    assert stage.state.last_scale.epoch_seconds == 1730000000


def test_recorded_machines_with_other_tags_are_recognised_by_their_ids(stage_of: StageMaker) -> None:
    """A machine that joined must not count as missing only because it lacks the tags that we look for."""
    stage = busy(stage_of())
    machine = stage.world.add_worker("eu-west-1a", {"Name": "old-style"})
    stage.store.put(STATE, {**SCALING_UP, "scaleUpRequested": 1, "scaleUpInstanceIds": [machine.id]})
    stage.tick_until(lambda: not stage.state.is_acting)
    assert machine.id in {one.id for one in stage.alive}


def test_a_node_that_joined_but_was_never_ready_is_kept_and_is_no_success() -> None:
    stage = busy(Stage())
    machine = stage.world.add_worker("eu-west-1a", {"Cluster": "k3s", "Role": "worker"})
    node = stage.world.k3s.node(machine.id)
    assert node is not None
    stage.world.k3s.put(replace(node, is_ready=False))
    stage.store.put(STATE, {**SCALING_UP, "scaleUpRequested": 1, "scaleUpInstanceIds": [machine.id]})
    stage.tick_until(lambda: not stage.state.is_acting)
    assert stage.state.up_failures == 1
    assert machine.id in {one.id for one in stage.alive}


@pytest.mark.parametrize("phase", [{"scaleDownPhase": "TERMINATING"}, {}], ids=["terminating", "no phase"])
def test_a_scale_down_without_commits_is_drained_from_the_beginning(
    stage_of: StageMaker, phase: dict[str, str]
) -> None:
    """Its phase TERMINATING does not say which node is empty."""
    stage = stage_of(workers=4)
    stage.world.k3s.run(Workload("web", 8))
    stage.tick()
    target = stage.alive[0].id
    item = {name: value for name, value in SCALING_DOWN.items() if name != "scaleDownPhase"}
    now = stage.clock.now().epoch_seconds
    item |= {"scaleDownTargetInstanceIds": [target], "scaleDownCompletedInstanceIds": [], "scaleDownStartedEpoch": now}
    stage.store.update(STATE, Key("cluster"), set_all({k: v for k, v in {**item, **phase}.items() if k != "pk"}))
    ticked = stage.tick()
    assert ticked is not None
    assert [step.kind for step in ticked.done] == ["repair", "cordon_target"]
    assert stage.state.down is not None
    assert stage.state.down.phase is DownPhase.DRAINING
    assert target in {one.id for one in stage.alive}
    stage.tick_until(lambda: not stage.state.is_acting)
    assert target not in {one.id for one in stage.alive}
    assert sum(1 for pod in stage.world.k3s.pods() if pod.node) == 8


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "not recorded"])
def test_a_terminated_target_is_left_alone_and_the_other_one_is_continued(
    stage_of: StageMaker, is_recorded: bool
) -> None:
    """It died between two targets; or between the termination and its record."""
    stage = stage_of(workers=6)  # the only machine of a zone would be kept
    stage.world.k3s.run(Workload("web", 8))
    stage.tick()
    ended, left = stage.alive[0].id, stage.alive[1].id
    stage.world.ec2.terminate(ended)
    now = stage.clock.now().epoch_seconds
    item = SCALING_DOWN | {"scaleDownStartedEpoch": now, "scaleDownTargetInstanceIds": [ended, left]}
    item |= {"scaleDownCompletedInstanceIds": [ended] if is_recorded else []}
    stage.store.update(STATE, Key("cluster"), set_all({name: item[name] for name in item if name != "pk"}))
    stage.tick_until(lambda: not stage.state.is_acting)
    assert {ended, left}.isdisjoint(one.id for one in stage.alive)
    assert len(stage.alive) == 4
    assert stage.state.last_scale == stage.clock.now(), "the cooldown begins when the last one is gone"
    assert sum(1 for pod in stage.world.k3s.pods() if pod.node) == 8


def test_a_node_that_an_older_autoscaler_cordoned_is_uncordoned_when_its_action_is_given_up(
    stage_of: StageMaker,
) -> None:
    """Such a cordon has no annotation. Begun in 2024, so it is overdue at the first tick."""
    stage = busy(stage_of(workers=4))
    target = stage.alive[0].id
    node = stage.world.k3s.node(target)
    assert node is not None
    stage.world.k3s.put(replace(node, is_unschedulable=True))
    item = {**SCALING_DOWN, "scaleDownTargetInstanceIds": [target], "scaleDownCompletedInstanceIds": []}
    stage.store.put(STATE, item)
    stage.tick_until(lambda: not stage.state.is_acting)
    assert not any(one.is_unschedulable for one in stage.world.k3s.nodes())
    assert len(stage.alive) == 4


def test_a_machine_listed_twice_as_completed_is_completed(stage_of: StageMaker) -> None:
    """An older autoscaler appends to the list, and a repeated append adds a machine twice."""
    stage = busy(stage_of())
    ids = {"scaleDownTargetInstanceIds": ["i-aaa"], "scaleDownCompletedInstanceIds": ["i-aaa", "i-aaa"]}
    stage.store.put(STATE, {**SCALING_DOWN, **ids})
    assert kinds(stage, 1) == ["complete_scale_down"]
    assert stage.state.last_scale == stage.clock.now()


def test_a_plan_without_an_action_continues_with_the_machines_it_launched() -> None:
    """An older autoscaler ended a scale-up of ours; its nodes would keep the start-up taint for ever."""
    stage = ended_plan()
    tainted = [node.name for node in stage.world.k3s.nodes() if node.taints]
    assert len(tainted) == 2
    ticked = stage.tick()
    assert ticked is not None
    assert [step.kind for step in ticked.done] == ["carry_on_plan", "accept_node", "accept_node"]
    stage.tick_until(lambda: not stage.state.is_acting)
    assert not any(node.taints for node in stage.world.k3s.nodes())
    assert "scaleUpPlan" not in stage.item


def test_a_plan_without_an_action_that_launched_nothing_is_removed(stage_of: StageMaker) -> None:
    stage = busy(stage_of())
    slot = {"s": "subnet-1", "z": "eu-west-1a", "m": "spot", "t": "t3.medium", "k": 0}
    stage.store.put(STATE, {**IDLE, "scaleUpPlan": [slot], "scaleUpPhase": "LAUNCHING", "templateRef": "lt-0:1"})
    assert kinds(stage, 1) == ["repair"]
    assert not {"scaleUpPlan", "scaleUpPhase", "templateRef"} & set(stage.item)


def test_an_older_autoscalers_scale_up_over_our_plan_launches_nothing_of_that_plan(stage_of: StageMaker) -> None:
    stage = busy(stage_of())
    slot = {"s": "subnet-eu-west-1a", "z": "eu-west-1a", "m": "spot", "t": "t3.medium", "k": 0}
    now = stage.clock.now().epoch_seconds
    item = {**SCALING_UP, "scaleUpStartedEpoch": now, "scaleUpInstanceIds": [], "fence": 9}
    stage.store.put(STATE, {**item, "scaleUpPlan": [slot], "scaleUpPhase": "LAUNCHING"})
    assert kinds(stage, 1) == ["repair"]
    assert "scaleUpPlan" not in stage.item
    assert len(stage.alive) == 2


def test_a_committed_machine_is_terminated_though_an_older_autoscaler_ended_the_action() -> None:
    """A commit cannot be undone: its node is empty and cordoned."""
    stage = ended_commit()
    (committed,) = stage.item["scaleDownCommitted"]
    stage.clock.sleep(120)
    ticked = stage.tick()
    assert ticked is not None
    assert [step.kind for step in ticked.done] == ["carry_on_committed", "terminate_target", "complete_scale_down"]
    assert committed not in {one.id for one in stage.alive}


def test_our_cordon_is_removed_an_hour_after_an_older_autoscaler_ended_the_action(stage_of: StageMaker) -> None:
    stage = busy(stage_of(workers=4))
    stage.store.put(STATE, {**IDLE, "fence": 9, "idleSinceEpoch": 0})
    node = stage.world.k3s.node(stage.alive[0].id)
    assert node is not None
    action = f"{stage.clock.now().epoch_seconds}-7-tick"
    annotations = {"holdfast.dev/action": action, "holdfast.dev/fence": "7"}
    stage.world.k3s.put(replace(node, is_unschedulable=True, annotations=annotations))
    kinds(stage, 50)
    assert any(one.is_unschedulable for one in stage.world.k3s.nodes()), "its machine may be about to be terminated"
    assert "open_left_closed" in kinds(stage, 15)
    assert not any(one.is_unschedulable for one in stage.world.k3s.nodes())


def test_a_persons_cordon_is_never_removed(stage_of: StageMaker) -> None:
    stage = busy(stage_of(workers=4))
    node = stage.world.k3s.node(stage.alive[0].id)
    assert node is not None
    stage.world.k3s.put(replace(node, is_unschedulable=True))
    kinds(stage, 70)
    assert sum(one.is_unschedulable for one in stage.world.k3s.nodes()) == 1


def test_a_last_scale_in_the_future_counts_as_now_and_the_decision_says_so(stage_of: StageMaker) -> None:
    """A clock had jumped. Otherwise nothing would scale until that time."""
    stage = busy(stage_of())
    ahead = stage.clock.now().plus(40 * 86_400).epoch_seconds
    stage.store.put(STATE, {**IDLE, "lastScaleEpoch": ahead, "idleSinceEpoch": 0})
    ticked = stage.tick()
    assert ticked is not None
    (step,) = ticked.done
    assert step.kind == "repair"
    assert "lastScaleEpoch: 960.0 h in the future" in step.because
    assert stage.item["lastScaleEpoch"] == stage.clock.now().epoch_seconds


def test_a_last_scale_a_little_ahead_of_our_clock_is_left_alone(stage_of: StageMaker) -> None:
    stage = busy(stage_of())
    ahead = stage.clock.now().plus(1800).epoch_seconds
    stage.store.put(STATE, {**IDLE, "lastScaleEpoch": ahead, "idleSinceEpoch": 0})
    assert kinds(stage, 1) == []
    assert stage.item["lastScaleEpoch"] == ahead


def test_a_lock_far_in_the_future_is_taken_over(stage_of: StageMaker) -> None:
    """No process holds a lock for an hour; the fence makes taking it safe."""
    stage = stage_of(workers=0)
    ahead = stage.clock.now().plus(90_000).epoch_seconds
    stage.store.put(STATE, {**IDLE, "lockOwner": "req-1", "lockUntilEpoch": ahead})
    assert "begin_scale_up" in kinds(stage, 1)


def test_a_lock_of_an_older_autoscaler_is_respected_until_it_expires(stage_of: StageMaker) -> None:
    stage = stage_of(workers=0)
    until = stage.clock.now().plus(150).epoch_seconds
    stage.store.put(STATE, {**IDLE, "scalingInProgress": True, "lockOwner": "req-1", "lockUntilEpoch": until})
    assert stage.tick() is None
    assert stage.tick() is None
    assert kinds(stage, 1)[:2] == ["repair", "begin_scale_up"]


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({**SCALING_UP, "scaleUpStartedEpoch": 0}, "scaleUpStartedEpoch"),
        ({name: value for name, value in SCALING_UP.items() if name != "scaleUpStartedEpoch"}, "scaleUpStartedEpoch"),
        ({**SCALING_UP, "scalingInProgress": False}, "scalingInProgress"),
        ({**SCALING_UP, "scaleUpInstanceIds": ["i-aaa", ""]}, "scaleUpInstanceIds"),
        ({**SCALING_UP, "scaleUpInstanceIds": {"i-aaa": True}}, "scaleUpInstanceIds"),
        ({name: value for name, value in SCALING_DOWN.items() if "Target" not in name}, "scaleDownTargetInstanceIds"),
        ({**SCALING_DOWN, "scaleDownTargetInstanceIds": ["i-aaa", "i-aaa"]}, "scaleDownTargetInstanceIds"),
        ({**SCALING_DOWN, "scaleDownPhase": "draining"}, "scaleDownPhase"),
        ({**SCALING_UP, **SCALING_DOWN}, "scaleDownActionId"),
        ({**IDLE, "lastScaleEpoch": "1730000000"}, "lastScaleEpoch"),
    ],
    ids=["no start", "start absent", "no flag", "empty id", "no list", "no targets", "twice", "case", "both", "text"],
)
def test_an_incomplete_or_malformed_item_is_refused_and_nothing_is_changed(item: dict[str, Any], named: str) -> None:
    """An operator has to look: any guess might terminate a machine."""
    stage = Stage(workers=0)
    stage.store.put(STATE, item)
    stage.clock.sleep(60)
    with pytest.raises(StateDamaged, match=f"{named}.*corrected"):
        tick(stage.cluster(), "tick")
    assert stage.item == item
    assert stage.alive == []
