"""Guards that matter once in a thousand runs: each test lets in what its guard keeps out."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.cluster.nodes import FOREIGN_CORDON_ANNOTATION, FencedNodes
from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import ACTION_ANNOTATION, FENCE_ANNOTATION, SPOT_ANNOTATION
from holdfast.cluster.spot.notice import Replacement, SpotKind, SpotPhase
from holdfast.cluster.spot.notice_handler import undo_cordon
from holdfast.cluster.steps import CloseNotice, CordonInterrupted, EnterSpotPhase, OpenInterrupted
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.ports.kube import KubeUnavailable, Node, NodeChange, NodeChanged, Pod, PodPhase
from holdfast.ports.machines import MachineError
from holdfast.ports.store import Key
from holdfast.ports.store.tables import STATE
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import DAWN
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.harness import Stage
from tests.simulation.hooks import before, raising
from tests.simulation.spot_case import SpotCase

DOWN = ActionId("1768464000-9-tick")


def node_of(stage: Stage, instance: str) -> Node:
    node = stage.world.k3s.node(instance)
    assert node is not None
    return node


# The second look before a commit


def about_to_commit(stage: Stage) -> InstanceId:
    """The next tick finds the target's node cordoned and empty, and commits it."""

    def is_evicted() -> bool:
        down = stage.state.down
        if down is None or not down.open_targets:
            return False
        node = node_of(stage, down.open_targets[0])
        return node.is_unschedulable and all(pod.is_deleting for pod in stage.world.k3s.pods_on(node.name))

    stage.world.k3s.run(Workload("web", 6))
    stage.tick_until(is_evicted, most=60, seconds=20)
    stage.clock.sleep(15)  # its pods end
    assert stage.state.down is not None
    return stage.state.down.open_targets[0]


def bind_a_pod(stage: Stage, target: str) -> None:
    pod = Pod("default", "late", "uid-late", target, PodPhase.RUNNING, DAWN, controller="ReplicaSet")
    stage.world.k3s.put_pod(pod)


def uncordon_by_hand(stage: Stage, target: str) -> None:
    stage.world.k3s.put(replace(node_of(stage, target), is_unschedulable=False))


@pytest.mark.parametrize("meanwhile", [bind_a_pod, uncordon_by_hand])
def test_what_happens_between_the_look_and_the_commit_prevents_it(
    meanwhile: Callable[[Stage, str], None],
) -> None:
    stage = Stage(workers=5)
    target = about_to_commit(stage)
    stage.tick(seconds=1, gate=before("node", lambda: meanwhile(stage, target), times=1))
    assert target in {machine.id for machine in stage.alive}
    assert "scaleDownCommitted" not in stage.item


def test_a_node_bears_the_fence_of_the_process_that_commits_it() -> None:
    """An older process that still wants to uncordon it is refused by that fence."""
    stage = Stage(workers=5)
    target = about_to_commit(stage)
    stamped: list[tuple[str, int]] = []

    def look() -> None:
        stamped.append((node_of(stage, target).annotations[FENCE_ANNOTATION], stage.item["fence"]))

    stage.tick(seconds=1, gate=before("terminate", look))
    ((on_node, in_state),) = stamped
    assert int(on_node) == in_state


# Kubernetes is unknown


def without_kubernetes() -> CallGate:
    return before("nodes", raising(KubeUnavailable("the API server does not answer")))


def test_a_drain_is_not_aborted_because_kubernetes_does_not_answer() -> None:
    """Without nodes every worker seems to be missing, and so the target to be needed."""
    stage = Stage(workers=5)
    about_to_commit(stage)
    stage.tick(seconds=1, gate=without_kubernetes())
    assert stage.item["scaleDownPhase"] == "DRAINING"


