"""The doctor on a real Prometheus, which scrapes metrics that the test serves."""

import pytest

from holdfast.adapters.system_clock import SystemClock
from holdfast.entrypoints.doctor import signals
from holdfast.entrypoints.doctor.aws import WorkersFound
from holdfast.entrypoints.doctor.findings import Finding
from holdfast.kernel.settings import Settings, load_settings
from holdfast.ports.readings import Known
from tests.servers.scripted_http import Reply, serving
from tests.support.prometheus_world import PrometheusWorld, is_unknown

CLOCK = SystemClock()


@pytest.fixture
def world(prometheus_world: PrometheusWorld) -> PrometheusWorld:
    prometheus_world.reset()
    return prometheus_world


def settings_for(url: str, **more: str) -> Settings:
    return load_settings({"HOLDFAST_WORLD": "aws", "PROMETHEUS_URL": url, **more})


def by_check(settings: Settings) -> dict[str, Finding]:
    return {each.check: each for each in signals.read(settings, CLOCK)}


@pytest.mark.real
def test_fresh_data_is_shown_with_its_age_and_missing_data_with_its_exporter(world: PrometheusWorld) -> None:
    world.until(
        world.signals().ready_addresses,
        lambda reading: isinstance(reading, Known) and reading.value == world.kube.nodes.keys(),
    )
    world.until(world.signals().cpu, lambda reading: isinstance(reading, Known))
    world.until(world.signals().pending_pods, lambda reading: isinstance(reading, Known))
    found = by_check(settings_for(world.url))
    assert {check: str(each.outcome) for check, each in found.items()} == {
        "Prometheus: CPU": "ok",
        "Prometheus: pending pods": "ok",
        "Prometheus: Ready nodes": "ok",
    }
    assert found["Prometheus: Ready nodes"].seen.startswith("3 nodes, ")
    world.kube.is_silent = True
    world.until(world.signals().pending_pods, is_unknown)
    world.until(world.signals().ready_addresses, is_unknown)
    found = by_check(settings_for(world.url))
    assert {check: str(each.outcome) for check, each in found.items()} == {
        "Prometheus: CPU": "ok",
        "Prometheus: pending pods": "failed",
        "Prometheus: Ready nodes": "warning",
    }
    assert "kube-state-metrics" in found["Prometheus: pending pods"].fix


@pytest.mark.real
def test_a_wrong_custom_query_is_reported(world: PrometheusWorld) -> None:
    found = by_check(settings_for(world.url, PROMETHEUS_CPU_QUERY="avg(", PROMETHEUS_CPU_SEEN_QUERY="time()"))
    assert "parse error" in found["Prometheus: CPU"].seen
    assert "PROMETHEUS_CPU_QUERY" in found["Prometheus: CPU"].fix


def test_an_unreachable_prometheus_is_three_failures_with_its_address() -> None:
    found = by_check(settings_for("http://127.0.0.1:9"))
    assert len(found) == 3
    assert all("http://127.0.0.1:9" in each.seen for each in found.values())
    assert all(each.fix.startswith("check PROMETHEUS_URL") for each in found.values())


def test_old_data_is_reported_as_old() -> None:
    old = CLOCK.now().epoch_seconds - 1000
    body = f'{{"status":"success","data":{{"resultType":"scalar","result":[{old + 1000},"{old}"]}}}}'
    with serving(lambda _: Reply(body.encode(), headers={"Content-Type": "application/json"})) as server:
        found = by_check(settings_for(server.url))
    assert " s old" in found["Prometheus: CPU"].seen
    assert "PROMETHEUS_STALE_SEC" in found["Prometheus: CPU"].fix


EMPTY = Reply(
    b'{"status":"success","data":{"resultType":"vector","result":[]}}', headers={"Content-Type": "application/json"}
)


def outcomes_with(workers: WorkersFound | None, **more: str) -> list[tuple[str, str]]:
    with serving(lambda _: EMPTY) as server:
        found = signals.read(settings_for(server.url, **more), CLOCK, workers)
        return [(each.check, str(each.outcome)) for each in found]


def test_before_the_first_worker_data_that_workers_provide_is_unknown_yet_and_no_failure() -> None:
    assert outcomes_with(WorkersFound(0)) == [
        ("Prometheus: CPU", "not asked"),
        ("Prometheus: pending pods", "not asked"),
        ("Prometheus: Ready nodes", "not asked"),
    ]


@pytest.mark.parametrize("workers", [None, WorkersFound(), WorkersFound(2)])
def test_with_workers_or_an_unknown_number_of_them_missing_data_is_a_failure(workers: WorkersFound | None) -> None:
    assert [outcome for _, outcome in outcomes_with(workers)] == ["failed", "failed", "warning"]


def test_a_prometheus_that_is_not_there_is_a_failure_before_the_first_worker_as_well() -> None:
    found = list(signals.read(settings_for("http://127.0.0.1:9"), CLOCK, WorkersFound(0)))
    assert [str(each.outcome) for each in found] == ["failed", "failed", "warning"]


def test_a_cluster_that_could_never_start_is_a_warning() -> None:
    """The seed's rule needs CPU, which nothing reports before the first worker, and the minimum asks for none."""
    assert outcomes_with(WorkersFound(0), MIN_WORKERS="0")[-1] == ("Prometheus: CPU", "warning")
    assert len(outcomes_with(WorkersFound(0), MIN_WORKERS="0", SCALE_UP_RULE="any")) == 3
