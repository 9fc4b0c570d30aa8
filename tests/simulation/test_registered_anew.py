"""A worker in service whose Node is registered anew stays: it has the start-up taint again, and is accepted again.

`kubectl delete node` does it to one node, a restored snapshot to all that are younger; their pods run on.
"""

import pytest
from msgspec.structs import replace

from holdfast.cluster.plan import TickResult
from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import (
    ACTION_TAG,
    ATTEMPT_TAG,
    CONDEMNED_ANNOTATION,
    INSTANCE_LABEL,
    SEQUENCE_TAG,
    SLOT_TAG,
    UNVERIFIED_TAINT,
)
from holdfast.cluster.spot.notice import SpotKind, store_notice
from holdfast.cluster.sweeping.sweep import MARKED_MOST
from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Pod, PodPhase, Taint
from holdfast.ports.machines import ACCEPTED_TAG, LaunchOrder, MachineError, Market
from holdfast.ports.store import Key, attr
from holdfast.ports.store.tables import STATE
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import ZONES
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.harness import TAGS, Stage, StageMaker

HOURS = 3
CALM = Policy(idle_down_seconds=10**6, join_timeout_seconds=300)


def ids(stage: Stage) -> set[str]:
    return {machine.id for machine in stage.alive}


def tags_of(stage: Stage, instance: str) -> dict[str, str]:
    return dict(next(machine.tags for machine in stage.alive if machine.id == instance))


def tainted(stage: Stage) -> list[str]:
    return [node.name for node in stage.world.k3s.nodes() if node.taints]


def kinds(results: list[TickResult | None]) -> list[str]:
    return [step.kind for result in results if result is not None for step in result.done]


def ticked(stage: Stage, times: int) -> list[TickResult | None]:
    return [stage.tick() for _ in range(times)]


def grown(stage: Stage) -> str:
    """A stage with two more workers, which an action launched; the name of the last."""
    before = ids(stage)
    stage.world.k3s.run(Workload("web", 35))
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0 and not stage.state.is_acting)
    assert len(ids(stage) - before) == 2
    return stage.alive[-1].id


def empty(stage: Stage) -> None:
    stage.world.k3s.run(Workload("web", 0))


def add_pod(stage: Stage, node: str, controller: str = "ReplicaSet", name: str = "late") -> None:
    now = stage.clock.now()
    pod = Pod("default", name, f"uid-{name}", node, PodPhase.RUNNING, now, controller=controller)
    stage.world.k3s.put_pod(pod)


def test_a_worker_with_pods_whose_node_is_deleted_and_registered_anew_stays(stage_of: StageMaker) -> None:
    stage = stage_of(policy=CALM)
    worker = grown(stage)
    before, launches = ids(stage), len(stage.world.ec2.launches)
    pods = {pod.uid for pod in stage.world.k3s.all_pods(worker)}
    assert pods
    stage.clock.sleep(3600)
    stage.world.register_anew(InstanceId(worker))
    assert tainted(stage) == [worker]
    results = ticked(stage, HOURS * 60)
    assert ids(stage) == before
    assert tainted(stage) == []
    assert kinds(results).count("accept_again") == 1
    assert {pod.uid for pod in stage.world.k3s.all_pods(worker)} == pods
    assert len(stage.world.ec2.launches) == launches


def test_when_all_nodes_are_registered_anew_at_once_all_stay() -> None:
    """And nothing is launched in their place: they are workers, whatever their nodes say."""
    stage = Stage(policy=replace_policy(min_workers=4))
    grown(stage)
    before, launches = ids(stage), len(stage.world.ec2.launches)
    stage.clock.sleep(3600)
    for name in sorted(before):
        stage.world.register_anew(InstanceId(name))
    results = ticked(stage, HOURS * 60)
    assert ids(stage) == before
    assert tainted(stage) == []
    assert kinds(results).count("accept_again") == 4
    assert len(stage.world.ec2.launches) == launches


def replace_policy(**values: int) -> Policy:
    return Policy(**{"idle_down_seconds": 10**6, "join_timeout_seconds": 300, **values})  # type: ignore[arg-type]


