"""Seed 003, end to end in the simulated world."""

from functools import partial

from holdfast.cluster.policy import Policy, ZonesKept
from holdfast.ports.kube import Pod, PodPhase
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import ZONES
from tests.simulation.harness import TAGS, Stage, StageMaker


def test_an_idle_cluster_removes_one_worker_at_a_time(stage_of: StageMaker) -> None:
    """The whole way: rules, plan, cordon, eviction, commit, termination, cooldown."""
    stage = stage_of(workers=5)
    stage.world.k3s.run(Workload("web", 6))
    ticked = stage.tick_until(lambda: len(stage.alive) == 3, most=90)
    kinds = [step.kind for one in ticked for step in one.done]
    assert kinds.count("begin_scale_down") == 2
    assert kinds.count("terminate_target") == 2
    stage.tick_until(lambda: not stage.state.is_acting)
    assert sum(1 for pod in stage.world.k3s.pods() if pod.node) == 6
    for _ in range(30):
        stage.tick()
    # Two would be enough, but no zone is emptied while there is more than one.
    assert sorted(machine.zone for machine in stage.alive) == list(ZONES)


def test_a_drain_blocked_by_a_budget_is_aborted_and_its_node_uncordoned(stage_of: StageMaker) -> None:
    stage = stage_of(workers=4)
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    stage.tick_until(lambda: stage.state.down is not None)
    stage.tick_until(lambda: stage.state.down is None)
    assert len(stage.alive) == 4
    assert not any(node.is_unschedulable for node in stage.world.k3s.nodes())
    assert stage.state.last_scale.epoch_ms == 0


def test_a_critical_pod_on_the_old_worker_does_not_pin_the_newest_for_ever(stage_of: StageMaker) -> None:
    """CoreDNS sits on the only other worker: the newest leaves once it is no longer new."""
    stage = stage_of(workers=0, policy=Policy(min_workers=1, newest_kept_seconds=1800))
    old = stage.world.add_worker(ZONES[0], TAGS)
    coredns = Pod("kube-system", "coredns-1", "uid-dns", old.id, PodPhase.RUNNING, stage.clock.now(), None)
    stage.world.k3s.put_pod(coredns)
    stage.clock.sleep(3600)
    new = stage.world.add_worker(ZONES[0], TAGS)
    joined = stage.clock.now()
    ticked = stage.tick_until(lambda: len(stage.alive) == 1, most=90)
    assert [machine.id for machine in stage.alive] == [old.id]
    assert stage.clock.now().seconds_since(joined) >= 1800
    waiting = [rule for one in ticked for rule in one.plan.rules if rule.name == "a_worker_may_leave"]
    assert [line.split(":")[0] for line in waiting[0].details] == [old.id, new.id]
    assert "kube-system/coredns-1" in waiting[0].details[0]
    assert "NEWEST_KEPT_SEC" in waiting[0].details[1]


def _is_smaller(stage: Stage, workers: int) -> bool:
    return len(stage.alive) < workers


def test_with_prefer_the_minimum_is_reached_below_the_number_of_zones(stage_of: StageMaker) -> None:
    stage = stage_of(workers=4, policy=Policy(min_workers=1, zones_kept=ZonesKept.PREFER))
    stage.world.k3s.run(Workload("web", 2))
    left: list[list[str]] = []
    while len(stage.alive) > 1:
        stage.tick_until(partial(_is_smaller, stage, len(stage.alive)), most=120)
        left.append(sorted(machine.zone for machine in stage.alive))
    # The two in one zone go down to one first, and only then is a zone given up.
    assert left[0] == list(ZONES)
    assert [len(zones) for zones in left] == [3, 2, 1]
