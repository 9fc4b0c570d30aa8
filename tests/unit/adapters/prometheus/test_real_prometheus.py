"""The default queries on a real Prometheus, which scrapes a small made-up cluster."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast.adapters.prometheus.queries import Queries
from holdfast.ports.readings import Known, Reading, Unknown
from tests.support.prometheus_world import WINDOW, PrometheusWorld, T, is_unknown, pod

pytestmark = pytest.mark.real


@pytest.fixture
def world(prometheus_world: PrometheusWorld) -> PrometheusWorld:
    prometheus_world.reset()
    return prometheus_world


def is_cpu(low: float, high: float) -> Callable[[Reading[float]], bool]:
    return lambda reading: isinstance(reading, Known) and low <= reading.value <= high


def is_known(value: T) -> Callable[[Reading[T]], bool]:
    return lambda reading: isinstance(reading, Known) and reading.value == value


# CPU


def test_a_fully_busy_cluster_reads_as_one_and_an_idle_one_as_zero(world: PrometheusWorld) -> None:
    for exporter in world.exporters:
        exporter.become("user")
    world.until(world.signals().cpu, is_cpu(0.9, 1.0))
    # The published mistake: seven busy modes averaged. The same machines read as a seventh.
    mistaken = f'avg(rate(node_cpu_seconds_total{{mode!="idle"}}[{WINDOW}]))'
    world.until(world.signals(Queries(cpu=mistaken)).cpu, is_cpu(0.12, 0.16))
    for exporter in world.exporters:
        exporter.become("idle")
    world.until(world.signals().cpu, is_cpu(0.0, 0.1))


def test_one_busy_worker_of_two_reads_as_a_half(world: PrometheusWorld) -> None:
    world.exporters[0].become("user")
    world.until(world.signals().cpu, is_cpu(0.45, 0.55))


def test_a_dead_exporter_does_not_count_and_when_all_are_dead_cpu_is_unknown(world: PrometheusWorld) -> None:
    world.exporters[0].become("user")
    world.until(world.signals().cpu, is_cpu(0.45, 0.55))
    world.exporters[1].is_silent = True
    world.until(world.signals().cpu, is_cpu(0.9, 1.0))
    world.exporters[0].is_silent = True
    world.until(world.signals().cpu, is_unknown)
    # A plain rate keeps averaging dead exporters as if they were live. Each of two checks notices.
    plain = Queries(cpu='1 - avg(rate(node_cpu_seconds_total{mode="idle"}[5m]))', cpu_seen="", cpu_coverage="")
    assert isinstance(world.signals(plain).cpu(), Known)
    assert isinstance(world.signals(replace(plain, cpu=Queries().cpu)).cpu(), Unknown)
    assert isinstance(world.signals(replace(plain, cpu_seen=Queries().cpu_seen)).cpu(), Unknown)


def test_too_few_exporters_for_the_number_of_workers_are_unknown(world: PrometheusWorld) -> None:
    world.until(world.signals().cpu, is_cpu(0.0, 1.0))
    world.kube.nodes |= {f"10.0.1.{number}": True for number in range(3)}
    why = "only 40% of the Ready workers report it"
    world.until(world.signals().cpu, lambda reading: isinstance(reading, Unknown) and why in reading.why)


def test_cpu_is_known_without_kube_state_metrics(world: PrometheusWorld) -> None:
    world.kube.is_silent = True
    world.until(world.signals().ready_addresses, is_unknown)
    world.until(world.signals().cpu, is_cpu(0.0, 1.0))


def test_missing_series_are_unknown(world: PrometheusWorld) -> None:
    nowhere = replace(Queries(), cpu="1 - avg(rate(nothing[5m]))", cpu_seen="max(timestamp(nothing))")
    assert isinstance(world.signals(nowhere).cpu(), Unknown)


# Pods


def test_unschedulable_pods_are_counted_and_the_oldest_is_known(world: PrometheusWorld) -> None:
    world.kube.pods += [
        pod("old", "Pending", unschedulable=True, age_seconds=500),
        pod("young", "Pending", unschedulable=True, age_seconds=100),
        pod("pulls-its-image", "Pending", age_seconds=900),
        pod("done", "Succeeded", age_seconds=9000),
    ]
    reading = world.until(world.signals().pending_pods, lambda seen: isinstance(seen, Known) and seen.value.count == 2)
    assert isinstance(reading, Known)
    assert 500 <= reading.value.oldest_seconds < 900


def test_no_pending_pods_are_zero_and_a_silent_exporter_is_unknown(world: PrometheusWorld) -> None:
    def is_zero(reading: object) -> bool:
        return isinstance(reading, Known) and reading.value.count == 0 and reading.value.oldest_seconds == 0

    world.until(world.signals().pending_pods, is_zero)
    world.kube.is_silent = True
    world.until(world.signals().pending_pods, is_unknown)
    world.kube.is_silent = False
    world.until(world.signals().pending_pods, is_zero)


def test_a_kube_state_metrics_that_may_not_list_pods_is_unknown(world: PrometheusWorld) -> None:
    world.until(world.signals().pending_pods, lambda reading: isinstance(reading, Known))
    world.kube.pods = []
    world.until(world.signals().pending_pods, is_unknown)
    world.until(world.signals().ready_addresses, lambda reading: isinstance(reading, Known))


def test_old_samples_that_prometheus_still_shows_are_unknown(world: PrometheusWorld) -> None:
    """Samples with their own timestamps, as from another Prometheus, are shown for five minutes after the last one."""
    world.kube.pods += [f"federated_pods 1 {int((time.time() - 130) * 1000)}"]
    careless = Queries(pending="max(federated_pods)", pending_oldest_seconds="vector(1)", pending_seen="")
    reading = world.until(world.signals(careless).pending_pods, lambda seen: isinstance(seen, Known))
    assert isinstance(reading, Known)
    assert reading.value.count == 1
    careful = replace(careless, pending_seen="max(timestamp(federated_pods))")
    reading = world.signals(careful).pending_pods()
    assert isinstance(reading, Unknown)
    assert "s old, more than 120 s" in reading.why


# Nodes


def test_ready_nodes_are_identified_by_their_addresses(world: PrometheusWorld) -> None:
    world.kube.nodes["10.0.0.8"] = False
    world.until(world.signals().ready_addresses, is_known(frozenset({"10.0.0.1", "10.0.0.7"})))


def test_no_ready_node_is_known_and_no_node_at_all_is_unknown(world: PrometheusWorld) -> None:
    world.kube.nodes = dict.fromkeys(world.kube.nodes, False)
    world.until(world.signals().ready_addresses, is_known(frozenset[str]()))
    world.kube.nodes = {}
    world.until(world.signals().ready_addresses, is_unknown)


def test_a_broken_query_is_unknown_with_prometheus_message(world: PrometheusWorld) -> None:
    reading = world.signals(replace(Queries(), cpu="1 - avg(", cpu_seen="")).cpu()
    assert isinstance(reading, Unknown)
    assert "parse error" in reading.why