def test_a_worker_without_pods_is_known_by_its_tag() -> None:
    stage = Stage(policy=CALM)
    worker = grown(stage)
    empty(stage)
    before = ids(stage)
    stage.clock.sleep(3600)
    stage.world.register_anew(InstanceId(worker))
    ticked(stage, HOURS * 60)
    assert ids(stage) == before
    assert tainted(stage) == []


def test_a_worker_known_by_its_pods_alone_is_accepted_and_tagged_once() -> None:
    stage = Stage(policy=CALM)
    worker = InstanceId(grown(stage))
    machine = next(found for found in stage.alive if found.id == worker)
    without = {name: value for name, value in machine.tags.items() if name != ACCEPTED_TAG}
    stage.world.ec2._machines[worker] = replace(machine, tags=without)
    stage.world.register_anew(worker)
    done = kinds(ticked(stage, 3))
    assert (done.count("accept_again"), done.count("mark_accepted")) == (1, 0)
    assert ACCEPTED_TAG in tags_of(stage, worker)


def test_a_worker_whose_node_is_gone_for_a_while_stays() -> None:
    stage = Stage(policy=CALM)
    worker = grown(stage)
    empty(stage)
    before = ids(stage)
    stage.clock.sleep(3600)
    stage.world.register_anew(InstanceId(worker), absent_seconds=1800)
    ticked(stage, 20)
    assert stage.world.k3s.node(worker) is None
    ticked(stage, HOURS * 60)
    assert ids(stage) == before
    assert tainted(stage) == []


def test_pods_outlive_their_node_and_keep_a_machine_without_a_tag() -> None:
    stage = Stage(policy=CALM)
    stage.world.ec2.is_tagging_refused = True
    worker = grown(stage)
    before = ids(stage)
    stage.clock.sleep(3600)
    stage.world.k3s.unregister(worker)
    ticked(stage, HOURS * 60)
    assert ids(stage) == before


@pytest.mark.parametrize("many", [False, True])
def test_with_the_tag_refused_its_pods_keep_a_worker(many: bool) -> None:
    stage = Stage(policy=CALM)
    stage.world.ec2.is_tagging_refused = True
    worker = grown(stage)
    assert ACCEPTED_TAG not in tags_of(stage, worker), "the machine is in service without it"
    before = ids(stage)
    stage.clock.sleep(3600)
    for name in sorted(before) if many else [worker]:
        stage.world.register_anew(InstanceId(name))
    ticked(stage, HOURS * 60)
    assert ids(stage) == before
    assert tainted(stage) == []


# The tag


def test_the_tag_is_written_before_the_start_up_taint_is_removed(stage_of: StageMaker) -> None:
    stage = stage_of(policy=CALM)
    seen: list[str] = []

    def hook(call: PortCall, moment: CallPoint) -> None:
        if moment is CallPoint.AFTER and call.method in ("mark_accepted", "change_node", "launch"):
            seen.append(call.method)

    stage.gate = CallGate(hook)
    worker = grown(stage)
    assert seen == ["launch", "launch", "mark_accepted", "change_node", "mark_accepted", "change_node"]
    (order, _), *_ = (each for each in stage.world.ec2.launches if each[1] == worker)
    assert ACCEPTED_TAG not in order.tags, "a launch does not set it"
    assert tags_of(stage, worker)[ACCEPTED_TAG] == order.tags[ACTION_TAG]


def test_a_process_that_dies_between_tag_and_taint_leaves_a_worker() -> None:
    """At the join timeout its machine bears the tag, so it is not terminated; the sweeper finishes the acceptance."""
    stage = Stage(policy=CALM)
    stage.world.k3s.run(Workload("web", 35))
    stage.gate = CallGate(dying_before_taint)
    stage.tick_until(lambda: any(ACCEPTED_TAG in tags_of(stage, name) for name in tainted(stage)))
    (marked,) = (name for name in tainted(stage) if ACCEPTED_TAG in tags_of(stage, name))
    stage.clock.sleep(CALM.join_timeout_seconds)
    ticked(stage, 10)
    assert marked in tainted(stage)
    stage.gate = None
    empty(stage)
    stage.tick_until(lambda: not tainted(stage) and not stage.state.is_acting)
    assert marked in ids(stage)