def test_an_aborted_drain_is_not_cleared_while_kubernetes_does_not_answer() -> None:
    stage = Stage(workers=4)
    stage.world.k3s.run(Workload("web", 4, max_unavailable=0))
    stage.tick_until(lambda: stage.item.get("scaleDownPhase") == "ABORTING", most=40)
    # As a process that dies between the abort and the uncordon leaves it.
    target = stage.item["scaleDownTargetInstanceIds"][0]
    annotations = {ACTION_ANNOTATION: stage.item["scaleDownActionId"], FENCE_ANNOTATION: "1"}
    stage.world.k3s.put(replace(node_of(stage, target), is_unschedulable=True, annotations=annotations))
    stage.tick(gate=without_kubernetes())
    assert stage.item["scaleDownPhase"] == "ABORTING"
    stage.tick_until(lambda: "scaleDownPhase" not in stage.item)
    assert not any(node.is_unschedulable for node in stage.world.k3s.nodes())


# Minimum


def test_a_worker_that_is_not_ready_does_not_stand_in_for_one_that_is_drained() -> None:
    """It runs no pods, and may never run any again."""
    stage = Stage(workers=4, policy=Policy(min_workers=3))
    target = about_to_commit(stage)
    other = next(machine.id for machine in stage.alive if machine.id != target)
    stage.world.k3s.put(replace(node_of(stage, other), is_ready=False, ready_changed=stage.clock.now()))
    stage.tick(seconds=1)
    assert target in {machine.id for machine in stage.alive}
    assert "scaleDownCommitted" not in stage.item


# One cordon, several owners


def closed_node(**annotations: str) -> tuple[Stage, Node]:
    stage = Stage(workers=3)
    stage.tick()
    node = node_of(stage, stage.alive[0].id)
    stage.world.k3s.put(replace(node, is_unschedulable=True, annotations=annotations))
    return stage, node_of(stage, node.name)


def test_a_scale_down_that_is_aborted_leaves_the_cordon_of_a_notice() -> None:
    stage, node = closed_node(**{ACTION_ANNOTATION: DOWN, SPOT_ANNOTATION: "i-1@1"})
    FencedNodes(stage.world.k3s, 50).uncordon(node)
    left = node_of(stage, node.name)
    assert left.is_unschedulable
    assert ACTION_ANNOTATION not in left.annotations
    undo_cordon(stage.world.k3s, left)
    assert not node_of(stage, node.name).is_unschedulable


def test_a_notice_that_is_over_leaves_the_cordon_of_a_scale_down() -> None:
    stage, node = closed_node(**{ACTION_ANNOTATION: DOWN, SPOT_ANNOTATION: "i-1@1"})
    undo_cordon(stage.world.k3s, node)
    left = node_of(stage, node.name)
    assert left.is_unschedulable
    assert SPOT_ANNOTATION not in left.annotations
    FencedNodes(stage.world.k3s, 50).uncordon(left)
    assert not node_of(stage, node.name).is_unschedulable


def test_a_notice_that_comes_as_a_scale_down_uncordons_the_node_wins() -> None:
    stage, read = closed_node(**{ACTION_ANNOTATION: DOWN, FENCE_ANNOTATION: "7"})
    stage.world.k3s.change_node(read, NodeChange(annotations={SPOT_ANNOTATION: "i-1@1"}))
    with pytest.raises(NodeChanged):
        FencedNodes(stage.world.k3s, 50).uncordon(read)
    assert node_of(stage, read.name).is_unschedulable


# A person's cordon


def test_a_person_s_cordon_outlives_an_aborted_scale_down() -> None:
    stage, node = closed_node()
    nodes = FencedNodes(stage.world.k3s, 50)
    nodes.cordon(node, InstanceId(node.name), DOWN)
    nodes.cordon(node_of(stage, node.name), InstanceId(node.name), DOWN)  # a process that resumes it cordons it again
    nodes.uncordon(node_of(stage, node.name))
    left = node_of(stage, node.name)
    assert left.is_unschedulable
    assert FOREIGN_CORDON_ANNOTATION not in left.annotations


