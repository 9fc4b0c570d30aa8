"""Up, down, and what keeps a cluster from either."""

import pytest

from holdfast.ports.machines import Market
from tests.support.black_box import Stage, StageMaker
from tests.support.ec2_front import ZONES

pytestmark = [pytest.mark.real, pytest.mark.slow]

TYPES = ("t3.medium", "t3a.medium")
SMALL = "400m"  # four fit on a machine


def run_out(stage: Stage, zones: tuple[str, ...], markets: tuple[Market, ...]) -> None:
    for instance_type in TYPES:
        for zone in zones:
            for market in markets:
                stage.front.ec2.run_out(instance_type, zone, market)


def is_any_cordoned(stage: Stage) -> bool:
    return any(node["spec"].get("unschedulable") for node in stage.nodes())


def healthy(stage: Stage) -> int:
    """The pods that a disruption budget counts."""
    return sum(1 for pod in stage.pods("Running") if "deletionTimestamp" not in pod["metadata"])


def grown_to_two(stage: Stage, replicas: int) -> None:
    """Two workers for six pods, of which so many stay."""
    stage.run()
    stage.until_settled(1)
    stage.deploy("web", 6, SMALL)
    stage.until(lambda: len(stage.pods("Running")) == 6, "every pod runs")
    stage.until_settled(2)
    stage.scale("web", replicas)
    stage.until(lambda: len(stage.pods()) == replicas, "some pods have gone")


def test_pods_without_room_get_machines_and_a_drain_keeps_to_a_budget(stage_with: StageMaker) -> None:
    """From nothing to the minimum, up for six pods, and down again, evicting no more at once than is allowed."""
    stage = stage_with()
    grown_to_two(stage, 4)
    stage.protect("web", least_available=3)
    stage.servers.metrics.load = 0.1

    def is_down() -> bool:
        assert healthy(stage) >= 3
        return stage.is_settled(1)

    stage.until(is_down, "one worker is left")
    stage.until(lambda: healthy(stage) == 4, "every pod runs")
    assert stage.front.launches() == 2


def test_a_budget_that_allows_no_eviction_ends_in_an_uncordon(stage_with: StageMaker) -> None:
    stage = stage_with(DRAIN_SEC="5", STUCK_SEC="20")
    grown_to_two(stage, 6)
    pods = {pod["metadata"]["uid"] for pod in stage.pods()}
    stage.protect("web", least_available=6)
    stage.servers.metrics.load = 0.1
    stage.until(lambda: is_any_cordoned(stage), "a drain begins")
    stage.servers.metrics.load = 0.5
    stage.until_settled(2)
    assert {pod["metadata"]["uid"] for pod in stage.pods("Running")} == pods


def test_a_limit_of_ours_is_not_slept_through(stage_with: StageMaker) -> None:
    """The interval between ticks is an hour: the launch comes because pods have been pending long enough.

    With the pauses of `holdfast` itself.
    """
    stage = stage_with("holdfast.cli.main", TICK_SEC="3600", PENDING_UP_SEC="10", COOLDOWN_UP_SEC="15")
    stage.run()
    stage.until_settled(1)
    stage.deploy("web", 4)
    stage.until(lambda: len(stage.pods("Running")) == 4, "every pod runs")
    stage.until_settled(2)


def test_a_batch_without_spot_capacity_is_launched_on_demand(stage_with: StageMaker) -> None:
    stage = stage_with(MAX_BATCH_UP="3", PODS_PER_NODE="2")
    run_out(stage, ZONES, (Market.SPOT,))
    stage.run()
    stage.until_settled(1)
    stage.deploy("web", 8)
    stage.until(lambda: len(stage.pods("Running")) == 8, "every pod runs")
    stage.until_settled(4)
    assert {machine.market for machine in stage.front.machines()} == {Market.ON_DEMAND}
    assert stage.front.launches() == 4


def test_machines_come_from_the_zone_that_has_capacity(stage_with: StageMaker) -> None:
    stage = stage_with(MIN_WORKERS="2")
    run_out(stage, ZONES[:1], (Market.SPOT, Market.ON_DEMAND))
    stage.run()
    stage.until_settled(2)
    assert {machine.zone for machine in stage.front.machines()} == {ZONES[1]}
    assert {machine.market for machine in stage.front.machines()} == {Market.SPOT}


def test_a_pod_that_fits_on_no_machine_launches_none_and_blocks_no_scale_down(stage_with: StageMaker) -> None:
    stage = stage_with()
    grown_to_two(stage, 2)
    stage.deploy("huge", 1, cpu="64")
    stage.until(lambda: len(stage.pods("Pending")) == 1, "it is pending")
    stage.servers.metrics.load = 0.1
    stage.until_settled(1)
    stage.until(lambda: healthy(stage) == 2, "the others run")
    assert stage.front.launches() == 2


def test_a_machine_that_does_not_join_is_terminated_and_ends_its_action(stage_with: StageMaker) -> None:
    """After JOIN_TIMEOUT_SEC, of which the least allowed is a minute. The next attempt comes after a back-off.

    Its agent got as far as its password, which K3s would keep for ever.
    """
    stage = stage_with()
    stage.kubelets.joins = False
    stage.run()
    stage.until(lambda: stage.passwords() != [], "a machine is launched, and its agent starts")
    stage.until_settled(0)
    stage.until(lambda: stage.passwords() == [], "its password is deleted")
    assert stage.front.launches() == 1


def test_a_node_that_was_deleted_and_registers_anew_is_accepted_again(stage_with: StageMaker) -> None:
    """Its machine runs on, and so does its work: it is neither replaced nor terminated."""
    stage = stage_with()
    stage.run()
    stage.until_settled(1)
    stage.deploy("web", 2)
    stage.until(lambda: healthy(stage) == 2, "every pod runs")
    machine = stage.front.machines()[0].id
    before = stage.nodes()[0]["metadata"]["uid"]
    pods = {pod["metadata"]["uid"] for pod in stage.pods()}
    stage.servers.kube.call("DELETE", f"/api/v1/nodes/{machine}")
    stage.until(lambda: [n["metadata"]["uid"] for n in stage.nodes()] not in ([], [before]), "it registers anew")
    stage.until_settled(1)
    assert [each.id for each in stage.front.machines()] == [machine]
    assert {pod["metadata"]["uid"] for pod in stage.pods("Running")} == pods
    assert stage.front.launches() == 1