def dying_before_taint(call: PortCall, moment: CallPoint) -> None:
    if call.method == "change_node" and moment is CallPoint.BEFORE:
        raise Killed


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "RequestTimeout", "InvalidInstanceID.NotFound"])
def test_a_tag_that_may_be_accepted_later_is_waited_for(code: str) -> None:
    """Without it, a Node that is registered anew would be taken for one that never came into service."""
    stage, broken = Stage(policy=replace_policy(join_timeout_seconds=900)), [True]

    def hook(call: PortCall, moment: CallPoint) -> None:
        if broken[0] and call.method == "mark_accepted" and moment is CallPoint.BEFORE:
            raise MachineError(code, "simulated")

    stage.gate = CallGate(hook)
    stage.world.k3s.run(Workload("web", 35))
    stage.tick_until(lambda: len(tainted(stage)) == 2)
    ticked(stage, 2)
    assert len(tainted(stage)) == 2
    broken[0] = False
    stage.tick_until(lambda: not stage.state.is_acting)
    assert tainted(stage) == []
    assert all(ACCEPTED_TAG in machine.tags for machine in stage.alive)


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "TagLimitExceeded", "SomethingNew"])
def test_a_refused_tag_is_reported_and_does_not_stop_scaling(code: str) -> None:
    stage = Stage(policy=CALM)

    def hook(call: PortCall, moment: CallPoint) -> None:
        if call.method == "mark_accepted" and moment is CallPoint.BEFORE:
            raise MachineError(code, "not this one")

    stage.gate = CallGate(hook)
    stage.world.k3s.run(Workload("web", 35))
    results = stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0 and not stage.state.is_acting)
    assert len(stage.alive) == 4
    assert tainted(stage) == []
    reports = [report for result in results for report in result.reports]
    assert any(f"could not be tagged with {ACCEPTED_TAG}: {code}: not this one" in report for report in reports)


# Workers of an older version


def older(workers: int, stage: Stage) -> Stage:
    for number in range(workers):
        stage.world.add_worker(ZONES[number % len(ZONES)], TAGS, is_marked=False)
    return stage


def marked_count(stage: Stage) -> int:
    return sum(ACCEPTED_TAG in machine.tags for machine in stage.alive)


def test_workers_of_an_older_version_are_tagged_some_in_each_tick_and_then_ticks_are_quiet(
    stage_of: StageMaker,
) -> None:
    policy = replace_policy(max_workers=40)
    stage = older(MARKED_MOST + 3, stage_of(workers=0, policy=policy))
    stage.tick()
    assert marked_count(stage) == MARKED_MOST
    stage.tick()
    assert marked_count(stage) == MARKED_MOST + 3
    fence = stage.state.fence
    ticked(stage, 10)
    assert stage.state.fence == fence


def test_while_the_tag_is_refused_only_few_ticks_take_the_lease() -> None:
    stage = older(3, Stage(workers=0, policy=CALM))
    stage.world.ec2.is_tagging_refused = True
    fence = stage.state.fence
    first = stage.tick()
    assert first is not None
    assert sum("could not be tagged" in report for report in first.reports) == 3
    ticked(stage, 24 * 60)
    assert stage.state.fence - fence <= 30, "about once an hour"
    stage.world.ec2.is_tagging_refused = False
    ticked(stage, 70)
    assert marked_count(stage) == 3
    remembered = stage.store.get(STATE, Key("cluster#capacity")) or {}
    assert "tag|accepted" not in remembered, "the next refusal is the first one again"


# What is still terminated, and what is not


def orphan(stage: Stage) -> str:
    """A machine of an action that is over; its node joins with the start-up taint."""
    stage.store.update(STATE, Key("cluster"), attr("actionSeq").set_to(7))
    tags = {**TAGS, ACTION_TAG: "1700000000-3-old", SEQUENCE_TAG: "7", SLOT_TAG: "0", ATTEMPT_TAG: "0"}
    subnet = stage.world.subnets[0]
    order = LaunchOrder("zombie", "lt-0abc:3", "t3.medium", Market.SPOT, subnet.id, subnet.zone, tags, "user data")
    machine = stage.world.ec2.launch(order)
    stage.clock.sleep(200)
    assert tainted(stage) == [machine.id]
    return machine.id


