"""Seed 003, scale-down: everything but the rules (`unit/cluster/test_decide.py`) and the item (seed 000)."""

import pytest
from msgspec.structs import replace

from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import INSTANCE_LABEL
from holdfast.cluster.spot.notice import SpotKind
from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Node, Pod, PodPhase
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import DAWN
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.harness import TAGS, Stage, StageMaker
from tests.simulation.hooks import before
from tests.simulation.scenarios import noted

# Of four workers in three zones: the newest stays, so no other takes the place of one that could not be drained.
ONE_MAY_LEAVE = Policy(newest_kept_seconds=86_400)


def idle(stage: Stage, pods: int = 6) -> Stage:
    stage.world.k3s.run(Workload("web", pods))
    return stage


def ids(stage: Stage) -> set[str]:
    return {machine.id for machine in stage.alive}


def pod_on(node: str, name: str, **values: object) -> Pod:
    pod = Pod("default", name, f"uid-{name}", node, PodPhase.RUNNING, DAWN, controller="ReplicaSet")
    return replace(pod, **values)


def is_closed(stage: Stage, name: str) -> bool:
    node = stage.world.k3s.node(name)
    assert node is not None
    return node.is_unschedulable


def first_target(stage: Stage) -> InstanceId:
    stage.tick_until(lambda: stage.state.down is not None)
    assert stage.state.down is not None
    return stage.state.down.targets[0]


# Safety of a drain


def test_a_node_is_cordoned_before_a_pod_is_evicted(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=5), pods=10)
    evicted_from: list[Node] = []

    def look() -> None:
        assert stage.state.down is not None
        node = stage.world.k3s.node(stage.state.down.targets[0])
        assert node is not None
        evicted_from.append(node)

    for _ in range(20):
        stage.tick(gate=before("evict", look))
    assert evicted_from
    assert all(node.is_unschedulable for node in evicted_from)


def test_daemonset_and_mirror_pods_are_not_evicted_and_block_no_drain(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=4), pods=4)
    for machine in stage.alive:
        stage.world.k3s.put_pod(pod_on(machine.id, f"agent-{machine.id}", controller="DaemonSet"))
        mirror: dict[str, object] = {"controller": "Node", "is_mirror": True, "namespace": "kube-system"}
        stage.world.k3s.put_pod(pod_on(machine.id, f"mirror-{machine.id}", **mirror))
    evicted: list[str] = []
    cluster = stage.world.k3s
    evict = cluster.evict
    cluster.evict = lambda pod: (evicted.append(pod.name), evict(pod))[1]  # type: ignore[func-returns-value,method-assign]
    stage.tick_until(lambda: len(stage.alive) == 3, most=40)
    assert evicted
    assert not [name for name in evicted if not name.startswith("web-")]


@pytest.mark.parametrize(
    "pod",
    [
        {"priority_class": "system-node-critical"},
        {"priority_class": "system-cluster-critical"},
        {"namespace": "kube-system"},
        {"annotations": {"holdfast.dev/do-not-evict": "true"}},
        {"controller": ""},
    ],
    ids=["node-critical", "cluster-critical", "kube-system", "do-not-evict", "unmanaged"],
)
def test_a_node_with_a_pod_that_must_stay_is_neither_chosen_nor_cordoned(pod: dict[str, object]) -> None:
    """This is known beforehand: another node is chosen."""
    stage = idle(Stage(workers=5), pods=5)
    stage.tick()
    kept = stage.alive[0].id
    stage.world.k3s.put_pod(pod_on(kept, "extra", **pod))
    cordoned: list[PortCall] = []
    for _ in range(40):
        stage.tick(gate=CallGate(lambda call, _moment: cordoned.append(call) if call.method == "change_node" else None))
        node = stage.world.k3s.node(kept)
        assert node is not None
        assert not node.is_unschedulable
    assert kept in ids(stage)
    assert cordoned, "others were drained meanwhile"


def test_a_critical_pod_that_arrives_during_a_drain_aborts_it_and_the_machine_stays(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=4, policy=ONE_MAY_LEAVE), pods=4)
    target = first_target(stage)
    stage.world.k3s.put_pod(pod_on(target, "critical", priority_class="system-cluster-critical"))
    ticked = stage.tick_until(lambda: stage.state.down is None)
    abort = next(step for one in ticked for step in one.done if step.kind == "abort_scale_down")
    assert "default/critical: its priority class is system-cluster-critical" in abort.because
    assert target in ids(stage)
    assert not any(node.is_unschedulable for node in stage.world.k3s.nodes())


def test_a_drain_times_out_after_five_minutes_and_nothing_is_terminated(stage_of: StageMaker) -> None:
    stage = stage_of(workers=4, policy=ONE_MAY_LEAVE)
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    target = first_target(stage)
    began = stage.clock.now()
    stage.tick_until(lambda: stage.state.down is None)
    assert 300 <= stage.clock.now().seconds_since(began) <= 480
    assert target in ids(stage)
    assert stage.state.last_scale.epoch_ms == 0


def test_an_aborted_drain_opens_the_node_even_if_ec2s_list_omits_its_machine(stage_of: StageMaker) -> None:
    stage = stage_of(workers=4, policy=ONE_MAY_LEAVE)
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    target = first_target(stage)
    stage.tick_until(lambda: is_closed(stage, target))
    stage.world.ec2.omit(target)
    stage.tick_until(lambda: stage.state.down is None)
    assert not is_closed(stage, target)


