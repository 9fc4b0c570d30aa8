"""Spot interruptions and rebalance hints: independent of scaling, and safe during it."""

import pytest

from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.seen import INSTANCE_LABEL, SPOT_ANNOTATION, UNVERIFIED_TAINT
from holdfast.cluster.spot.notice import Replacement, SpotKind, notice_key, read_notice, store_notice
from holdfast.cluster.state import cluster_ledger
from holdfast.control.lease import acquire
from holdfast.control.pause import Pause, end_pause, set_pause
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.ports.kube import Taint
from holdfast.ports.machines import Machine
from holdfast.ports.store import Key
from holdfast.ports.store.tables import STATE
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import ZONES
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.harness import TAGS, Stage, StageMaker

CLUSTER = ClusterId("cluster")


def interrupt(stage: Stage, machine: Machine) -> None:
    """EC2 sends an interruption notice; it is stored and handled by a tick at once."""
    stage.world.ec2.interrupt(machine.id)
    store_notice(stage.store, CLUSTER, machine.id, SpotKind.INTERRUPTION, stage.clock.now())
    stage.tick(seconds=1)


def open_notices(stage: Stage) -> frozenset[str]:
    item = stage.store.get(STATE, Key("cluster#spots")) or {}
    return frozenset(item.get("open", ()))


def test_an_interrupted_machine_is_drained_and_replaced_before_it_is_gone(stage_of: StageMaker) -> None:
    stage = stage_of(workers=3)
    stage.world.k3s.run(Workload("web", 24))
    stage.tick()
    victim = stage.alive[0]
    interrupt(stage, victim)
    node = stage.world.k3s.node(victim.id)
    assert node is not None
    assert node.is_unschedulable
    assert node.annotations[SPOT_ANNOTATION].startswith(f"{victim.id}@")
    assert len(stage.alive) == 4, "the replacement is launched at once"
    stage.tick(seconds=5)
    stage.tick(seconds=20)
    assert stage.world.k3s.pods_on(victim.id) == []
    stage.tick_until(lambda: not open_notices(stage))
    assert len(stage.alive) == 3
    assert victim.id not in {machine.id for machine in stage.alive}
    assert all(pod.node for pod in stage.world.k3s.pods())
    assert stage.state.last_scale.epoch_ms == 0, "a replacement starts no cooldown"


def test_accepting_a_replacement_does_not_stop_the_tick(stage_of: StageMaker) -> None:
    """It is accepted once: with the old taint and the new mark, it would look like a node that registered anew."""
    stage = stage_of(workers=3)
    stage.tick()
    interrupt(stage, stage.alive[0])
    ticks = [stage.tick(seconds=5) for _ in range(40)]
    accepting = [tick for tick in ticks if tick and any(step.kind == "accept_replacement" for step in tick.done)]
    assert len(accepting) == 1
    assert (accepting[0].stopped, accepting[0].has_failed) == (None, False)
    kinds = {step.kind for tick in ticks if tick for step in tick.done}
    assert not kinds & {"accept_again", "mark_accepted"}


def test_the_same_notice_twice_replaces_once(stage_of: StageMaker) -> None:
    stage = stage_of(workers=3)
    stage.tick()
    victim = stage.alive[0]
    interrupt(stage, victim)
    assert store_notice(stage.store, CLUSTER, victim.id, SpotKind.INTERRUPTION, stage.clock.now()) is False
    assert store_notice(stage.store, CLUSTER, victim.id, SpotKind.REBALANCE, stage.clock.now()) is False
    stage.tick(seconds=1)
    stage.tick_until(lambda: not open_notices(stage))
    assert len(stage.world.ec2.launches) == 4
    assert len(stage.alive) == 3


def test_a_notice_is_closed_though_ec2_forgot_the_machine_before_its_replacement_joined(stage_of: StageMaker) -> None:
    """Found by seed 10310, where no zone had capacity for so long. EC2 lists terminated machines for an hour."""
    stage = stage_of(workers=3)
    stage.tick()
    pause = Pause("ann", stage.clock.now(), "")
    set_pause(stage.store, CLUSTER, pause)
    interrupt(stage, stage.alive[0])
    stage.tick_until(lambda: len(stage.alive) == 2)
    stage.clock.sleep(3700)
    stage.tick()
    assert len(open_notices(stage)) == 1, "it waits for its replacement"
    assert end_pause(stage.store, CLUSTER, pause, "ann", stage.clock.now()).is_done
    ticked = stage.tick_until(lambda: not open_notices(stage))
    assert len(stage.alive) == 3
    assert [alarm for one in ticked for alarm in one.notifications] == [], "a machine that EC2 forgot raises no alarm"