def test_a_daemonsets_pod_does_not_keep_a_machine_that_never_came_into_service() -> None:
    stage = Stage(policy=CALM)
    name = orphan(stage)
    add_pod(stage, name, controller="DaemonSet")
    stage.tick_until(lambda: name not in ids(stage), most=20)


def test_a_pod_that_is_bound_just_before_the_cordon_is_seen_after_it() -> None:
    """Decided without the pod; the pods are read again once the node is cordoned."""
    stage = Stage(policy=CALM)
    name = orphan(stage)

    def hook(call: PortCall, moment: CallPoint) -> None:
        if call.method == "change_node" and moment is CallPoint.BEFORE:
            add_pod(stage, name)

    stage.clock.sleep(200)
    stage.gate = CallGate(hook)
    stage.tick()
    condemned = stage.world.k3s.node(name)
    assert condemned is not None
    assert CONDEMNED_ANNOTATION in condemned.annotations
    stage.gate = None
    ticked(stage, 10)
    assert name in ids(stage)
    kept = stage.world.k3s.node(name)
    assert kept is not None
    assert not kept.taints
    assert not kept.is_unschedulable, "the cordon that condemned it is undone"


def test_a_persons_cordon_stays_when_a_condemned_node_is_kept() -> None:
    stage = Stage(policy=CALM)
    name = orphan(stage)
    node = stage.world.k3s.node(name)
    assert node is not None
    stage.world.k3s.put(replace(node, is_unschedulable=True))

    def hook(call: PortCall, moment: CallPoint) -> None:
        if call.method == "change_node" and moment is CallPoint.BEFORE:
            add_pod(stage, name)

    stage.clock.sleep(200)
    stage.gate = CallGate(hook)
    stage.tick()
    stage.gate = None
    ticked(stage, 10)
    kept = stage.world.k3s.node(name)
    assert kept is not None
    assert kept.is_unschedulable
    assert not kept.taints


def test_pods_that_have_left_since_they_were_listed_do_not_take_a_machine_into_service() -> None:
    stage = Stage(policy=CALM)
    name = orphan(stage)
    add_pod(stage, name)

    def hook(call: PortCall, moment: CallPoint) -> None:
        if call.method == "pods" and moment is CallPoint.AFTER:
            stage.world.k3s.remove_pod("uid-late")

    stage.tick(gate=CallGate(hook))
    assert tainted(stage) == [name]
    stage.tick_until(lambda: name not in ids(stage), most=20)


def test_a_tag_that_a_list_does_not_show_yet_is_read_before_the_cordon() -> None:
    stage = Stage(policy=CALM)
    name = orphan(stage)
    stage.clock.sleep(200)

    def hook(call: PortCall, moment: CallPoint) -> None:
        if call.method == "tagged" and moment is CallPoint.AFTER:
            stage.world.ec2.tag_now(InstanceId(name), {ACCEPTED_TAG: "by another process"})

    stage.gate = CallGate(hook)
    stage.tick()
    assert name in ids(stage)
    node = stage.world.k3s.node(name)
    assert node is not None
    assert not node.is_unschedulable


def test_a_tag_written_by_a_slow_process_after_the_cordon_does_not_leak_the_machine() -> None:
    """From the cordon on no process can accept the node, so the tag is that of an acceptance that failed."""
    stage = Stage(policy=CALM)
    name = orphan(stage)
    stage.clock.sleep(200)

    def hook(call: PortCall, moment: CallPoint) -> None:
        if call.method == "terminate" and moment is CallPoint.BEFORE:
            raise Killed

    stage.tick(gate=CallGate(hook))
    stage.world.ec2.tag_now(InstanceId(name), {ACCEPTED_TAG: "too late"})
    stage.tick_until(lambda: name not in ids(stage), most=20)


