"""A pod that no machine could hold: nothing is launched for it, and it blocks nothing."""

import pytest

from holdfast.cluster.policy import Choices, Policy, ScaleUpRule
from holdfast.ports.kube import Resources
from holdfast.simulator.world.k3s import Workload
from tests.simulation.harness import Stage, StageMaker

ANY = Policy(scale_up_rule=ScaleUpRule.ANY)
HUGE = {"requests": Resources(64_000, 1024**3)}


def with_impossible_pod(stage: Stage, ordinary: int) -> None:
    stage.world.k3s.run(Workload("huge", 1, template=HUGE))
    stage.world.k3s.run(Workload("web", ordinary))


@pytest.mark.parametrize("prometheus_is_away", [False, True])
def test_nothing_is_launched_for_it_and_an_idle_cluster_still_shrinks(
    stage_of: StageMaker, prometheus_is_away: bool
) -> None:
    """Before, it drove the cluster to the maximum and kept it there."""
    stage = stage_of(workers=5, policy=ANY)
    with_impossible_pod(stage, 6)
    for _ in range(10):
        stage.tick()
    stage.world.prometheus.is_away = prometheus_is_away  # then Kubernetes counts the pods
    for _ in range(10):
        stage.tick()
    stage.world.prometheus.is_away = False
    stage.tick_until(lambda: len(stage.alive) == 3, most=90)
    assert len(stage.world.ec2.launches) == 5
    ticked = stage.tick()
    assert ticked is not None
    (verdict,) = [rule for rule in ticked.plan.rules if rule.name == "every_pod_fits"]
    assert verdict.value == "1 pod"
    assert verdict.details[0].startswith("default/huge-")
    assert verdict.details[0].endswith(": asks 64 CPU; the largest type, t3.medium, has 2")


def test_ordinary_load_beside_it_gets_machines_for_itself_alone(stage_of: StageMaker) -> None:
    """The nodes are full, so CPU is high: pending pods alone decide."""
    stage = stage_of(workers=2)
    with_impossible_pod(stage, 30)
    stage.tick_until(lambda: all(pod.node for pod in stage.world.k3s.pods() if pod.requests is None), most=60)
    for _ in range(60):
        stage.tick()
    assert len(stage.alive) == 3
    assert [pod.requests for pod in stage.world.k3s.pods() if pod.node is None] == [HUGE["requests"]]


def test_with_a_type_that_can_hold_it_a_machine_is_launched(stage_of: StageMaker) -> None:
    stage = stage_of(workers=2, policy=ANY, choices=Choices(("m7i.xlarge",)))
    stage.world.k3s.run(Workload("large", 1, template={"requests": Resources(3_000, 8 * 1024**3)}))
    stage.tick_until(lambda: all(pod.node for pod in stage.world.k3s.pods()), most=60)


def test_a_type_that_is_not_in_the_table_may_hold_anything(stage_of: StageMaker) -> None:
    """The table may be older than the type: the pod counts as before."""
    stage = stage_of(workers=2, policy=ANY, choices=Choices(("t3.medium", "m99i.huge")))
    with_impossible_pod(stage, 1)
    stage.tick_until(lambda: len(stage.world.ec2.launches) > 2, most=60)
