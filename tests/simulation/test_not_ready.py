"""A node that stays NotReady is replaced; a broken network does not empty the cluster."""

import pytest
from msgspec.structs import replace

from holdfast.cluster.policy import Policy
from holdfast.control.pause import Pause, set_pause
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.ports.kube import Node, Pod, PodPhase
from holdfast.ports.machines import MachineState
from holdfast.simulator.world.k3s import Workload
from tests.simulation.harness import Stage, StageMaker


def calm(stage: Stage) -> Stage:
    """Too busy to scale down, too calm to scale up."""
    stage.world.k3s.run(Workload("web", len(stage.alive) * 5))
    stage.tick()
    return stage


def break_node(stage: Stage, instance: InstanceId) -> None:
    """Its kubelet is gone; the machine keeps running."""
    stage.world.k3s.lose(instance)


def node_of(stage: Stage, instance: InstanceId) -> Node:
    node = stage.world.k3s.node(instance)
    assert node is not None
    return node


def ids(stage: Stage) -> set[str]:
    return {machine.id for machine in stage.alive}


def rule_of(stage: Stage) -> str | None:
    """What the rule about NotReady nodes says at the next observation."""
    _, plan = stage.cluster().look()
    return next((rule.value for rule in plan.rules if rule.name == "not_ready_replaced"), None)


def test_a_node_that_stays_not_ready_is_replaced_after_fifteen_minutes(stage_of: StageMaker) -> None:
    """First the replacement comes into service; only then the machine is terminated, and its node removed."""
    stage = calm(stage_of(workers=4))
    lost = stage.alive[0].id
    break_node(stage, lost)
    for _ in range(15):
        stage.tick()
    assert stage.open_notices == frozenset(), "it may recover"
    ticked = stage.tick_until(lambda: lost not in ids(stage), most=15)
    kinds = [step.kind for one in ticked for step in one.done]
    assert kinds.index("replace_not_ready") < kinds.index("accept_replacement") < kinds.index("terminate_interrupted")
    stage.tick_until(lambda: stage.world.k3s.node(lost) is None and not stage.open_notices)
    assert len(stage.alive) == 4
    assert all(node.is_ready and not node.is_unschedulable for node in stage.world.k3s.nodes())
    assert stage.state.last_scale.epoch_ms == 0, "a replacement starts no cooldown"


def test_at_the_maximum_a_not_ready_node_is_replaced_within_the_maximum(stage_of: StageMaker) -> None:
    stage = calm(stage_of(workers=3, policy=Policy(max_workers=3)))
    lost = stage.alive[0].id
    break_node(stage, lost)
    stage.tick_until(lambda: lost not in ids(stage), most=40)
    stage.tick_until(lambda: not stage.open_notices)
    assert len(stage.alive) == 3


def test_one_broken_worker_of_two_is_replaced(stage_of: StageMaker) -> None:
    stage = calm(stage_of(workers=2))
    lost = stage.alive[0].id
    break_node(stage, lost)
    stage.tick_until(lambda: lost not in ids(stage), most=40)
    stage.tick_until(lambda: not stage.open_notices)
    assert len(stage.alive) == 2
    assert len(stage.world.ec2.launches) == 3, "one was missing, and one came"


@pytest.mark.parametrize(("workers", "broken"), [(1, 1), (2, 2), (4, 2), (6, 3), (6, 6)])
def test_when_many_are_not_ready_none_is_replaced_and_the_decision_says_why(workers: int, broken: int) -> None:
    """More likely the network than that many machines: a partition must not empty the cluster."""
    stage = calm(Stage(workers=workers, policy=Policy(min_workers=1)))
    before = ids(stage)
    for machine in stage.alive[:broken]:
        break_node(stage, machine.id)
    for _ in range(40):
        stage.tick()
    assert before <= ids(stage)
    assert stage.open_notices == frozenset()
    assert f"{broken} of {workers} nodes are NotReady" in (rule_of(stage) or "")


def test_not_ready_nodes_are_replaced_one_at_a_time(stage_of: StageMaker) -> None:
    stage = calm(stage_of(workers=7))
    lost = {machine.id for machine in stage.alive[:2]}
    for instance in sorted(lost):
        break_node(stage, InstanceId(instance))
    most = 0
    for _ in range(60):
        stage.tick()
        most = max(most, len(stage.open_notices))
        if stage.open_notices and lost <= ids(stage):
            assert rule_of(stage) == "another node is being replaced"
    assert most == 1
    assert not lost & ids(stage)
    assert len(stage.alive) == 7


def test_a_node_that_is_ready_again_in_time_is_left_alone(stage_of: StageMaker) -> None:
    stage = calm(stage_of(workers=4))
    lost = stage.alive[0].id
    break_node(stage, lost)
    for _ in range(10):
        stage.tick()
    stage.world.k3s.put(replace(node_of(stage, lost), is_ready=True, ready_changed=stage.clock.now()))
    for _ in range(20):
        stage.tick()
    assert lost in ids(stage)
    assert len(stage.world.ec2.launches) == 4


def test_without_capacity_for_a_replacement_the_node_stays_and_the_retry_waits() -> None:
    stage = calm(Stage(workers=4))
    stage.world.joins = False
    lost = stage.alive[0].id
    break_node(stage, lost)
    for _ in range(50):
        stage.tick()
    assert lost in ids(stage)
    assert not node_of(stage, lost).is_unschedulable
    assert len(stage.world.ec2.launches) == 5, "one replacement was tried"
    stage.tick_until(lambda: len(stage.world.ec2.launches) == 6, most=120)


@pytest.mark.parametrize("who", ["cordoned", "stopped", "pod", "paused", "off"])
def test_nodes_that_a_person_works_on_are_not_replaced(who: str) -> None:
    stage = calm(Stage(workers=4, policy=Policy(not_ready_seconds=0 if who == "off" else 900)))
    lost = stage.alive[0].id
    break_node(stage, lost)
    stage.clock.sleep(60)
    if who == "cordoned":
        stage.world.k3s.put(replace(node_of(stage, lost), is_unschedulable=True))
    if who == "stopped":
        machine = stage.world.ec2._machines[lost]
        stage.world.ec2._machines[lost] = replace(machine, state=MachineState.STOPPED)
    if who == "pod":
        pod = Pod("default", "precious", "uid-p", lost, PodPhase.RUNNING, stage.clock.now())
        stage.world.k3s.put_pod(
            replace(pod, controller="StatefulSet", annotations={"holdfast.dev/do-not-evict": "true"})
        )
    if who == "paused":
        set_pause(stage.store, ClusterId("cluster"), Pause("me", stage.clock.now(), "an upgrade"))
    for _ in range(30):
        stage.tick()
    assert lost in ids(stage)
    assert stage.open_notices == frozenset()
    reason = {"pod": "precious: it is annotated", "paused": "paused"}.get(who)
    assert (rule_of(stage) is None) if reason is None else reason in (rule_of(stage) or "")
