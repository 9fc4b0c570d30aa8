"""The simulated Prometheus: what it reads while other parts of the world are away."""

import pytest

from holdfast.ports.readings import Known, Unknown
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import Bootstrap, World


@pytest.fixture
def world() -> World:
    """One worker in service, and three pods that found no room."""
    world = World(1, Bootstrap("instance", "taint", "action"), pods_per_node=2)
    world.add_worker("eu-west-1a", {})
    world.k3s.run(Workload("web", 5))
    return world


def test_while_the_api_server_is_away_it_reads_what_kube_state_metrics_last_saw(world: World) -> None:
    address = world.ec2.all_machines()[0].private_ip
    world.k3s.is_away = True
    world.k3s.run(Workload("web", 9))
    world.timeline.sleep(30)
    pending, ready, cpu = world.prometheus.pending_pods(), world.prometheus.ready_addresses(), world.prometheus.cpu()
    assert isinstance(pending, Known)
    assert (pending.value.count, pending.value.oldest_seconds) == (3, 30.0)
    assert isinstance(ready, Known)
    assert ready.value == {address}
    assert isinstance(cpu, Known)
    assert cpu.value == 1.0
    world.k3s.is_away = False
    assert isinstance(pending := world.prometheus.pending_pods(), Known)
    assert pending.value.count == 7


def test_kube_state_metrics_that_was_restarted_meanwhile_knows_nothing_and_the_cpu_is_read_all_the_same(
    world: World,
) -> None:
    world.prometheus.is_cache_lost = True
    assert isinstance(world.prometheus.pending_pods(), Known)
    world.k3s.is_away = True
    assert isinstance(world.prometheus.pending_pods(), Unknown)
    assert isinstance(world.prometheus.ready_addresses(), Unknown)
    assert isinstance(world.prometheus.cpu(), Known)


def test_no_reading_raises_whatever_is_away(world: World) -> None:
    world.k3s.is_away = world.prometheus.is_away = True
    signals = world.prometheus
    readings = (signals.cpu(), signals.pending_pods(), signals.ready_addresses())
    assert {type(reading) for reading in readings} == {Unknown}