def test_at_the_join_timeout_a_worker_that_was_registered_anew_stays() -> None:
    """One of two machines never joins; the other was accepted, and its Node is registered anew just before."""
    stage = Stage(policy=CALM)
    stage.world.joins = False
    stage.world.k3s.run(Workload("web", 35))
    stage.tick_until(lambda: len(stage.alive) == 4)
    joined, second = stage.alive[2], stage.alive[3].id
    first = joined.id
    stage.clock.sleep(30)
    taint = Taint(UNVERIFIED_TAINT, "true", "NoSchedule")
    stage.world.k3s.join(first, first, joined.private_ip or "", {INSTANCE_LABEL: first}, (taint,))
    stage.tick_until(lambda: not tainted(stage), seconds=10)
    stage.clock.sleep(CALM.join_timeout_seconds)
    stage.world.register_anew(first)
    empty(stage)
    stage.tick_until(lambda: not stage.state.is_acting and second not in ids(stage))
    ticked(stage, 30)
    assert first in ids(stage)
    assert tainted(stage) == []


def test_a_replacement_that_is_given_up_stays_if_it_bears_the_tag() -> None:
    stage = Stage(workers=2, policy=CALM)
    leaving = stage.world.add_worker(ZONES[0], TAGS, "spot").id
    stage.clock.sleep(30)
    stage.tick()
    store_notice(stage.store, stage.name, leaving, SpotKind.INTERRUPTION, stage.clock.now())
    stage.world.ec2.interrupt(leaving)
    stage.gate = CallGate(dying_before_taint)
    stage.tick_until(lambda: any(ACCEPTED_TAG in tags_of(stage, name) for name in tainted(stage)), seconds=20)
    (replacement,) = tainted(stage)
    node = stage.world.k3s.node(replacement)
    assert node is not None
    stage.world.k3s.put(replace(node, is_ready=False))
    stage.clock.sleep(CALM.join_timeout_seconds)
    stage.gate = None
    stage.tick_until(lambda: not stage.open_notices)
    node = stage.world.k3s.node(replacement)
    assert node is not None
    stage.world.k3s.put(replace(node, is_ready=True))
    stage.tick_until(lambda: not tainted(stage))
    assert replacement in ids(stage)


def test_a_worker_that_is_not_ready_after_it_was_registered_anew_is_replaced() -> None:
    """It is drained like any other, not left for ever with its taint."""
    stage = Stage(policy=replace_policy(not_ready_seconds=600))
    worker = grown(stage)
    empty(stage)
    stage.world.register_anew(InstanceId(worker))
    node = stage.world.k3s.node(worker)
    assert node is not None
    stage.world.k3s.put(replace(node, is_ready=False, ready_changed=stage.clock.now()))
    stage.tick_until(lambda: worker not in ids(stage))
    stage.tick_until(lambda: not stage.open_notices)
    assert len(stage.alive) == 4


def test_a_committed_node_that_was_registered_anew_with_pods_is_drained_again() -> None:
    """It was killed just before the termination; the restored snapshot also has a pod on that node again."""
    stage = Stage(workers=4, policy=Policy(idle_down_seconds=120, cooldown_down_seconds=60, min_workers=3))

    def hook(call: PortCall, moment: CallPoint) -> None:
        if call.method == "terminate" and moment is CallPoint.BEFORE:
            raise Killed

    stage.gate = CallGate(hook)
    stage.tick_until(lambda: bool(stage.item.get("scaleDownCommitted")))
    stage.gate = None
    (target,) = stage.item["scaleDownCommitted"]
    stage.world.register_anew(InstanceId(target))
    add_pod(stage, target)
    carried: list[bool] = []

    def watch(call: PortCall, moment: CallPoint) -> None:
        if call.method == "terminate" and moment is CallPoint.BEFORE:
            node = stage.world.k3s.node(target)
            carried.append(bool(stage.world.k3s.all_pods(target)) or node is None or not node.is_unschedulable)

    stage.gate = CallGate(watch)
    stage.tick_until(lambda: target not in ids(stage))
    assert carried == [False], "cordoned, and without pods"
