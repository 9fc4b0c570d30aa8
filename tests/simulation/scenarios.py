"""Scenarios that run to their end, undisturbed and disturbed. Their numbers are small, so that they end soon."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.seen import ACTION_TAG, ATTEMPT_TAG, SEQUENCE_TAG, SLOT_TAG
from holdfast.cluster.spot.notice import SpotKind, store_notice
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.ports.machines import ACCEPTED_TAG, LaunchOrder, Machine, Market
from holdfast.ports.store import Key, attr, remove_all, set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import ZONES
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.harness import TAGS, Stage

CLUSTER = ClusterId("cluster")
QUICK = Policy(
    pending_up_seconds=60,
    idle_down_seconds=120,
    cooldown_up_seconds=120,
    cooldown_down_seconds=120,
    join_timeout_seconds=240,
    drain_seconds=120,
    stuck_seconds=300,
    not_ready_seconds=240,
)


@dataclass(frozen=True)
class Scenario:
    """How it begins, when it is over, how many workers there are then, and how often it ticks."""

    begin: Callable[[], Stage]
    is_over: Callable[[Stage], bool]
    workers: int
    seconds: float = 60


def is_clear(stage: Stage) -> bool:
    return not stage.state.is_acting and stage.state.left_plan is None


def has_scaled(stage: Stage) -> bool:
    return stage.state.last_scale.epoch_ms > 0 and not stage.state.is_acting


def is_settled(stage: Stage) -> bool:
    """Every notice has been handled, and no action is under way."""
    return stage.world.chosen and not stage.open_notices and not stage.state.is_acting  # type: ignore[attr-defined]


# Scaling


def scale_up(**policy: object) -> Stage:
    stage = Stage(policy=replace(QUICK, **policy))  # type: ignore[arg-type]
    stage.world.k3s.run(Workload("web", 35))
    return stage


def partial_launch() -> Stage:
    """The emptiest zone has no capacity of the first type, and no spot capacity at all."""
    stage = scale_up()
    zone = stage.world.subnets[2].zone
    for instance_type, market in (
        ("t3.medium", Market.SPOT),
        ("t3a.medium", Market.SPOT),
        ("t3.medium", Market.ON_DEMAND),
    ):
        stage.world.ec2.run_out(instance_type, zone, market)
    return stage


def no_capacity_anywhere() -> Stage:
    """No capacity anywhere, then some."""
    stage = scale_up()
    for subnet in stage.world.subnets:
        for instance_type in stage.choices.instance_types:
            for market in Market:
                stage.world.ec2.run_out(instance_type, subnet.zone, market)
                stage.clock.after(500, partial(stage.world.ec2.restock, instance_type, subnet.zone, market))
    return stage


def join_timeout() -> Stage:
    stage = scale_up()
    stage.world.joins = False
    stage.clock.after(360, partial(setattr, stage.world, "joins", True))
    return stage


def scale_down() -> Stage:
    stage = Stage(workers=5, policy=replace(QUICK, max_batch_down=2))
    stage.world.k3s.run(Workload("web", 6))
    return stage


def drain_blocked() -> Stage:
    stage = Stage(workers=4, policy=QUICK)
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    stage.clock.after(600, partial(stage.world.k3s.run, Workload("db", 4)))
    return stage


# Interruptions and broken nodes


def with_spot(workers: int = 3, pods: int = 15, **policy: object) -> tuple[Stage, Machine]:
    """A calm cluster, and one of its spot machines."""
    # Too busy to scale down, and too calm to scale up.
    stage = Stage(workers=workers - 1, policy=replace(QUICK, **policy))  # type: ignore[arg-type]
    machine = stage.world.add_worker("eu-west-1c", TAGS, market="spot")
    stage.world.k3s.run(Workload("web", pods))
    stage.tick()
    stage.world.chosen = machine.id  # type: ignore[attr-defined]
    return stage, machine


def noted(stage: Stage, instance: InstanceId, kind: SpotKind) -> None:
    store_notice(stage.store, CLUSTER, instance, kind, stage.clock.now())
    if kind is SpotKind.INTERRUPTION:
        stage.world.ec2.interrupt(instance)


def interruption() -> Stage:
    stage, machine = with_spot()
    noted(stage, machine.id, SpotKind.INTERRUPTION)
    return stage


def interruption_of_one_of_two() -> Stage:
    """At the minimum: the replacement is the only machine that is launched."""
    stage, machine = with_spot(workers=2, pods=10)
    noted(stage, machine.id, SpotKind.INTERRUPTION)
    return stage


def interruption_without_capacity() -> Stage:
    stage = interruption()
    for subnet in stage.world.subnets:
        stage.world.ec2.run_out("t3.medium", subnet.zone, Market.SPOT)
    return stage


def rebalance() -> Stage:
    stage, machine = with_spot(rebalance=Rebalance.REPLACE)
    noted(stage, machine.id, SpotKind.REBALANCE)
    return stage


def undrainable_hint() -> Stage:
    """Its replacement joins, but its pods cannot be evicted: it stays, and is uncordoned."""
    stage = rebalance()
    stage.world.k3s.run(Workload("web", 20, max_unavailable=0))
    return stage


def rebalance_then_interruption() -> Stage:
    stage = rebalance()
    instance = stage.world.chosen  # type: ignore[attr-defined]
    stage.clock.after(45, partial(noted, stage, instance, SpotKind.INTERRUPTION))
    return stage


def replacement_interrupted() -> Stage:
    """The replacement of an interrupted machine is interrupted as well."""
    stage = interruption()
    stage.clock.after(70, partial(_interrupt_newest, stage))
    return stage


def _interrupt_newest(stage: Stage) -> None:
    newest = max(stage.alive, key=lambda machine: machine.launched)
    if newest.market is Market.SPOT:
        noted(stage, newest.id, SpotKind.INTERRUPTION)


def replacement_never_joins() -> Stage:
    stage = interruption()
    stage.world.joins = False
    stage.clock.after(240, partial(setattr, stage.world, "joins", True))
    return stage


def interruption_during_drain() -> Stage:
    """EC2 interrupts the machine that a scale-down is draining."""
    stage = Stage(workers=5, policy=replace(QUICK, min_workers=4))
    stage.world.k3s.run(Workload("web", 5, max_unavailable=1))
    for _ in range(20):
        stage.tick()
        if stage.state.down is not None:
            break
    assert stage.state.down is not None
    stage.world.chosen = stage.state.down.targets[0]  # type: ignore[attr-defined]
    noted(stage, stage.state.down.targets[0], SpotKind.INTERRUPTION)
    return stage


def not_ready() -> Stage:
    """A node loses its kubelet; its machine keeps running."""
    stage, machine = with_spot(workers=4, pods=20)
    stage.world.k3s.lose(machine.id)
    stage.clock.sleep(60)
    return stage


def not_ready_is_replaced(stage: Stage) -> bool:
    instance = stage.world.chosen  # type: ignore[attr-defined]
    return is_settled(stage) and all(machine.id != instance for machine in stage.alive)


# Nodes that are registered anew


def registered_anew(*, many: bool = False, are_tags_refused: bool = False) -> Stage:
    """Workers that an action launched, with pods; then their Node objects are deleted and registered anew."""
    stage = scale_up()
    stage.world.ec2.is_tagging_refused = are_tags_refused
    stage.tick_until(lambda: has_scaled(stage))
    stage.clock.sleep(600)
    machines = [machine.id for machine in stage.alive]
    for instance in machines if many else machines[-1:]:
        stage.world.register_anew(instance)
    stage.world.chosen = set(machines)  # type: ignore[attr-defined]
    return stage


def are_in_service_again(stage: Stage) -> bool:
    is_same = {machine.id for machine in stage.alive} == stage.world.chosen  # type: ignore[attr-defined]
    return is_same and not any(node.taints for node in stage.world.k3s.nodes())


def unmarked() -> Stage:
    """Workers of an older version, which wrote no tag on them."""
    stage = Stage(workers=0, policy=QUICK)
    for zone in ZONES:
        stage.world.add_worker(zone, TAGS, is_marked=False)
    stage.world.k3s.run(Workload("web", 25))
    return stage


def are_marked(stage: Stage) -> bool:
    return all(ACCEPTED_TAG in machine.tags for machine in stage.alive)


# Leftovers of dead processes and older autoscalers


def orphan() -> Stage:
    """A dead process launched a machine for an action that is over, and a node has lost its machine."""
    stage = Stage(workers=4, policy=replace(QUICK, min_workers=3))
    stage.world.k3s.run(Workload("web", 15))
    stage.tick()
    stage.world.chosen = stage.alive[0].id  # type: ignore[attr-defined]
    stage.store.update(STATE, Key("cluster"), attr("actionSeq").set_to(7))
    stage.world.joins = False
    launch(stage, "zombie", {ACTION_TAG: "1700000000-3-old", SEQUENCE_TAG: "7", SLOT_TAG: "0", ATTEMPT_TAG: "0"})
    stage.world.ec2.terminate(stage.alive[0].id)
    return stage


def is_swept(stage: Stage) -> bool:
    return len(stage.alive) == 3 and len(stage.world.k3s.nodes()) == 3


def launch(stage: Stage, token: str, tags: dict[str, str]) -> InstanceId:
    subnet = stage.world.subnets[0]
    order = LaunchOrder(token, "lt-0abc:3", "t3.medium", Market.SPOT, subnet.id, subnet.zone, {**TAGS, **tags}, "")
    return stage.world.ec2.launch(order).id


def legacy_scale_up() -> Stage:
    """An older autoscaler began, launched two machines, and died before it recorded them."""
    stage = Stage(policy=QUICK)
    stage.world.k3s.run(Workload("web", 30))
    write_seed_item(stage, scaleUpActionId="1730000300-req-xyz", scaleUpRequested=2, scaleUpInstanceIds=[])
    for number in range(2):
        launch(stage, f"legacy-{number}", {})
    return stage


def legacy_scale_down() -> Stage:
    """An older autoscaler says that it is terminating; of its two targets one is done."""
    stage = Stage(workers=5, policy=QUICK)
    stage.world.k3s.run(Workload("web", 6))
    stage.tick()
    first, second = stage.alive[0].id, stage.alive[1].id
    stage.world.ec2.terminate(first)
    targets = {"scaleDownTargetInstanceIds": [first, second], "scaleDownCompletedInstanceIds": [first]}
    write_seed_item(stage, scaleDownActionId="1730000300-req-xyz", scaleDownPhase="TERMINATING", **targets)
    return stage


def ended_plan() -> Stage:
    """An older autoscaler took a scale-up of ours for its own, and completed it; the nodes have our taint."""
    stage = scale_up()
    stage.tick_until(lambda: stage.state.up is not None)
    stage.clock.sleep(100)
    names = ("scaleUpActionId", "scaleUpStartedEpoch", "scaleUpRequested", "scaleUpInstanceIds")
    now = stage.clock.now().epoch_seconds
    end = set_all({"scalingInProgress": False, "lastScaleEpoch": now}) + remove_all(*names)
    stage.store.update(STATE, Key("cluster"), end)
    return stage


def ended_commit() -> Stage:
    """An older autoscaler cleared a scale-down of ours that it took for stuck, just after a machine was committed."""
    stage = Stage(workers=4, policy=QUICK)
    stage.world.k3s.run(Workload("web", 4))
    gate = CallGate(_killed_at_termination)
    for _ in range(20):
        stage.tick(gate=gate)
        if gate.is_dead:
            break
    assert stage.item["scaleDownCommitted"]
    names = ("ActionId", "StartedEpoch", "Phase", "TargetInstanceIds", "CompletedInstanceIds")
    end = set_all({"scalingInProgress": False}) + remove_all(*(f"scaleDown{name}" for name in names))
    stage.store.update(STATE, Key("cluster"), end)
    return stage


def _killed_at_termination(call: PortCall, moment: CallPoint) -> None:
    if call.method == "terminate" and moment is CallPoint.BEFORE:
        raise Killed


def write_seed_item(stage: Stage, **values: object) -> None:
    """An action under way, as the seeds write it."""
    kind = "scaleUp" if "scaleUpActionId" in values else "scaleDown"
    started = {f"{kind}StartedEpoch": stage.clock.now().epoch_seconds}
    stage.store.update(STATE, Key("cluster"), set_all({"scalingInProgress": True, **started, **values}))


SCENARIOS = {
    "scale up": Scenario(scale_up, has_scaled, 4),
    "partial launch": Scenario(partial_launch, has_scaled, 4),
    "nothing to be had": Scenario(no_capacity_anywhere, has_scaled, 4),
    "join timeout": Scenario(join_timeout, has_scaled, 4),
    "scale down": Scenario(scale_down, has_scaled, 3),
    "drain blocked": Scenario(drain_blocked, has_scaled, 3),
    "interruption": Scenario(interruption, is_settled, 3, 20),
    "interruption of one of two": Scenario(interruption_of_one_of_two, is_settled, 2, 20),
    "interruption without spot capacity": Scenario(interruption_without_capacity, is_settled, 3, 20),
    "rebalance, replaced": Scenario(rebalance, is_settled, 3, 20),
    "rebalance, then interruption": Scenario(rebalance_then_interruption, is_settled, 3, 20),
    "replacement interrupted": Scenario(replacement_interrupted, is_settled, 3, 20),
    "replacement never joins": Scenario(replacement_never_joins, is_settled, 2, 20),
    "interruption during a drain": Scenario(interruption_during_drain, is_settled, 4, 20),
    "node stays NotReady": Scenario(not_ready, not_ready_is_replaced, 4),
    "orphan and left-over node": Scenario(orphan, is_swept, 3),
    "scale-up of an older autoscaler": Scenario(legacy_scale_up, has_scaled, 4),
    "scale-down of an older autoscaler": Scenario(legacy_scale_down, has_scaled, 3),
    "plan that an older autoscaler ended": Scenario(ended_plan, is_clear, 4),
    "commit that an older autoscaler ended": Scenario(ended_commit, has_scaled, 3),
    "node registered anew": Scenario(registered_anew, are_in_service_again, 4),
    "all nodes registered anew": Scenario(partial(registered_anew, many=True), are_in_service_again, 4),
    "nodes registered anew, tags refused": Scenario(
        partial(registered_anew, many=True, are_tags_refused=True), are_in_service_again, 4
    ),
    "workers without the tag": Scenario(unmarked, are_marked, 3),
    "hint that cannot be drained": Scenario(undrainable_hint, is_settled, 4),
}
