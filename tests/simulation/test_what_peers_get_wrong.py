"""Faults found in other K3s-on-EC2 autoscalers: one test each, which shows that Holdfast does not have it.

Some also have tests elsewhere, in the words of a seed. Unverified TLS is in `unit/adapters/kube/test_tls.py` and
`unit/adapters/prometheus/test_signals.py`; the CPU query in `unit/adapters/prometheus/test_real_prometheus.py`.
"""

from collections.abc import Callable

import pytest

from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.spot.notice import SpotKind
from holdfast.control.lease import LEASE_SECONDS
from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import MachineError
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.k3s import Workload
from tests.simulation.harness import TAGS, Stage, StageMaker
from tests.simulation.hooks import after, before, raising
from tests.simulation.scenarios import noted


def ids(stage: Stage) -> set[str]:
    return {machine.id for machine in stage.alive}


def new_tokens(stage: Stage) -> list[str]:
    return [order.token for order, _ in stage.world.ec2.launches if not order.token.startswith("early-")]


def with_spot(stage: Stage, pods: int) -> InstanceId:
    machine = stage.world.add_worker("eu-west-1b", TAGS, market="spot")
    stage.world.k3s.run(Workload("web", pods))
    stage.tick()
    return machine.id


# Scale-up


def test_a_crash_between_launches_leaves_no_untracked_machine(stage_of: StageMaker) -> None:
    """Others store the ids after all launches: a crash in between leaves untracked machines running for ever."""
    stage = stage_of()
    stage.world.k3s.run(Workload("web", 35))
    stage.gate = after("launch", raising(Killed()), times=1)
    stage.tick_until(lambda: len(new_tokens(stage)) == 1)
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    owned = [node.name for node in stage.world.k3s.nodes() if node.is_ready and not node.taints]
    assert ids(stage) == set(owned)
    assert len(owned) == 4


def test_a_retry_does_not_launch_twice(stage_of: StageMaker) -> None:
    """Others send no ClientToken: each lost response costs a machine."""
    stage = stage_of()
    stage.world.k3s.run(Workload("web", 35))
    stage.gate = after("launch", raising(MachineError("RequestTimeout", "no answer")), times=3)
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    assert len(new_tokens(stage)) == 2
    assert len(stage.alive) == 4


def test_machines_that_never_joined_are_not_left_running(stage_of: StageMaker) -> None:
    stage = stage_of()
    stage.world.joins = False
    stage.world.k3s.run(Workload("web", 35))
    stage.tick_until(lambda: stage.state.up_failures == 1)
    assert len(stage.alive) == 2


def test_a_node_that_exists_does_not_count_as_ready(stage_of: StageMaker) -> None:
    """The join check of others only asks whether the node exists."""
    stage = stage_of()
    stage.world.k3s.run(Workload("web", 35))
    stage.tick_until(lambda: stage.state.up is not None)
    stage.clock.sleep(120)
    for node in stage.world.k3s.nodes():
        if node.taints:
            stage.world.k3s.lose(InstanceId(node.name))
    stage.clock.sleep(60)
    stage.tick()
    assert stage.state.up is not None
    assert stage.state.last_scale.epoch_ms == 0


def test_only_the_scale_up_cooldown_delays_a_scale_up(stage_of: StageMaker) -> None:
    """In others, the longer scale-down cooldown also blocks scaling up."""
    stage = stage_of(policy=Policy(cooldown_down_seconds=7200))
    stage.world.k3s.run(Workload("web", 80))
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    completed = stage.clock.now()
    stage.tick_until(lambda: stage.state.up is not None)
    assert stage.clock.now().seconds_since(completed) <= 360


# Unknown readings and the maximum


def test_an_unavailable_prometheus_neither_adds_nor_removes_machines(stage_of: StageMaker) -> None:
    """One reads the failure as zero and adds two nodes on every run, without a cap; another reads it as idle."""
    stage = stage_of(workers=4)
    stage.world.k3s.run(Workload("web", 60))
    stage.world.prometheus.is_away = True
    for _ in range(60):
        stage.tick()
    assert len(stage.alive) == 4
    stage.world.k3s.run(Workload("web", 0))
    for _ in range(60):
        stage.tick()
    assert len(stage.alive) == 4
    assert stage.item["idleSinceEpoch"] == 0


def test_at_the_maximum_nothing_crashes_and_it_can_scale_down_again(stage_of: StageMaker) -> None:
    """One crashes at its maximum on every run, and so never scales down."""
    stage = stage_of(workers=6, policy=Policy(max_workers=6))
    stage.world.k3s.run(Workload("web", 200))
    for _ in range(20):
        assert stage.tick() is not None
    assert len(stage.alive) == 6
    stage.world.k3s.run(Workload("web", 3))
    stage.tick_until(lambda: len(stage.alive) == 3, most=90)


# Scale-down


@pytest.mark.parametrize("limit", ["drain", "action"])
def test_no_node_stays_cordoned_after_a_failed_drain_or_a_cleared_action(stage_of: StageMaker, limit: str) -> None:
    policy = Policy(drain_seconds=300 if limit == "drain" else 9000, idle_down_seconds=1200)
    stage = stage_of(workers=4, policy=policy)
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    stage.tick_until(lambda: stage.state.down is not None)
    stage.world.k3s.run(Workload("db", 20, max_unavailable=0))  # busy now: no other drain follows
    stage.tick_until(lambda: stage.state.down is None)
    assert not any(node.is_unschedulable for node in stage.world.k3s.nodes())
    assert len(stage.alive) == 4


