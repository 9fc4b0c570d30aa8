"""One shortage counts once for each pool and action, however many slots meet it, and whatever dies meanwhile."""

import pytest

from holdfast.cluster.policy import Choices, Policy
from holdfast.cluster.spot.notice import Replacement, SpotKind, store_notice
from holdfast.fleet.capacity_memory import capacity_key, read_failures, remember_failure
from holdfast.fleet.options import PoolFailure
from holdfast.ports.machines import LaunchOrder, Machine, MachineError, Market
from holdfast.ports.store import attr
from holdfast.ports.store.tables import STATE
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.k3s import Workload
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.harness import TAGS, Stage
from tests.simulation.hooks import Instead
from tests.simulation.scenarios import drain_blocked

ONE_TYPE = Choices(instance_types=("t3.medium",))
NINE_AT_ONCE = Policy(max_batch_up=9, max_workers=20)
OUT_SECONDS = 180  # after the first shortage


def without_spot() -> Stage:
    """Nine machines are wanted, and for a moment no zone has spot capacity."""
    stage = Stage(policy=NINE_AT_ONCE, choices=ONE_TYPE)
    for subnet in stage.world.subnets:
        stage.world.ec2.run_out("t3.medium", subnet.zone, Market.SPOT)
    stage.world.k3s.run(Workload("web", 110))
    return stage


def remembered(stage: Stage) -> dict[str, PoolFailure]:
    failures = read_failures(stage.store.get(STATE, capacity_key(stage.name)) or {})
    return {name.removesuffix("|spot"): failure for name, failure in failures.items()}


def counts(stage: Stage) -> set[int]:
    return {failure.failures for failure in remembered(stage).values()}


def test_nine_slots_without_spot_leave_each_pool_out_for_three_minutes() -> None:
    stage = without_spot()
    stage.tick_until(lambda: stage.state.up is not None)
    assert len(stage.alive) == 2 + 9, "all of them on demand"
    assert len(remembered(stage)) == 3
    for failure in remembered(stage).values():
        assert failure.failures == 1
        assert failure.until.seconds_since(stage.clock.now()) <= OUT_SECONDS


def killed_at(number: int, point: CallPoint) -> CallGate:
    def hook(call: PortCall, now: CallPoint) -> None:
        if call.number == number and now is point:
            raise Killed

    return CallGate(hook)


@pytest.mark.parametrize("point", list(CallPoint))
def test_a_crash_at_any_call_counts_no_shortage_twice(point: CallPoint) -> None:
    """The next process tries the slot again, after the pool's back-off is over, and EC2 refuses it again."""
    for number in range(200):
        stage = without_spot()
        stage.tick_until(lambda stage=stage: stage.state.timers.pending_since is not None)  # type: ignore[misc]
        gate = killed_at(number, point)
        stage.tick(seconds=stage.policy.pending_up_seconds, gate=gate)
        if not gate.is_dead:
            assert len(stage.alive) == 2 + 9
            return
        while stage.state.is_acting or len(stage.alive) == 2:
            stage.tick(seconds=200)
        assert counts(stage) == {1}, f"killed {point} call {number}"
    raise AssertionError("the tick never ended")


def test_the_next_action_counts_the_next_shortage() -> None:
    stage = without_spot()
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    stage.world.k3s.run(Workload("more", 60))
    stage.tick_until(lambda: stage.state.up is not None)
    assert counts(stage) == {2}


def test_replacements_that_meet_one_shortage_together_count_it_once() -> None:
    """Each replacement is an action of its own; their pools were chosen before the first of them failed."""
    stage = Stage(workers=0, choices=ONE_TYPE, policy=Policy(min_workers=3))
    spot = [stage.world.add_worker("eu-west-1a", TAGS, "spot") for _ in range(3)]
    stage.tick()
    for machine in spot:
        store_notice(stage.store, stage.name, machine.id, SpotKind.INTERRUPTION, stage.clock.now())
    launches: list[str] = []

    def launch(order: LaunchOrder) -> Machine:
        launches.append(order.zone)
        raise MachineError("InsufficientInstanceCapacity", "not now")

    real, stage.machines = stage.machines, Instead(stage.machines, launch=launch)
    stage.tick(seconds=5)
    stage.machines = real
    assert len(launches) > len(set(launches)) > 0
    assert counts(stage) == {1}