def test_a_replacement_never_exceeds_the_maximum(stage_of: StageMaker) -> None:
    """The leaving machine is not counted, so there is room for exactly one."""
    stage = stage_of(workers=3, policy=Policy(max_workers=3))
    stage.tick()
    first, second = stage.alive[:2]
    interrupt(stage, first)
    interrupt(stage, second)
    stage.tick_until(lambda: not open_notices(stage))
    assert len(stage.alive) == 3


def test_a_pod_held_by_a_budget_stays_until_ec2_takes_the_machine(stage_of: StageMaker) -> None:
    """We do not terminate the machine: EC2 does, at the end of the two minutes."""
    stage = stage_of(workers=3)
    stage.world.k3s.run(Workload("db", 3, max_unavailable=0))
    stage.tick()
    victim = stage.alive[0]
    interrupt(stage, victim)
    for _ in range(10):
        stage.tick(seconds=10)
    assert victim.id in {machine.id for machine in stage.alive}
    stage.tick_until(lambda: not open_notices(stage))
    assert victim.id not in {machine.id for machine in stage.alive}


def test_an_interruption_during_a_scale_down_leaves_the_scale_down_alone(stage_of: StageMaker) -> None:
    stage = stage_of(workers=5)
    stage.world.k3s.run(Workload("web", 4, max_unavailable=1))
    stage.tick_until(lambda: stage.state.down is not None)
    target = stage.state.down.targets[0] if stage.state.down else InstanceId("")
    victim = next(machine for machine in stage.alive if machine.id == target)
    before = {name: value for name, value in stage.item.items() if name.startswith("scaleDown")}
    store_notice(stage.store, CLUSTER, victim.id, SpotKind.INTERRUPTION, stage.clock.now())
    assert {name: value for name, value in stage.item.items() if name.startswith("scaleDown")} == before
    stage.world.ec2.interrupt(victim.id)
    stage.tick_until(lambda: not open_notices(stage) and not stage.state.is_acting)
    cordoned = {node.name for node in stage.world.k3s.nodes() if node.is_unschedulable}
    assert not cordoned & {machine.id for machine in stage.alive}


@pytest.mark.parametrize("how", [Rebalance.PREFER, Rebalance.REPLACE])
def test_a_hint_never_terminates_by_itself(stage_of: StageMaker, how: Rebalance) -> None:
    """With `prefer` it is only a preferred target; with `replace` it goes after its replacement is in service."""
    stage = stage_of(workers=3, policy=Policy(rebalance=how))
    stage.world.k3s.run(Workload("web", 15))
    stage.tick()
    hinted = stage.alive[0]
    store_notice(stage.store, CLUSTER, hinted.id, SpotKind.REBALANCE, stage.clock.now())
    for _ in range(90):
        stage.tick()
        if hinted.id not in {machine.id for machine in stage.alive}:
            ready = [node.name for node in stage.world.k3s.nodes() if node.is_ready and not node.taints]
            assert len([name for name in ready if name != hinted.id]) == 3
            break
    gone = hinted.id not in {machine.id for machine in stage.alive}
    assert gone is (how is Rebalance.REPLACE)
    stage.tick_until(lambda: not open_notices(stage))
    assert len(stage.alive) == 3


def test_the_hinted_machine_is_the_first_to_leave(stage_of: StageMaker) -> None:
    stage = stage_of(workers=5)
    stage.tick()
    hinted = stage.alive[3]
    stage.clock.after(500, lambda: store_notice(stage.store, CLUSTER, hinted.id, SpotKind.REBALANCE, stage.clock.now()))
    stage.tick_until(lambda: stage.state.down is not None)
    assert stage.state.down is not None
    assert stage.state.down.targets == (hinted.id,)