def test_a_refused_eviction_does_not_abort_the_drain(stage_of: StageMaker) -> None:
    """In others the first 429 aborts the whole drain. Here one of three pods may be down at a time, and all move."""
    stage = stage_of(workers=4)
    stage.world.k3s.run(Workload("db", 8, max_unavailable=1))
    ticked = stage.tick_until(lambda: len(stage.alive) == 3, most=40)
    reports = [report for one in ticked for report in one.reports]
    assert any(" for now: " in report for report in reports), "a budget did refuse an eviction"
    assert sum(1 for pod in stage.world.k3s.pods() if pod.node) == 8


def test_the_lock_is_shorter_than_a_drain_renewed_fenced_and_released_only_by_its_owner(
    stage_of: StageMaker,
) -> None:
    """In others its TTL is the drain's own limit, it is never renewed, and any process can release it."""
    assert Policy().drain_seconds > LEASE_SECONDS
    stage = stage_of(workers=5)
    stage.world.k3s.run(Workload("web", 10))
    stage.tick_until(lambda: stage.state.down is not None)
    fences: list[int] = []

    def paused() -> None:
        """The process sleeps past the end of its lease, and another one takes over and finishes its work."""
        if fences:
            return
        fences.append(stage.state.fence)
        stage.clock.sleep(LEASE_SECONDS + 30)
        stage.gate = None
        for _ in range(4):
            stage.tick(seconds=20)
        fences.append(stage.state.fence)

    stage.tick(gate=before("evict", paused))
    assert fences[1] > fences[0], "another process has acted"
    assert stage.state.fence >= fences[1]
    stage.tick_until(lambda: not stage.state.is_acting)
    assert stage.item["lockOwner"] == ""
    assert len(stage.alive) == 4
    assert sum(1 for pod in stage.world.k3s.pods() if pod.node) == 10


# Spot


@pytest.mark.parametrize("rebalance", list(Rebalance))
def test_a_rebalance_hint_never_removes_a_healthy_node_without_a_replacement(
    stage_of: StageMaker, rebalance: Rebalance
) -> None:
    stage = stage_of(workers=3, policy=Policy(rebalance=rebalance))
    hinted = with_spot(stage, 20)
    noted(stage, hinted, SpotKind.REBALANCE)
    for _ in range(30):
        stage.tick()
        in_service = [n for n in stage.world.k3s.nodes() if n.is_ready and not n.taints and not n.is_unschedulable]
        assert len(in_service) >= 4
    assert (hinted in ids(stage)) is (rebalance is not Rebalance.REPLACE)


def test_the_replacement_is_launched_before_the_machine_is_gone(stage_of: StageMaker) -> None:
    stage = stage_of(workers=3)
    taken = with_spot(stage, 20)
    noted(stage, taken, SpotKind.INTERRUPTION)
    stage.tick(seconds=1)
    assert taken in ids(stage)
    assert len(stage.alive) == 5


def test_replacements_stay_within_the_maximum(stage_of: StageMaker) -> None:
    """It gets the place of the leaving machine, and no more than that, also during a scale-up."""
    stage = stage_of(workers=3, policy=Policy(max_workers=6))
    taken = with_spot(stage, 60)
    stage.tick_until(lambda: stage.state.up is not None)
    noted(stage, taken, SpotKind.INTERRUPTION)
    most = 0
    for _ in range(30):
        stage.tick(seconds=15)
        most = max(most, len(ids(stage) - {taken}))
    assert most == 6


def test_a_replacement_that_does_not_join_is_terminated(stage_of: StageMaker) -> None:
    stage = stage_of(workers=3)
    taken = with_spot(stage, 20)
    stage.world.joins = False
    noted(stage, taken, SpotKind.INTERRUPTION)
    stage.tick(seconds=1)
    (replacement,) = ids(stage) - {node.name for node in stage.world.k3s.nodes()}
    stage.tick_until(lambda: not stage.open_notices)
    assert replacement not in ids(stage)


# Facts that Holdfast relies on


@pytest.mark.parametrize("how", ["unlisted", "unlisted and killed"])
def test_a_machine_that_is_not_listed_yet_is_not_launched_again_and_not_given_up(how: str) -> None:
    """EC2's lists lag behind its launches."""
    stage = Stage()
    stage.world.ec2._habits = type(stage.world.ec2._habits)(unlisted_seconds=(200.0, 200.0))
    stage.world.k3s.run(Workload("web", 35))
    gate: Callable[..., object] = raising(Killed()) if how != "unlisted" else (lambda: None)
    stage.gate = after("launch", gate, times=1)
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    assert len(new_tokens(stage)) == 2
    assert len(stage.alive) == 4


def test_without_prometheus_pending_pods_are_read_from_kubernetes(stage_of: StageMaker) -> None:
    stage = stage_of()
    stage.world.k3s.run(Workload("web", 35))
    stage.world.prometheus.is_away = True
    stage.tick()
    assert stage.item["pendingSinceEpoch"] > 0