def test_when_a_launch_of_the_same_tick_used_up_the_last_pool_no_replacement_is_logged_as_planned() -> None:
    stage = Stage(workers=0, choices=Choices(("t3.medium",), use_spot=False), policy=Policy(min_workers=0))
    spot = [stage.world.add_worker("eu-west-1a", TAGS, "spot").id for _ in range(2)]
    stage.tick()
    first, *others = stage.world.subnets
    stage.world.ec2.run_out("t3.medium", first.zone, Market.ON_DEMAND)
    for subnet in others:
        stage.world.ec2.fill_subnet(subnet.id)
    for instance in spot:
        store_notice(stage.store, stage.name, instance, SpotKind.INTERRUPTION, stage.clock.now())
    ticked = stage.tick(seconds=5)
    assert ticked is not None
    planned = [step for step in ticked.done if step.kind == "plan_replacement"]
    found = {notice.replacement for notice in ticked.seen.notices.values()}
    assert (len(planned), found) == (1, {Replacement.GIVEN_UP, Replacement.OPEN})


def test_while_no_pool_has_capacity_a_replacement_waits_without_the_lease_and_the_log_says_why() -> None:
    """It was logged as planned at every tick, which took the lease to plan nothing."""
    stage = Stage(workers=0, choices=ONE_TYPE, policy=Policy(min_workers=0))
    leaving = stage.world.add_worker("eu-west-1a", TAGS, "spot").id
    stage.tick()
    now = stage.clock.now()
    for pool in (f"t3.medium|{subnet.zone}|{market}" for subnet in stage.world.subnets for market in Market):
        remember_failure(stage.store, stage.name, pool, None, now, "another")
    store_notice(stage.store, stage.name, leaving, SpotKind.INTERRUPTION, now)
    stage.world.ec2.interrupt(leaving)
    stage.tick_until(lambda: not stage.world.k3s.nodes(), seconds=5)
    stage.tick(seconds=5)
    fence = stage.state.fence
    waits = stage.tick(seconds=5)
    assert waits is not None
    assert waits.done == ()
    (why,) = [rule for rule in waits.plan.rules if rule.name == "somewhere_to_launch"]
    assert why.details == (f"the replacement of {leaving} waits for it",)
    assert stage.state.fence == fence
    stage.clock.sleep(OUT_SECONDS)
    stage.tick_until(lambda: not stage.open_notices)
    assert len(stage.alive) == 1


def test_a_pool_that_fails_again_right_after_a_success_is_remembered_again() -> None:
    """The second of its slots succeeds, which clears the memory; the third is refused, which is a new shortage."""
    stage = Stage(policy=NINE_AT_ONCE, choices=ONE_TYPE)
    stage.world.k3s.run(Workload("web", 110))
    real, tried = stage.machines, list[str]()

    def launch(order: LaunchOrder) -> Machine:
        pool = f"{order.zone}|{order.market}"
        tried.append(pool)
        if pool == tried[0] and tried.count(pool) in (1, 3):
            raise MachineError("InsufficientInstanceCapacity", "not now")
        return real.launch(order)

    stage.machines = Instead(real, launch=launch)
    stage.tick_until(lambda: stage.state.up is not None)
    assert tried.count(tried[0]) == 3
    assert [failure.failures for failure in remembered(stage).values()] == [1]


def test_a_failure_of_the_previous_version_is_read_and_counted_on() -> None:
    stage = without_spot()
    stage.tick()
    for subnet in stage.world.subnets:
        old = {"failures": 3, "untilEpoch": stage.clock.now().epoch_seconds}
        stage.store.update(STATE, capacity_key(stage.name), attr(f"t3.medium|{subnet.zone}|spot").set_to(old))
    stage.tick_until(lambda: stage.state.up is not None)
    assert counts(stage) == {4}


@pytest.mark.parametrize("point", list(CallPoint))
def test_a_crash_at_any_call_counts_no_failed_drain_twice(point: CallPoint) -> None:
    for number in range(60):
        stage = drain_blocked()
        stage.tick_until(lambda stage=stage: stage.state.down is not None)  # type: ignore[misc]
        down = stage.state.down
        assert down is not None
        gate = killed_at(number, point)
        stage.tick(seconds=stage.policy.drain_seconds, gate=gate)
        while stage.state.down is not None and stage.state.down.action == down.action:
            stage.tick(seconds=200)
        failures = read_failures(stage.store.get(STATE, capacity_key(stage.name)) or {})
        assert [failures[f"drain|{target}"].failures for target in down.targets] == [1], f"killed {point} {number}"
        if not gate.is_dead:
            return
    raise AssertionError("the tick never ended")