def test_after_a_failed_drain_another_node_is_tried(stage_of: StageMaker) -> None:
    """The back-off is stored and grows: the node that failed is skipped for a while, longer each time."""
    stage = stage_of(workers=5)
    stage.world.k3s.run(Workload("db", 5, max_unavailable=0))
    first_target(stage)
    tried: dict[str, str] = {}
    for _ in range(120):
        stage.tick()
        if stage.state.down is not None:
            tried[stage.state.down.action] = stage.state.down.targets[0]
    first, second, *_ = tried.values()
    assert first != second
    per_node = [list(tried.values()).count(node) for node in set(tried.values())]
    assert max(per_node) <= 5, "two hours of tries every ten minutes would be twelve"


# Which nodes go


def test_the_oldest_worker_of_the_fullest_zone_leaves_first(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=3), pods=3)
    for _ in range(3):
        stage.world.add_worker("eu-west-1b", TAGS)
    in_zone = [machine for machine in stage.alive if machine.zone == "eu-west-1b"]
    oldest = min(in_zone, key=lambda machine: machine.launched)
    assert first_target(stage) == oldest.id


def test_no_zone_is_emptied_and_the_minimum_is_kept(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=6, policy=Policy(max_batch_down=5)), pods=3)
    for _ in range(60):
        stage.tick()
    assert sorted(machine.zone for machine in stage.alive) == ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
    small = idle(stage_of(workers=6, policy=Policy(min_workers=4, max_batch_down=5)), pods=3)
    for _ in range(60):
        small.tick()
    assert len(small.alive) == 4


def test_a_machine_is_matched_to_its_node_by_private_address_and_label(stage_of: StageMaker) -> None:
    """Addresses are reused: the Node of a dead machine must not be matched to a live one."""
    stage = idle(stage_of(workers=4), pods=4)
    stage.tick()
    machine = stage.alive[0]
    node = stage.world.k3s.node(machine.id)
    assert node is not None
    seen, _ = stage.cluster().look()
    worker = seen.worker(machine.id)
    assert worker is not None
    assert worker.node == node
    stage.world.k3s.put(replace(node, labels={INSTANCE_LABEL: "i-0123456789abcdef0"}))
    seen, _ = stage.cluster().look()
    worker = seen.worker(machine.id)
    assert worker is not None
    assert worker.node is None


# Scale-down and other activity


def test_the_cooldown_begins_only_with_the_completion(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=6), pods=3)
    stage.tick_until(lambda: stage.state.down is not None)
    began = stage.clock.now()
    while stage.state.down is not None:
        assert stage.state.last_scale.epoch_ms == 0, "no cooldown while the action is under way"
        stage.tick()
    completed = stage.clock.now()
    assert completed > began
    assert stage.state.last_scale == completed
    stage.tick_until(lambda: stage.state.down is not None)
    assert stage.clock.now().seconds_since(completed) >= 600


def test_a_scale_down_and_a_scale_up_never_overlap(stage_of: StageMaker) -> None:
    """Pods become pending during a drain: the scale-up waits for its end."""
    stage = idle(stage_of(workers=5, policy=Policy(cooldown_up_seconds=0)), pods=10)
    stage.tick_until(lambda: stage.state.down is not None)
    stage.world.k3s.run(Workload("more", 80))
    while stage.state.down is not None:
        assert stage.state.up is None
        stage.tick()
    stage.tick_until(lambda: stage.state.up is not None)


def test_a_spot_interruption_during_a_scale_down_is_handled_and_leaves_the_scale_down_alone(
    stage_of: StageMaker,
) -> None:
    stage = stage_of(workers=4)
    other = stage.world.add_worker("eu-west-1b", TAGS, market="spot")
    stage.world.k3s.run(Workload("web", 5, max_unavailable=1))
    target = first_target(stage)
    assert target != other.id
    before_it = {name: value for name, value in stage.item.items() if name.startswith("scaleDown")}
    noted(stage, other.id, SpotKind.INTERRUPTION)
    stage.tick(seconds=1)
    node = stage.world.k3s.node(other.id)
    assert node is not None
    assert node.is_unschedulable
    same = {name: value for name, value in stage.item.items() if name.startswith("scaleDown")}
    assert same["scaleDownActionId"] == before_it["scaleDownActionId"]
    assert same["scaleDownTargetInstanceIds"] == before_it["scaleDownTargetInstanceIds"]
    stage.tick_until(lambda: not stage.open_notices and not stage.state.is_acting)
    assert not {target, other.id} & ids(stage)


def test_after_a_termination_the_node_and_its_password_secret_are_removed(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=4), pods=4)
    target = first_target(stage)
    stage.tick_until(lambda: stage.state.down is None)
    stage.tick_until(lambda: stage.world.k3s.node(target) is None)
    assert ("kube-system", f"{target}.node-password.k3s") not in stage.world.k3s.secrets


def test_nothing_is_drained_or_terminated_twice(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=5, policy=Policy(max_batch_down=2)), pods=10)
    calls: list[str] = []

    def hook(call: PortCall, moment: CallPoint) -> None:
        if moment is CallPoint.BEFORE:
            calls.append(call.method)

    stage.gate = CallGate(hook)
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    assert calls.count("terminate") == 2
    assert calls.count("evict") == 4, "each pod is evicted once"
