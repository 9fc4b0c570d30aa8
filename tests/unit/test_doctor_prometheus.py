"""The doctor on a real Prometheus, which scrapes what the test serves."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from holdfast.adapters.system_clock import SystemClock
from holdfast.entrypoints.doctor import signals
from holdfast.entrypoints.doctor.findings import Finding
from holdfast.kernel.settings import Settings, load_settings
from holdfast.ports.readings import Known
from tests.conftest import REAL
from tests.servers import prometheus
from tests.servers.scripted_http import Reply, serving
from tests.unit.test_prometheus_real import World, is_unknown

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World()
    world.reset()
    with ExitStack() as stack:
        pages = {"node": world.page(world.exporters[0]), "kube": world.page(world.kube)}
        servers = {name: stack.enter_context(serving(page)) for name, page in pages.items()}
        targets = {name: server.url.removeprefix("http://") for name, server in servers.items()}
        try:
            server = prometheus.start(tmp_path_factory.mktemp("prometheus"), targets)
        except prometheus.Unavailable as error:
            if REAL:
                pytest.fail(str(error))
            pytest.skip(str(error))
        world.url = server.url
        yield world
        server.stop()


def settings_for(url: str, **more: str) -> Settings:
    return load_settings({"HOLDFAST_WORLD": "aws", "PROMETHEUS_URL": url, **more})


def by_check(settings: Settings) -> dict[str, Finding]:
    return {each.check: each for each in signals.read(settings, CLOCK)}


@pytest.mark.real
def test_fresh_data_is_told_with_its_age_and_missing_data_with_who_should_export_it(world: World) -> None:
    world.until(world.signals().cpu, lambda reading: isinstance(reading, Known))
    world.until(world.signals().pending_pods, lambda reading: isinstance(reading, Known))
    found = by_check(settings_for(world.url))
    assert {check: str(each.outcome) for check, each in found.items()} == {
        "Prometheus: CPU": "ok",
        "Prometheus: pending pods": "ok",
        "Prometheus: Ready nodes": "ok",
    }
    assert found["Prometheus: Ready nodes"].seen.startswith("3 nodes, seen ")
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
    world.kube.is_silent = False


@pytest.mark.real
def test_a_query_of_ones_own_that_is_wrong_is_told(world: World) -> None:
    found = by_check(settings_for(world.url, PROMETHEUS_CPU_QUERY="avg(", PROMETHEUS_CPU_SEEN_QUERY="time()"))
    assert "parse error" in found["Prometheus: CPU"].seen
    assert "PROMETHEUS_CPU_QUERY" in found["Prometheus: CPU"].fix


def test_a_prometheus_that_is_not_there_is_three_failures_with_its_address() -> None:
    found = by_check(settings_for("http://127.0.0.1:9"))
    assert len(found) == 3
    assert all("http://127.0.0.1:9" in each.seen for each in found.values())
    assert all(each.fix.startswith("correct PROMETHEUS_URL") for each in found.values())


def test_old_data_is_told_as_old() -> None:
    old = CLOCK.now().epoch_seconds - 1000
    body = f'{{"status":"success","data":{{"resultType":"scalar","result":[{old + 1000},"{old}"]}}}}'
    with serving(lambda _: Reply(body.encode(), headers={"Content-Type": "application/json"})) as server:
        found = by_check(settings_for(server.url))
    assert " s old" in found["Prometheus: CPU"].seen
    assert "PROMETHEUS_STALE_SEC" in found["Prometheus: CPU"].fix
