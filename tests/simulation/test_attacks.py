"""Odd worlds, in which a wrong guess would terminate busy machines or launch too many."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.seen import ACTION_TAG, FENCE_ANNOTATION, INSTANCE_LABEL, SEQUENCE_TAG
from holdfast.cluster.spot.notice import SpotKind, notice_key, store_notice
from holdfast.cluster.state import DownPhase
from holdfast.cluster.steps import CordonTarget
from holdfast.cluster.tick import is_unfinished, tick
from holdfast.control.stored_attributes import StateDamaged
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Evicted, KubeUnavailable, Node, Pod
from holdfast.ports.machines import LaunchOrder, Machine, MachineError, MachineState, Market
from holdfast.ports.store import Item, Key, attr, set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import ZONES
from tests.simulation.harness import TAGS, Stage
from tests.simulation.hooks import Instead, after, before, raising


def busy(workers: int, pods: int, **more: Any) -> Stage:
    stage = Stage(workers=workers, **more)
    stage.world.k3s.run(Workload("web", pods))
    for _ in range(3):
        stage.tick()
    return stage


def test_no_machine_is_terminated_when_kubernetes_knows_none_of_our_nodes() -> None:
    """A wrong kubeconfig, or a reinstalled server. The machines are ours, as all their tags say."""
    stage = Stage(workers=0)
    for number in range(6):
        stage.world.add_worker(ZONES[number % len(ZONES)], {**TAGS, SEQUENCE_TAG: "0"})
    stage.world.k3s.run(Workload("web", 40))
    for _ in range(3):
        stage.tick()
    nothing = Instead(stage.world.k3s, nodes=list, node=lambda _: None, pods=list, pods_on=lambda _: [])
    stage.world.k3s = nothing  # type: ignore[assignment]
    for _ in range(60):
        stage.tick()
    assert len(stage.alive) >= 6


def test_the_node_of_a_dead_machine_with_the_same_address_changes_nothing() -> None:
    stage = busy(3, 24, policy=Policy(max_workers=6))
    worker, k3s = stage.alive[0], stage.world.k3s
    k3s.put(Node("ip-10-0-0-9", "u-old", "", worker.private_ip, False, Instant(0), Instant(0), False))
    for _ in range(60):
        stage.tick()
    assert worker.id in [machine.id for machine in stage.alive]


def test_a_node_that_claims_to_be_another_machine_does_not_harm_that_machine() -> None:
    stage = busy(4, 20)
    k3s = stage.world.k3s
    victim, other = stage.alive[0], stage.alive[-1]
    node = k3s.node(other.id)
    assert node is not None
    labels = {**node.labels, INSTANCE_LABEL: victim.id}
    long_ago = stage.clock.now().plus(-2000)
    k3s.put(replace(node, internal_ip=victim.private_ip, labels=labels, is_ready=False, ready_changed=long_ago))
    for _ in range(60):
        stage.tick()
    assert victim.id in [machine.id for machine in stage.alive]


def test_a_worker_of_an_older_bootstrap_with_another_address_is_not_collected() -> None:
    stage = Stage(workers=4)
    worker, k3s = stage.alive[1], stage.world.k3s
    node = k3s.node(worker.id)
    assert node is not None
    k3s.delete_node(node)
    k3s.join("ip-10-0-1-7", worker.id, "10.0.99.7", {})
    for _ in range(30):
        stage.tick()
    assert worker.id in [machine.id for machine in stage.alive]


def test_the_last_ready_worker_is_not_scaled_down() -> None:
    stage = Stage(workers=5, policy=Policy(not_ready_seconds=0))
    k3s = stage.world.k3s
    k3s.run(Workload("web", 2))
    stage.tick()
    ready, *others = stage.alive
    for machine in others:
        node = k3s.node(machine.id)
        assert node is not None
        k3s.put(replace(node, is_ready=False, ready_changed=stage.clock.now()))
    for _ in range(60):
        stage.tick()
    assert ready.id in [machine.id for machine in stage.alive]


def test_an_empty_list_from_ec2_launches_nothing_beyond_the_maximum() -> None:
    stage = busy(10, 60)
    stage.machines, real = Instead(stage.machines, tagged=lambda _: []), stage.machines
    stage.tick()
    stage.machines = real
    assert len(stage.alive) == 10


def test_a_stopped_machine_does_not_count_as_a_worker() -> None:
    stage = Stage(workers=2)
    stage.tick()
    stopped = stage.alive[0].id
    stage.world.k3s.lose(stopped)
    real = stage.machines

    def shown(machines: list[Machine]) -> list[Machine]:
        return [replace(m, state=MachineState.STOPPED) if m.id == stopped else m for m in machines]

    def tagged(tags: Mapping[str, str]) -> list[Machine]:
        return shown(real.tagged(tags))

    stage.machines = Instead(real, tagged=tagged)
    for _ in range(10):
        stage.tick()
    assert sum(node.is_ready for node in stage.world.k3s.nodes()) == 2


def test_a_pod_that_cannot_be_evicted_delays_no_other_interruption() -> None:
    stage = Stage(workers=2)
    first, second = (stage.world.add_worker(zone, TAGS, "spot").id for zone in ZONES[:2])
    k3s = stage.world.k3s
    k3s.run(Workload("web", 12))
    stage.tick()
    real = k3s.evict

    def evict(pod: Pod) -> Evicted:
        if pod.node == first:
            raise KubeUnavailable("500: failed calling webhook")
        return real(pod)

    stage.world.k3s = Instead(k3s, evict=evict)  # type: ignore[assignment]
    name = ClusterId("cluster")
    for instance in (first, second):
        store_notice(stage.store, name, instance, SpotKind.INTERRUPTION, stage.clock.now())
        stage.tick(seconds=1)
    before = len(stage.world.ec2.launches)
    ticked = stage.tick(seconds=5)
    assert ticked is not None
    assert "failed calling webhook" in str(ticked.stopped)
    node = k3s.node(second)
    assert node is not None
    assert node.is_unschedulable
    assert len(stage.world.ec2.launches) >= before


@pytest.mark.parametrize("name", ["lastScaleEpoch", "lockUntilEpoch", "pendingSinceEpoch", "upBackoffUntilEpoch"])
def test_an_epoch_in_milliseconds_is_reported_as_damage_and_does_not_overflow(name: str) -> None:
    stage = Stage()
    stage.tick()
    stage.store.update(STATE, Key("cluster"), set_all({name: 1_768_465_266_000}))
    with pytest.raises(StateDamaged, match=f"{name} is 1768465266000: expected seconds"):
        tick(stage.cluster(), "one")


# EC2 refuses


REFUSALS = [
    MachineError("UnauthorizedOperation", "not authorized to perform ec2:TerminateInstances"),
    MachineError("OperationNotPermitted", "its disableApiTermination attribute is on"),
]


def refusing(stage: Stage, method: str, error: MachineError) -> None:
    stage.gate = before(method, raising(error))


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: error.code)
def test_a_refused_termination_is_reported_with_its_remedy_and_does_not_count_as_done(
    error: MachineError,
) -> None:
    stage = Stage(workers=4)
    refusing(stage, "terminate", error)
    stage.tick_until(lambda: stage.state.down is not None and bool(stage.state.down.committed))
    ticked = stage.tick()
    assert ticked is not None
    assert stage.state.down is not None
    (leaving,) = stage.state.down.committed
    assert "terminate_target" not in [step.kind for step in ticked.done]
    (alarm,) = ticked.notifications
    assert (alarm.kind, alarm.key, alarm.is_urgent) == ("termination_refused", leaving, True)
    remedy = "permission" if error.code == "UnauthorizedOperation" else "termination protection"
    assert error.code in alarm.text
    assert remedy in alarm.text.rpartition(";")[2]
    stage.gate = None  # an operator has fixed it
    stage.tick_until(lambda: not stage.state.is_acting, most=3)
    assert leaving not in [machine.id for machine in stage.alive]


def test_a_throttled_termination_raises_no_alarm() -> None:
    stage = Stage(workers=4)
    refusing(stage, "terminate", MachineError("RequestLimitExceeded", "slow down"))
    ticked = stage.tick_until(lambda: stage.state.down is not None and stage.state.down.phase is DownPhase.TERMINATING)
    assert all(not one.notifications for one in ticked)


def test_the_refused_termination_of_a_drained_hint_is_reported_too() -> None:
    stage, hinted = hinted_stage()
    refusing(stage, "terminate", REFUSALS[0])
    stage.tick_until(lambda: phase_of(stage, hinted) == "DRAINED", seconds=15)
    ticked = stage.tick(seconds=5)
    assert ticked is not None
    assert "terminate_interrupted" not in [step.kind for step in ticked.done]
    assert [alarm.key for alarm in ticked.notifications] == [hinted]


def test_a_refused_step_delays_no_other_step_of_the_tick() -> None:
    """A node whose machine is gone is removed, although the scale-down cannot finish."""
    stage = Stage(workers=4)
    refusing(stage, "terminate", REFUSALS[0])
    stage.tick_until(lambda: stage.state.down is not None and bool(stage.state.down.committed))
    k3s, now = stage.world.k3s, stage.clock.now()
    labels = {INSTANCE_LABEL: "i-0dead"}
    k3s.put(Node("i-0dead", "u-dead", "", "10.9.9.9", False, now.plus(-9000), now.plus(-6000), False, labels=labels))
    stage.tick()
    assert k3s.node("i-0dead") is None


def test_an_action_that_cannot_finish_is_reported_under_its_own_name_and_checked_once_a_minute() -> None:
    stage = Stage(workers=4)
    refusing(stage, "terminate", MachineError("InternalError", "try again"))
    stage.tick_until(lambda: stage.state.down is not None)
    assert stage.state.down is not None
    action, began = stage.state.down.action, stage.state.down.started
    alarms = []
    for _ in range(70):
        ticked = stage.tick()
        assert ticked is not None
        alarms.append([(alarm.kind, alarm.key) for alarm in ticked.notifications])
        age = ticked.seen.now.seconds_since(began)
        assert bool(alarms[-1]) == (age >= stage.policy.join_timeout_seconds + stage.policy.stuck_seconds)
        assert is_unfinished(ticked) == (age < 3600)
    assert alarms[-1] == [("action_lasts", action)]


STRANGE = MachineError("InvalidCapacityReservationId.NotFound", "the reservation in the template does not exist")


def test_an_unknown_error_code_fails_the_scale_up_with_its_reason() -> None:
    stage = Stage(workers=1)
    refusing(stage, "launch", STRANGE)
    stage.tick_until(lambda: stage.state.is_acting)
    ticked = stage.tick_until(lambda: not stage.state.is_acting, most=25)
    (failed,) = [step for one in ticked for step in one.done if step.kind == "fail_scale_up"]
    assert STRANGE.code in failed.because
    assert stage.state.up_failures == 1


def test_after_an_unknown_error_code_another_pool_is_tried_and_no_other_slot_waits() -> None:
    stage = Stage(workers=0, policy=Policy(min_workers=2))
    real = stage.machines
    first: list[tuple[str, ...]] = []

    def launch(order: LaunchOrder) -> Machine:
        pool = (order.instance_type, order.zone, order.market)
        first[:] = first or [pool]
        if pool == first[0]:
            raise STRANGE
        return real.launch(order)

    stage.machines = Instead(real, launch=launch)
    stage.tick()
    assert len(stage.alive) == 1, "the other slot gets its machine at once"
    tokens = {order.token for order, _ in stage.world.ec2.launches}
    stage.tick_until(lambda: len(stage.alive) == 2, most=8)
    assert len({order.token for order, _ in stage.world.ec2.launches} - tokens) == 1
    assert "|".join(first[0]) in (stage.store.get(STATE, Key("cluster#capacity")) or {}), "the pool is remembered"
    stage.tick_until(lambda: not stage.state.is_acting)
    assert stage.state.up_failures == 0


def test_a_strange_response_to_a_successful_launch_launches_no_second_machine() -> None:
    """The same order is repeated with the same token until the machine would be listed."""
    stage = Stage(workers=1)
    stage.gate = after("launch", raising(STRANGE), times=1)
    stage.tick_until(lambda: len(stage.alive) == 2)
    stage.gate = None
    stage.tick_until(lambda: not stage.state.is_acting)
    assert len(stage.world.ec2.launches) == 2
    assert len(stage.alive) == 2


def test_a_replacement_refused_with_an_unknown_error_code_is_given_up_and_reported() -> None:
    stage = Stage(workers=2)
    taken = stage.world.add_worker(ZONES[2], TAGS, "spot").id
    stage.world.k3s.run(Workload("web", 12))
    stage.tick()
    refusing(stage, "launch", STRANGE)
    store_notice(stage.store, stage.name, taken, SpotKind.INTERRUPTION, stage.clock.now())
    ticked = stage.tick_until(lambda: (notice_of(stage, taken)).get("replacement") == "GIVEN_UP", most=25)
    (alarm,) = [alarm for one in ticked for alarm in one.notifications]
    assert (alarm.kind, alarm.key) == ("replacement_refused", taken)
    assert STRANGE.code in alarm.text


# NotReady nodes and hints


def notice_of(stage: Stage, instance: str) -> Item:
    return stage.store.get(STATE, notice_key(InstanceId(instance))) or {}


def phase_of(stage: Stage, instance: str) -> str:
    return str(notice_of(stage, instance).get("phase"))


def replaced_and_blocked(**more: Any) -> tuple[Stage, str]:
    """A node that was NotReady, has its replacement, is cordoned, and runs a pod that its budget does not let go."""
    stage = Stage(workers=5, **more)
    stage.world.k3s.run(Workload("db", 1, max_unavailable=0))
    stage.tick()
    name = str(stage.world.k3s.pods()[0].node)
    set_ready(stage, name, is_ready=False)
    stage.tick_until(lambda: phase_of(stage, name) == "CORDONED")
    return stage, name


def set_ready(stage: Stage, name: str, *, is_ready: bool) -> None:
    node = stage.world.k3s.node(name)
    assert node is not None
    stage.world.k3s.put(replace(node, is_ready=is_ready, ready_changed=stage.clock.now()))


def is_closed(stage: Stage, name: str) -> bool:
    node = stage.world.k3s.node(name)
    assert node is not None
    return node.is_unschedulable


def test_a_node_that_is_ready_again_after_its_cordon_is_uncordoned() -> None:
    stage, name = replaced_and_blocked()
    assert is_closed(stage, name)
    set_ready(stage, name, is_ready=True)
    stage.tick()
    assert not is_closed(stage, name)
    assert stage.open_notices == frozenset()
    assert name in [machine.id for machine in stage.alive]


def test_a_node_that_is_ready_again_at_the_maximum_still_leaves() -> None:
    stage, name = replaced_and_blocked(policy=Policy(min_workers=5, max_workers=5))
    set_ready(stage, name, is_ready=True)
    stage.tick()
    assert is_closed(stage, name), "its replacement has taken its place"
    stage.world.k3s.run(Workload("db", 0, max_unavailable=0))
    stage.tick_until(lambda: name not in [machine.id for machine in stage.alive])


def test_a_node_that_stays_not_ready_and_cannot_be_drained_does_not_block_others() -> None:
    stage, name = replaced_and_blocked()
    ticked = stage.tick_until(lambda: not stage.open_notices, most=20)
    kinds = [step.kind for one in ticked for step in one.done]
    assert "open_interrupted" in kinds
    assert name in [machine.id for machine in stage.alive], "a machine with a pod on it is not terminated"
    launches = len(stage.world.ec2.launches)
    other = next(machine.id for machine in stage.alive if machine.id != name)
    set_ready(stage, other, is_ready=False)
    stage.world.k3s.delete_node(stage.world.k3s.node(name))  # type: ignore[arg-type]
    stage.tick_until(lambda: len(stage.world.ec2.launches) > launches, most=30)


def test_a_notice_that_needs_no_action_does_not_shorten_the_tick_interval() -> None:
    stage, hinted = hinted_stage()
    refusing(stage, "terminate", REFUSALS[0])
    stage.tick_until(lambda: phase_of(stage, hinted) == "DRAINED", seconds=15)
    ticked = stage.tick(seconds=5)
    assert is_unfinished(ticked)
    stage.clock.sleep(3600)
    assert not is_unfinished(stage.tick())


def hinted_stage(pods: int = 0) -> tuple[Stage, str]:
    """A spot machine with a rebalance hint that is acted on, and pods that their budget does not let go."""
    stage = Stage(workers=2, policy=Policy(rebalance=Rebalance.REPLACE, max_workers=5, idle_down_seconds=10**6))
    hinted = stage.world.add_worker(ZONES[0], TAGS, "spot").id
    stage.clock.sleep(30)
    stage.world.k3s.run(Workload("db", pods, max_unavailable=0))
    stage.tick()
    store_notice(stage.store, stage.name, hinted, SpotKind.REBALANCE, stage.clock.now())
    return stage, hinted


def emptied_at_the_last_moment() -> tuple[Stage, str]:
    """A second before the drain times out, the node is empty at last."""
    stage, hinted = hinted_stage(pods=3)
    stage.tick_until(lambda: phase_of(stage, hinted) == "CORDONED", seconds=15)
    end = notice_of(stage, hinted)["cordonedEpoch"] + stage.policy.stuck_seconds
    while stage.clock.now().epoch_seconds < end - 30:
        stage.tick(seconds=5)
    stage.world.k3s.run(Workload("db", 0, max_unavailable=0))
    stage.clock.sleep(end - 0.9 - stage.clock.now().epoch_ms / 1000)
    return stage, hinted


@pytest.mark.parametrize("dies", [True, False], ids=["and dies", "and continues"])
def test_a_process_that_found_a_node_empty_does_not_terminate_it_once_another_uncordons_it(dies: bool) -> None:
    stage, hinted = emptied_at_the_last_moment()

    def other() -> None:
        stage.clock.sleep(2)
        with suppress(Killed):
            tick(stage.cluster(after("change_node", raising(Killed())) if dies else None), "other")
        stage.world.k3s.run(Workload("web", 24))

    ticked = tick(stage.cluster(before("update", other, times=1)), "one")
    assert "enter_spot_phase" in [step.kind for step in ticked.done], "it had found the node empty"
    assert not is_closed(stage, hinted)
    assert phase_of(stage, hinted) == ("OPENING" if dies else "CLOSED")
    for _ in range(3):
        stage.tick(seconds=30)
    assert hinted in [machine.id for machine in stage.alive]
    assert stage.open_notices == frozenset()


def test_a_process_that_gives_up_does_not_uncordon_a_node_that_another_found_empty() -> None:
    stage, hinted = emptied_at_the_last_moment()
    stage.clock.sleep(2)

    def other() -> None:
        stage.store.update(STATE, notice_key(InstanceId(hinted)), attr("phase").set_to("DRAINED"))

    tick(stage.cluster(before("update", other, times=1)), "one")
    assert is_closed(stage, hinted)
    stage.tick_until(lambda: hinted not in [machine.id for machine in stage.alive], most=3)


def test_finding_a_node_empty_does_not_count_for_a_later_notice() -> None:
    stage, hinted = emptied_at_the_last_moment()

    def noted_again() -> None:
        stage.store.update(STATE, notice_key(InstanceId(hinted)), attr("noticeEpoch").plus(3600))

    tick(stage.cluster(before("update", noted_again, times=1)), "one")
    assert phase_of(stage, hinted) == "CORDONED"


def test_a_late_cordon_is_undone_when_the_node_was_given_back_meanwhile() -> None:
    stage, hinted = hinted_stage(pods=3)
    stage.tick_until(lambda: phase_of(stage, hinted) == "CORDONED", seconds=15)
    node = stage.world.k3s.node(hinted)
    assert node is not None
    stage.world.k3s.put(replace(node, is_unschedulable=False))

    def given_back() -> None:
        stage.store.update(STATE, notice_key(InstanceId(hinted)), attr("phase").set_to("CLOSED"))

    stage.tick(seconds=5, gate=before("change_node", given_back, times=1))
    assert not is_closed(stage, hinted)


def test_an_interruption_of_a_machine_that_is_being_uncordoned_is_not_lost() -> None:
    stage, hinted = emptied_at_the_last_moment()
    stage.clock.sleep(2)
    with pytest.raises(Killed):
        tick(stage.cluster(after("change_node", raising(Killed()))), "one")
    assert phase_of(stage, hinted) == "OPENING"
    store_notice(stage.store, stage.name, InstanceId(hinted), SpotKind.INTERRUPTION, stage.clock.now())
    stage.tick(seconds=1)
    assert is_closed(stage, hinted)


def test_a_drained_machine_that_got_new_pods_is_not_terminated_before_they_have_left() -> None:
    stage, hinted = hinted_stage()
    refusing(stage, "terminate", MachineError("InternalError", "try again"))
    stage.tick_until(lambda: phase_of(stage, hinted) == "DRAINED", seconds=15)
    node = stage.world.k3s.node(hinted)
    assert node is not None
    stage.world.k3s.put(replace(node, is_unschedulable=False))  # a person uncordoned it
    stage.world.k3s.run(Workload("db", 18, max_unavailable=0))
    assert any(pod.node == hinted for pod in stage.world.k3s.pods())
    stage.gate = None
    for _ in range(5):
        stage.tick(seconds=15)
    assert hinted in [machine.id for machine in stage.alive]
    assert is_closed(stage, hinted)
    stage.world.k3s.run(Workload("db", 0, max_unavailable=0))
    stage.tick_until(lambda: hinted not in [machine.id for machine in stage.alive], most=5)


def test_pods_that_arrive_between_observation_and_termination_prevent_the_termination() -> None:
    stage, hinted = hinted_stage()
    refusing(stage, "terminate", MachineError("InternalError", "try again"))
    stage.tick_until(lambda: phase_of(stage, hinted) == "DRAINED", seconds=15)

    def opened() -> None:
        node = stage.world.k3s.node(hinted)
        assert node is not None
        stage.world.k3s.put(replace(node, is_unschedulable=False))
        stage.world.k3s.run(Workload("db", 18, max_unavailable=0))

    stage.tick(seconds=5, gate=before("node", opened, times=1))
    assert hinted in [machine.id for machine in stage.alive]


# The stored state was lost, or was written by a clock that jumped


def test_after_a_lost_state_the_fence_continues_above_the_one_on_the_nodes() -> None:
    stage = Stage(workers=5)
    for node in stage.world.k3s.nodes():
        stage.world.k3s.put(replace(node, annotations={FENCE_ANNOTATION: "50000"}))
    ticked = stage.tick_until(lambda: len(stage.alive) == 3)
    assert stage.state.fence > 50_000
    assert all(one.stopped is None for one in ticked)
    repairs = [step.because for one in ticked for step in one.done if step.kind == "repair"]
    assert len(repairs) == 1
    assert "nodes or machines have fence 50000" in repairs[0]
    assert any(repairs[0] in one.reports for one in ticked), "the log says so"


def test_the_tick_that_raises_the_fence_acts_under_it() -> None:
    stage = Stage(workers=4)
    stage.tick_until(lambda: stage.state.timers.idle_since is not None)
    stage.clock.sleep(stage.policy.idle_down_seconds)
    for node in stage.world.k3s.nodes():
        stage.world.k3s.put(replace(node, annotations={FENCE_ANNOTATION: "50000"}))
    ticked = stage.tick()
    assert ticked is not None
    assert [step.kind for step in ticked.done] == ["repair", "begin_scale_down", "cordon_target"]
    (target,) = [step.instance for step in ticked.done if isinstance(step, CordonTarget)]
    node_of_it = stage.world.k3s.node(target)
    assert node_of_it is not None
    assert node_of_it.annotations[FENCE_ANNOTATION] == str(stage.state.fence) == "50001"


@pytest.mark.parametrize("text", ["9" * 13, "9" * 40, "-5", "x", "٣"])
def test_an_impossible_fence_on_a_node_is_ignored(text: str) -> None:
    stage = Stage(workers=4)
    for node in stage.world.k3s.nodes():
        stage.world.k3s.put(replace(node, annotations={FENCE_ANNOTATION: text}))
    stage.tick_until(lambda: len(stage.alive) == 3)
    assert stage.state.fence < 1000


def test_a_process_that_lost_its_lease_does_not_raise_the_fence() -> None:
    """To that process a higher fence on a node means, as always, that it lost the lease."""
    stage = Stage(workers=4)
    stage.tick_until(lambda: stage.state.timers.idle_since is not None)
    stage.clock.sleep(stage.policy.idle_down_seconds)

    def taken_over() -> None:
        stage.clock.sleep(100)
        tick(stage.cluster(), "other")

    before_it = stage.state.fence
    ticked = tick(stage.cluster(after("update", taken_over, times=1)), "one")
    assert ticked.stopped is not None
    assert stage.state.fence == before_it + 2


def test_machines_from_before_a_lost_state_are_collected_and_do_not_count_as_workers() -> None:
    stage = Stage(workers=0)
    tags = {ACTION_TAG: "1768460000-90-old", SEQUENCE_TAG: "50"}
    lost = [stage.world.add_worker(zone, {**TAGS, **tags}, is_marked=False) for zone in ZONES[:2]]
    for machine in lost:
        stage.world.k3s.delete_node(stage.world.k3s.node(machine.id))  # type: ignore[arg-type]
    stage.tick_until(lambda: not {machine.id for machine in lost} & {m.id for m in stage.alive}, most=180)
    assert stage.state.action_seq >= 50
    assert sum(node.is_ready for node in stage.world.k3s.nodes()) == 2


def test_capacity_memory_written_by_a_clock_that_jumped_is_ignored() -> None:
    stage = Stage(workers=1)
    ahead = stage.clock.now().plus(365 * 86_400).epoch_seconds
    for kind in stage.choices.instance_types:
        for zone in {subnet.zone for subnet in stage.world.subnets}:
            for market in Market:
                failure = {"failures": 1, "untilEpoch": ahead}
                stage.store.update(STATE, Key("cluster#capacity"), attr(f"{kind}|{zone}|{market}").set_to(failure))
    stage.tick()
    assert len(stage.alive) == 2


def test_an_undrainable_mark_written_by_a_clock_that_jumped_does_not_keep_its_node() -> None:
    stage = Stage(workers=4)
    ahead = stage.clock.now().plus(365 * 86_400).epoch_seconds
    for machine in stage.alive:
        failure = {"failures": 1, "untilEpoch": ahead}
        stage.store.update(STATE, Key("cluster#capacity"), attr(f"drain|{machine.id}").set_to(failure))
    stage.tick_until(lambda: len(stage.alive) == 3)