@pytest.mark.parametrize("is_cordoned", [False, True])
def test_a_person_s_cordon_outlives_a_notice_and_ours_does_not(is_cordoned: bool) -> None:
    case = SpotCase()
    if is_cordoned:
        case.stage.world.k3s.put(replace(case.node, is_unschedulable=True))
    assert case.receive_notice(SpotKind.INTERRUPTION)
    case.overwrite(replacement=str(Replacement.ACCEPTED))
    case.carry_out(CordonInterrupted)
    case.carry_out(CordonInterrupted)
    case.carry_out(EnterSpotPhase, phase=SpotPhase.EXPIRED)
    case.carry_out(OpenInterrupted)
    assert case.node.is_unschedulable is is_cordoned
    assert SPOT_ANNOTATION not in case.node.annotations


# What is kept, and for how long


def test_a_closed_notice_is_kept_for_a_day_and_an_open_one_for_ever() -> None:
    """A second event about the same machine finds it, with the attempts whose tokens were used."""
    case = SpotCase()
    assert case.receive_notice(SpotKind.REBALANCE)
    key = Key(f"spot#{case.victim}")
    assert "expiresAt" not in (case.stage.store.get(STATE, key) or {})
    case.overwrite(replacement=str(Replacement.GIVEN_UP))
    case.carry_out(CloseNotice)
    item = case.stage.store.get(STATE, key) or {}
    assert item["expiresAt"] - case.stage.clock.now().epoch_seconds == 86_400
    case.stage.clock.sleep(86_000)
    assert case.stage.store.get(STATE, key) is not None


# Take-over and attempts


def refused_once(code: str = "InsufficientInstanceCapacity") -> CallGate:
    left = [1]

    def hook(call: PortCall, moment: CallPoint) -> None:
        if call.method == "launch" and moment is CallPoint.BEFORE and left[0]:
            left[0] -= 1
            raise MachineError(code, "no capacity")

    return CallGate(hook)


def attempts(stage: Stage) -> list[int]:
    return [slot["k"] for slot in stage.item["scaleUpPlan"]]


def begun_by_one_who_died(stage: Stage) -> None:
    """It stored its plan, and died before it launched anything, with the lease in its hand."""
    stage.world.k3s.run(Workload("web", 35))

    def die(call: PortCall, moment: CallPoint) -> None:
        if call.method == "launch" and moment is CallPoint.BEFORE:
            raise MachineError("RequestTimeout", "never mind")

    dead = CallGate(die)
    while "scaleUpPlan" not in stage.item:
        stage.tick(gate=dead)
    now = stage.clock.now().epoch_seconds
    item = {**stage.item, "lockOwner": "one who died", "lockUntilEpoch": now - 6}
    stage.store.put(STATE, item)


def test_who_takes_over_a_lease_moves_no_slot_on_for_a_minute() -> None:
    """The one before may still be about to use the token: another attempt would launch a second machine."""
    stage = Stage()
    begun_by_one_who_died(stage)
    stage.tick(seconds=1, gate=refused_once())
    assert attempts(stage)[0] == 0, "it took the lease over"
    stage.tick(seconds=20, gate=refused_once())
    assert attempts(stage)[0] == 0, "the one after it, within the minute"
    stage.tick(seconds=60, gate=refused_once())
    assert "i" in stage.item["scaleUpPlan"][0] or attempts(stage)[0] == 1


def test_the_replacement_after_another_notice_uses_no_token_again() -> None:
    case = SpotCase()
    assert case.receive_notice(SpotKind.INTERRUPTION)
    slot = {"s": "subnet-eu-west-1a", "z": "eu-west-1a", "m": "spot", "t": "t3.medium", "k": 2}
    case.overwrite(plan=slot, replacement=str(Replacement.GIVEN_UP), phase=str(SpotPhase.CLOSED), noticeEpoch=1)
    assert case.receive_notice(SpotKind.INTERRUPTION)
    assert case.notice.first_attempt == 3
    case.stage.tick(seconds=1)
    assert case.notice.slot is not None
    assert case.notice.slot.attempt >= 3
