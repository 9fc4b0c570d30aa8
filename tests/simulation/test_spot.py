"""Spot interruptions and rebalance hints: independent of scaling, and safe beside it."""

import pytest

from holdfast.cluster.lease import acquire
from holdfast.cluster.ledger import Ledger
from holdfast.cluster.pause import Pause, end_pause, set_pause
from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.seen import INSTANCE_LABEL, SPOT_ANNOTATION, UNVERIFIED_TAINT
from holdfast.cluster.spot import Replacement, SpotKind, read_notice
from holdfast.cluster.spot_act import note, notice_key
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.ports.kube import Taint
from holdfast.ports.machines import Machine
from holdfast.ports.store import Key
from holdfast.ports.store.tables import STATE
from holdfast.simulator.gate import Gate, Moment, PortCall
from holdfast.simulator.k3s import Workload
from holdfast.simulator.world import ZONES
from tests.simulation.conftest import StageMaker
from tests.simulation.harness import TAGS, Stage

CLUSTER = ClusterId("cluster")


def interrupt(stage: Stage, machine: Machine) -> None:
    """EC2 gives notice, and the event is handled: noted, then a tick at once."""
    stage.world.ec2.interrupt(machine.id)
    note(stage.store, CLUSTER, machine.id, SpotKind.INTERRUPTION, stage.clock.now())
    stage.tick(seconds=1)


def open_notices(stage: Stage) -> frozenset[str]:
    item = stage.store.get(STATE, Key("cluster#spots")) or {}
    return frozenset(item.get("open", ()))


def test_an_interrupted_machine_is_drained_and_replaced_before_it_goes(stage_of: StageMaker) -> None:
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
    assert stage.state.last_scale.epoch_ms == 0, "it is no scaling: no cooldown"


def test_the_same_notice_twice_replaces_once(stage_of: StageMaker) -> None:
    stage = stage_of(workers=3)
    stage.tick()
    victim = stage.alive[0]
    interrupt(stage, victim)
    assert note(stage.store, CLUSTER, victim.id, SpotKind.INTERRUPTION, stage.clock.now()) is False
    assert note(stage.store, CLUSTER, victim.id, SpotKind.REBALANCE, stage.clock.now()) is False
    stage.tick(seconds=1)
    stage.tick_until(lambda: not open_notices(stage))
    assert len(stage.world.ec2.launches) == 4
    assert len(stage.alive) == 3


def test_a_notice_is_closed_though_ec2_forgot_the_machine_before_its_replacement_came(stage_of: StageMaker) -> None:
    """Found by seed 10310, where no zone had anything for so long. EC2 lists what ended for an hour."""
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
    assert [alarm for one in ticked for alarm in one.alarms] == [], "nobody is called for what EC2 forgot"


def test_at_the_maximum_there_is_no_replacement_beyond_it(stage_of: StageMaker) -> None:
    """The machine that leaves is not counted, so there is room for exactly one."""
    stage = stage_of(workers=3, policy=Policy(max_workers=3))
    stage.tick()
    first, second = stage.alive[:2]
    interrupt(stage, first)
    interrupt(stage, second)
    stage.tick_until(lambda: not open_notices(stage))
    assert len(stage.alive) == 3


def test_a_pod_that_a_budget_holds_stays_until_ec2_takes_the_machine(stage_of: StageMaker) -> None:
    """It is not terminated by us: EC2 does, at the end of the two minutes."""
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


def test_an_interruption_during_a_scale_down_touches_nothing_of_it(stage_of: StageMaker) -> None:
    stage = stage_of(workers=5)
    stage.world.k3s.run(Workload("web", 4, max_unavailable=1))
    stage.tick_until(lambda: stage.state.down is not None)
    target = stage.state.down.targets[0] if stage.state.down else InstanceId("")
    victim = next(machine for machine in stage.alive if machine.id == target)
    before = {name: value for name, value in stage.item.items() if name.startswith("scaleDown")}
    note(stage.store, CLUSTER, victim.id, SpotKind.INTERRUPTION, stage.clock.now())
    assert {name: value for name, value in stage.item.items() if name.startswith("scaleDown")} == before
    stage.world.ec2.interrupt(victim.id)
    stage.tick_until(lambda: not open_notices(stage) and not stage.state.is_acting)
    cordoned = {node.name for node in stage.world.k3s.nodes() if node.is_unschedulable}
    assert not cordoned & {machine.id for machine in stage.alive}


