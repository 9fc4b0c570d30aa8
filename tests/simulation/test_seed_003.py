"""Seed 003, scale-down: what it says beside the rules (`unit/cluster/test_decide.py`) and the item (seed 000)."""

import pytest
from msgspec.structs import replace

from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import INSTANCE_LABEL
from holdfast.cluster.spot import SpotKind
from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Node, Pod, PodPhase
from holdfast.simulator.gate import Gate, Moment, PortCall
from holdfast.simulator.k3s import Workload
from holdfast.simulator.world import DAWN
from tests.simulation.conftest import StageMaker
from tests.simulation.harness import TAGS, Stage
from tests.simulation.hooks import before
from tests.simulation.scenarios import noted


def idle(stage: Stage, pods: int = 6) -> Stage:
    stage.world.k3s.run(Workload("web", pods))
    return stage


def ids(stage: Stage) -> set[str]:
    return {machine.id for machine in stage.alive}


def pod_on(node: str, name: str, **values: object) -> Pod:
    pod = Pod("default", name, f"uid-{name}", node, PodPhase.RUNNING, DAWN, controller="ReplicaSet")
    return replace(pod, **values)


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


def test_daemonset_and_mirror_pods_are_not_touched_and_not_in_the_way(stage_of: StageMaker) -> None:
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
def test_a_pod_that_must_stay_keeps_its_node_from_being_chosen_or_cordoned(pod: dict[str, object]) -> None:
    """Known before: another one goes in its place."""
    stage = idle(Stage(workers=5), pods=5)
    stage.tick()
    kept = stage.alive[0].id
    stage.world.k3s.put_pod(pod_on(kept, "extra", **pod))
    cordoned: list[PortCall] = []
    for _ in range(40):
        stage.tick(gate=Gate(lambda call, _moment: cordoned.append(call) if call.method == "change_node" else None))
        node = stage.world.k3s.node(kept)
        assert node is not None
        assert not node.is_unschedulable
    assert kept in ids(stage)
    assert cordoned, "others were drained meanwhile"


def test_a_critical_pod_that_comes_during_the_drain_aborts_it_and_the_machine_stays(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=4), pods=4)
    target = first_target(stage)
    stage.world.k3s.put_pod(pod_on(target, "critical", priority_class="system-cluster-critical"))
    ticked = stage.tick_until(lambda: stage.state.down is None)
    abort = next(step for one in ticked for step in one.done if step.kind == "abort_scale_down")
    assert "default/critical: its priority class is system-cluster-critical" in abort.because
    assert target in ids(stage)
    assert not any(node.is_unschedulable for node in stage.world.k3s.nodes())


def test_a_drain_takes_five_minutes_at_most_and_then_nothing_is_terminated(stage_of: StageMaker) -> None:
    stage = stage_of(workers=4)
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    target = first_target(stage)
    began = stage.clock.now()
    stage.tick_until(lambda: stage.state.down is None)
    assert 300 <= stage.clock.now().seconds_since(began) <= 480
    assert target in ids(stage)
    assert stage.state.last_scale.epoch_ms == 0


def test_a_drain_that_fails_is_tried_with_another_node_next(stage_of: StageMaker) -> None:
    """Durable and growing: the one that failed is passed over for a while, for longer each time."""
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


def test_the_zone_with_the_most_workers_gives_first_and_there_the_oldest(stage_of: StageMaker) -> None:
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


def test_a_machine_is_its_nodes_by_its_private_address_confirmed_by_its_label(stage_of: StageMaker) -> None:
    """Addresses are used again: the Node object of a dead machine must not be taken for the living one's."""
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


# Beside other things


def test_the_cooldown_begins_only_with_the_completion(stage_of: StageMaker) -> None:
    stage = idle(stage_of(workers=6), pods=3)
    stage.tick_until(lambda: stage.state.down is not None)
    stage.tick_until(lambda: stage.state.down is None)
    completed = stage.state.last_scale
    stage.tick_until(lambda: stage.state.down is not None)
    assert stage.clock.now().seconds_since(completed) >= 600


def test_a_scale_down_and_a_scale_up_never_overlap(stage_of: StageMaker) -> None:
    """Pods begin to wait in the midst of a drain: the scale-up waits for its end."""
    stage = idle(stage_of(workers=5, policy=Policy(cooldown_up_seconds=0)), pods=10)
    stage.tick_until(lambda: stage.state.down is not None)
    stage.world.k3s.run(Workload("more", 80))
    while stage.state.down is not None:
        assert stage.state.up is None
        stage.tick()
    stage.tick_until(lambda: stage.state.up is not None)


def test_a_spot_interruption_is_handled_in_the_midst_of_a_scale_down_and_touches_nothing_of_it(
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

    def hook(call: PortCall, moment: Moment) -> None:
        if moment is Moment.BEFORE:
            calls.append(call.method)

    stage.gate = Gate(hook)
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    assert calls.count("terminate") == 2
    assert calls.count("evict") == 4, "each pod is asked once"