def test_a_hinted_machine_that_cannot_be_drained_counts_towards_the_maximum(
    stage_of: StageMaker,
) -> None:
    """A budget holds its pod. Machines launched meanwhile would exceed the maximum when it stays."""
    stage = stage_of(workers=3, policy=Policy(rebalance=Rebalance.REPLACE, max_workers=4))
    stage.world.k3s.run(Workload("db", 3, max_unavailable=0))
    stage.tick()
    hinted = stage.alive[0]
    store_notice(stage.store, CLUSTER, hinted.id, SpotKind.REBALANCE, stage.clock.now())
    stage.tick_until(lambda: any(node.is_unschedulable for node in stage.world.k3s.nodes()))
    stage.world.k3s.run(Workload("web", 60))
    held_back = 0
    while open_notices(stage):
        _, plan = stage.cluster().look()
        held_back += [(rule.value, rule.holds) for rule in plan.rules if rule.name == "below_maximum"] == [("4", False)]
        stage.tick()
        assert len(stage.alive) == 4
    assert held_back > 10
    assert len([node for node in stage.world.k3s.nodes() if node.is_ready and not node.is_unschedulable]) == 4


def test_hints_are_acted_on_one_after_the_other(stage_of: StageMaker) -> None:
    """A wave of hints must not replace the whole cluster at once."""
    stage = stage_of(workers=0, policy=Policy(rebalance=Rebalance.REPLACE, min_workers=6, max_workers=20))
    for number in range(6):
        stage.world.add_worker(ZONES[number % 3], TAGS, "spot")
    stage.clock.sleep(60)
    hinted = [machine.id for machine in stage.alive]
    for instance in hinted:
        store_notice(stage.store, CLUSTER, instance, SpotKind.REBALANCE, stage.clock.now())
    for _ in range(60):
        stage.tick()
        assert len(stage.alive) <= 7
        if not set(hinted) & {machine.id for machine in stage.alive}:
            break
    assert not set(hinted) & {machine.id for machine in stage.alive}
    assert len(stage.alive) == 6


@pytest.mark.parametrize("kind", [SpotKind.REBALANCE, SpotKind.INTERRUPTION])
def test_while_paused_no_replacement_is_launched(kind: SpotKind) -> None:
    """An interrupted machine is still drained, for EC2 does not wait. Its replacement is launched after the pause."""
    stage = Stage(workers=0, policy=Policy(rebalance=Rebalance.REPLACE))
    for zone in ZONES:
        stage.world.add_worker(zone, TAGS, "spot")
    stage.tick()
    pause = Pause("ann", stage.clock.now(), "")
    set_pause(stage.store, CLUSTER, pause)
    store_notice(stage.store, CLUSTER, stage.alive[0].id, kind, stage.clock.now())
    before = len(stage.world.ec2.launches)
    for _ in range(5):
        stage.tick()
    assert len(stage.world.ec2.launches) == before
    assert end_pause(stage.store, CLUSTER, pause, "ann", stage.clock.now()).is_done
    stage.tick()
    assert len(stage.world.ec2.launches) == before + 1


def test_urgent_steps_are_reported_while_another_process_holds_the_lease() -> None:
    stage = Stage(workers=0)
    for zone in ZONES:
        stage.world.add_worker(zone, TAGS, "spot")
    stage.tick()
    acquire(cluster_ledger(stage.store, CLUSTER), "another", stage.clock.now())
    store_notice(stage.store, CLUSTER, stage.alive[0].id, SpotKind.INTERRUPTION, stage.clock.now())
    ticked = stage.tick(seconds=5)
    assert ticked is not None
    assert [step.kind for step in ticked.done] == ["cordon_interrupted"]
    assert "lease held by another" in str(ticked.stopped)


def test_a_replacement_that_is_given_up_is_never_accepted_by_another_process() -> None:
    """A process pauses before it terminates the replacement; meanwhile the machine joins and another process ticks."""
    stage = Stage(workers=3, policy=Policy(join_timeout_seconds=120))
    stage.tick()
    stage.world.joins = False
    victim = stage.alive[0]
    interrupt(stage, victim)
    new = stage.alive[-1]
    for _ in range(2):
        stage.tick(seconds=50)
    paused: list[None] = []

    def hook(call: PortCall, moment: CallPoint) -> None:
        if (call.port, call.method, moment) != ("machines", "terminate", CallPoint.BEFORE) or paused:
            return
        paused.append(None)
        if stage.world.k3s.node(new.id) is None:
            taint = Taint(UNVERIFIED_TAINT, "true", "NoSchedule")
            stage.world.k3s.join(new.id, new.id, new.private_ip or "", {INSTANCE_LABEL: new.id}, (taint,))
        for _ in range(3):
            stage.tick(seconds=60)

    stage.tick(seconds=60, gate=CallGate(hook))
    assert paused
    notice = read_notice(stage.store.get(STATE, notice_key(victim.id)) or {})
    assert notice.replacement is not Replacement.ACCEPTED