@pytest.mark.parametrize("how", [Rebalance.PREFER, Rebalance.REPLACE])
def test_a_hint_never_terminates_by_itself(stage_of: StageMaker, how: Rebalance) -> None:
    """With `prefer` nothing happens but a preference; with `replace` only after the replacement is in service."""
    stage = stage_of(workers=3, policy=Policy(rebalance=how))
    stage.world.k3s.run(Workload("web", 15))
    stage.tick()
    hinted = stage.alive[0]
    note(stage.store, CLUSTER, hinted.id, SpotKind.REBALANCE, stage.clock.now())
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
    stage.clock.after(500, lambda: note(stage.store, CLUSTER, hinted.id, SpotKind.REBALANCE, stage.clock.now()))
    stage.tick_until(lambda: stage.state.down is not None)
    assert stage.state.down is not None
    assert stage.state.down.targets == (hinted.id,)


def test_a_hinted_machine_that_cannot_be_emptied_counts_for_the_maximum(
    stage_of: StageMaker,
) -> None:
    """A budget holds its pod. What is launched meanwhile would be too many when it works on."""
    stage = stage_of(workers=3, policy=Policy(rebalance=Rebalance.REPLACE, max_workers=4))
    stage.world.k3s.run(Workload("db", 3, max_unavailable=0))
    stage.tick()
    hinted = stage.alive[0]
    note(stage.store, CLUSTER, hinted.id, SpotKind.REBALANCE, stage.clock.now())
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
    """A wave of hints must not turn the whole cluster over at once."""
    stage = stage_of(workers=0, policy=Policy(rebalance=Rebalance.REPLACE, min_workers=6, max_workers=20))
    for number in range(6):
        stage.world.add_worker(ZONES[number % 3], TAGS, "spot")
    stage.clock.sleep(60)
    hinted = [machine.id for machine in stage.alive]
    for instance in hinted:
        note(stage.store, CLUSTER, instance, SpotKind.REBALANCE, stage.clock.now())
    for _ in range(60):
        stage.tick()
        assert len(stage.alive) <= 7
        if not set(hinted) & {machine.id for machine in stage.alive}:
            break
    assert not set(hinted) & {machine.id for machine in stage.alive}
    assert len(stage.alive) == 6


@pytest.mark.parametrize("kind", [SpotKind.REBALANCE, SpotKind.INTERRUPTION])
def test_while_paused_nothing_is_launched_for_what_leaves(kind: SpotKind) -> None:
    """An interruption is drained all the same: EC2 does not ask. Its replacement comes when the pause is over."""
    stage = Stage(workers=0, policy=Policy(rebalance=Rebalance.REPLACE))
    for zone in ZONES:
        stage.world.add_worker(zone, TAGS, "spot")
    stage.tick()
    pause = Pause("ann", stage.clock.now(), "")
    set_pause(stage.store, CLUSTER, pause)
    note(stage.store, CLUSTER, stage.alive[0].id, kind, stage.clock.now())
    before = len(stage.world.ec2.launches)
    for _ in range(5):
        stage.tick()
    assert len(stage.world.ec2.launches) == before
    assert end_pause(stage.store, CLUSTER, pause, "ann", stage.clock.now()).is_done
    stage.tick()
    assert len(stage.world.ec2.launches) == before + 1


def test_what_was_urgent_is_told_when_another_holds_the_lease() -> None:
    stage = Stage(workers=0)
    for zone in ZONES:
        stage.world.add_worker(zone, TAGS, "spot")
    stage.tick()
    acquire(Ledger(stage.store, CLUSTER), "another", stage.clock.now())
    note(stage.store, CLUSTER, stage.alive[0].id, SpotKind.INTERRUPTION, stage.clock.now())
    ticked = stage.tick(seconds=5)
    assert ticked is not None
    assert [step.kind for step in ticked.done] == ["cordon_interrupted"]
    assert "lease held by another" in str(ticked.stopped)


def test_a_replacement_that_is_given_up_is_never_accepted_by_another() -> None:
    """One that pauses before it terminates, while the machine joins and another process ticks."""
    stage = Stage(workers=3, policy=Policy(join_timeout_seconds=120))
    stage.tick()
    stage.world.joins = False
    victim = stage.alive[0]
    interrupt(stage, victim)
    new = stage.alive[-1]
    for _ in range(2):
        stage.tick(seconds=50)
    paused: list[None] = []

    def hook(call: PortCall, moment: Moment) -> None:
        if (call.port, call.method, moment) != ("machines", "terminate", Moment.BEFORE) or paused:
            return
        paused.append(None)
        if stage.world.k3s.node(new.id) is None:
            taint = Taint(UNVERIFIED_TAINT, "true", "NoSchedule")
            stage.world.k3s.join(new.id, new.id, new.private_ip or "", {INSTANCE_LABEL: new.id}, (taint,))
        for _ in range(3):
            stage.tick(seconds=60)

    stage.tick(seconds=60, gate=Gate(hook))
    assert paused
    notice = read_notice(stage.store.get(STATE, notice_key(victim.id)) or {})
    assert notice.replacement is not Replacement.ACCEPTED
