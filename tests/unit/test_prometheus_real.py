"""The default queries on a real Prometheus, which scrapes a small cluster that the test makes up."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest

from holdfast.adapters.http_calls import HttpPlace
from holdfast.adapters.prometheus import PrometheusSignals
from holdfast.adapters.prometheus_queries import Queries, queries_over
from holdfast.adapters.system_clock import SystemClock
from holdfast.ports.readings import Known, Reading, Unknown
from tests.conftest import REAL
from tests.servers import prometheus
from tests.servers.scripted_http import Asked, Reply, serving

pytestmark = pytest.mark.real

T = TypeVar("T")
PATIENCE_SECONDS = 60
CLOCK = SystemClock()
WINDOW = "4s"
BUSY_MODES = ("user", "system", "iowait", "irq", "nice", "softirq", "steal")


@dataclass
class NodeExporter:
    """Two cores, which are busy or idle since a moment; counters go on from where they were."""

    is_silent: bool = False
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("idle", *BUSY_MODES), 100.0))
    mode: str = "idle"
    since: float = field(default_factory=time.time)

    def become(self, mode: str) -> None:
        self.seconds = self._counters()
        self.mode, self.since = mode, time.time()

    def _counters(self) -> dict[str, float]:
        return self.seconds | {self.mode: self.seconds[self.mode] + time.time() - self.since}

    def metrics(self) -> list[str]:
        return [
            f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} {seconds:.3f}'
            for mode, seconds in self._counters().items()
            for cpu in (0, 1)
        ]


@dataclass
class KubeStateMetrics:
    """Nodes and pods as lists of what kube-state-metrics says of them."""

    is_silent: bool = False
    nodes: dict[str, bool] = field(default_factory=dict)  # address, and whether it is Ready
    pods: list[str] = field(default_factory=list)

    def metrics(self) -> list[str]:
        lines = [line for address, is_ready in self.nodes.items() for line in _node(address, is_ready)]
        return [*lines, _node_role("10.0.0.1"), *self.pods]


def _node_role(address: str) -> str:
    return f'kube_node_role{{node="n-{address}",role="control-plane"}} 1'


def _node(address: str, is_ready: bool) -> list[str]:
    condition = f'kube_node_status_condition{{node="n-{address}",condition="Ready",status='
    return [
        f'kube_node_info{{node="n-{address}",internal_ip="{address}",kubelet_version="v1.31"}} 1',
        f'{condition}"true"}} {int(is_ready)}',
        f'{condition}"false"}} {int(not is_ready)}',
        f'{condition}"unknown"}} 0',
    ]


def pod(name: str, phase: str = "Running", *, unschedulable: bool = False, age_seconds: int = 60) -> str:
    labels = f'namespace="default",pod="{name}",uid="uid-{name}"'
    phases = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
    lines = [f'kube_pod_status_phase{{{labels},phase="{each}"}} {int(each == phase)}' for each in phases]
    lines.append(f"kube_pod_created{{{labels}}} {int(time.time()) - age_seconds}")
    if unschedulable:
        lines.append(f"kube_pod_status_unschedulable{{{labels}}} 1")
    return "\n".join(lines)


@dataclass
class World:
    """Two workers with exporters, one server, and kube-state-metrics, which is scraped twice as pairs of them are."""

    url: str = ""
    exporters: tuple[NodeExporter, NodeExporter] = field(default_factory=lambda: (NodeExporter(), NodeExporter()))
    kube: KubeStateMetrics = field(default_factory=KubeStateMetrics)
    scraped: threading.Condition = field(default_factory=threading.Condition)

    def reset(self) -> None:
        for exporter in self.exporters:
            exporter.is_silent = False
            exporter.become("idle")
        self.kube.is_silent = False
        self.kube.nodes = {"10.0.0.1": True, "10.0.0.7": True, "10.0.0.8": True}
        self.kube.pods = [pod("coredns")]

    def page(self, source: NodeExporter | KubeStateMetrics) -> Callable[[Asked], Reply]:
        def answer(_: Asked) -> Reply:
            with self.scraped:
                self.scraped.notify_all()
            if source.is_silent:
                return Reply(status=503)
            return Reply("\n".join([*source.metrics(), ""]).encode(), headers={"Content-Type": "text/plain"})

        return answer

    def signals(self, queries: Queries | None = None) -> PrometheusSignals:
        place = HttpPlace(self.url, CLOCK, setting="PROMETHEUS_URL")
        return PrometheusSignals(place, CLOCK, queries or queries_over(WINDOW))

    def until(self, measure: Callable[[], Reading[T]], wanted: Callable[[Reading[T]], bool]) -> Reading[T]:
        """Look after each scrape until the reading is as wanted."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not wanted(reading := measure()):
            assert time.monotonic() < end, f"still {reading}"
            with self.scraped:
                self.scraped.wait(timeout=1)
        return reading


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World()
    with ExitStack() as stack:
        sources: dict[str, NodeExporter | KubeStateMetrics] = {
            "node-a": world.exporters[0],
            "node-b": world.exporters[1],
            "kube": world.kube,
            "twin": world.kube,
        }
        servers = {name: stack.enter_context(serving(world.page(source))) for name, source in sources.items()}
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


@pytest.fixture
def world(running: World) -> World:
    running.reset()
    return running


def is_cpu(low: float, high: float) -> Callable[[Reading[float]], bool]:
    return lambda reading: isinstance(reading, Known) and low <= reading.value <= high


def is_unknown(reading: Reading[T]) -> bool:
    return isinstance(reading, Unknown)


def is_known(value: T) -> Callable[[Reading[T]], bool]:
    return lambda reading: isinstance(reading, Known) and reading.value == value


# CPU


def test_a_fully_busy_cluster_reads_as_one_and_an_idle_one_as_zero(world: World) -> None:
    for exporter in world.exporters:
        exporter.become("user")
    world.until(world.signals().cpu, is_cpu(0.9, 1.0))
    # The published mistake: seven busy modes averaged. The same machines read as a seventh.
    mistaken = f'avg(rate(node_cpu_seconds_total{{mode!="idle"}}[{WINDOW}]))'
    world.until(world.signals(Queries(cpu=mistaken)).cpu, is_cpu(0.12, 0.16))
    for exporter in world.exporters:
        exporter.become("idle")
    world.until(world.signals().cpu, is_cpu(0.0, 0.1))


def test_one_busy_worker_of_two_reads_as_a_half(world: World) -> None:
    world.exporters[0].become("user")
    world.until(world.signals().cpu, is_cpu(0.45, 0.55))


def test_a_dead_exporter_leaves_the_average_and_when_all_are_dead_cpu_is_unknown(world: World) -> None:
    world.exporters[0].become("user")
    world.until(world.signals().cpu, is_cpu(0.45, 0.55))
    world.exporters[1].is_silent = True
    world.until(world.signals().cpu, is_cpu(0.9, 1.0))
    world.exporters[0].is_silent = True
    world.until(world.signals().cpu, is_unknown)
    # A plain rate goes on averaging the dead, as if they had been seen just now. Each of two checks notices.
    plain = Queries(cpu='1 - avg(rate(node_cpu_seconds_total{mode="idle"}[5m]))', cpu_seen="", cpu_coverage="")
    assert isinstance(world.signals(plain).cpu(), Known)
    assert isinstance(world.signals(replace(plain, cpu=Queries().cpu)).cpu(), Unknown)
    assert isinstance(world.signals(replace(plain, cpu_seen=Queries().cpu_seen)).cpu(), Unknown)


def test_few_exporters_do_not_speak_for_many_workers(world: World) -> None:
    world.until(world.signals().cpu, is_cpu(0.0, 1.0))
    world.kube.nodes |= {f"10.0.1.{number}": True for number in range(3)}
    why = "0.40 exporters report it for each Ready worker"
    world.until(world.signals().cpu, lambda reading: isinstance(reading, Unknown) and why in reading.why)


def test_cpu_is_known_without_kube_state_metrics(world: World) -> None:
    world.kube.is_silent = True
    world.until(world.signals().ready_addresses, is_unknown)
    world.until(world.signals().cpu, is_cpu(0.0, 1.0))


def test_series_that_nobody_serves_are_unknown(world: World) -> None:
    nowhere = replace(Queries(), cpu="1 - avg(rate(nothing[5m]))", cpu_seen="max(timestamp(nothing))")
    assert isinstance(world.signals(nowhere).cpu(), Unknown)


# Pods


def test_pods_that_wait_for_a_place_are_counted_and_the_oldest_is_known(world: World) -> None:
    world.kube.pods += [
        pod("old", "Pending", unschedulable=True, age_seconds=500),
        pod("young", "Pending", unschedulable=True, age_seconds=100),
        pod("pulls-its-image", "Pending", age_seconds=900),
        pod("done", "Succeeded", age_seconds=9000),
    ]
    reading = world.until(world.signals().pending_pods, lambda seen: isinstance(seen, Known) and seen.value.count == 2)
    assert isinstance(reading, Known)
    assert 500 <= reading.value.oldest_seconds < 900


def test_nobody_waiting_is_zero_and_a_silent_exporter_is_unknown(world: World) -> None:
    def is_zero(reading: object) -> bool:
        return isinstance(reading, Known) and reading.value.count == 0 and reading.value.oldest_seconds == 0

    world.until(world.signals().pending_pods, is_zero)
    world.kube.is_silent = True
    world.until(world.signals().pending_pods, is_unknown)
    world.kube.is_silent = False
    world.until(world.signals().pending_pods, is_zero)


def test_a_kube_state_metrics_that_may_not_list_pods_is_unknown(world: World) -> None:
    world.until(world.signals().pending_pods, lambda reading: isinstance(reading, Known))
    world.kube.pods = []
    world.until(world.signals().pending_pods, is_unknown)
    world.until(world.signals().ready_addresses, lambda reading: isinstance(reading, Known))


def test_old_samples_that_prometheus_still_shows_are_unknown(world: World) -> None:
    """Samples with a time of their own, as from another Prometheus, are shown for five minutes after their end."""
    world.kube.pods += [f"federated_pods 1 {int((time.time() - 130) * 1000)}"]
    careless = Queries(pending="max(federated_pods)", pending_oldest_seconds="vector(1)", pending_seen="")
    reading = world.until(world.signals(careless).pending_pods, lambda seen: isinstance(seen, Known))
    assert isinstance(reading, Known)
    assert reading.value.count == 1
    careful = replace(careless, pending_seen="max(timestamp(federated_pods))")
    reading = world.signals(careful).pending_pods()
    assert isinstance(reading, Unknown)
    assert "s old, over 120 s" in reading.why


# Nodes


def test_ready_nodes_are_told_by_their_addresses(world: World) -> None:
    world.kube.nodes["10.0.0.8"] = False
    world.until(world.signals().ready_addresses, is_known(frozenset({"10.0.0.1", "10.0.0.7"})))


def test_no_ready_node_is_known_and_no_node_at_all_is_not(world: World) -> None:
    world.kube.nodes = dict.fromkeys(world.kube.nodes, False)
    world.until(world.signals().ready_addresses, is_known(frozenset[str]()))
    world.kube.nodes = {}
    world.until(world.signals().ready_addresses, is_unknown)


def test_a_broken_query_is_unknown_with_what_prometheus_says(world: World) -> None:
    reading = world.signals(replace(Queries(), cpu="1 - avg(", cpu_seen="")).cpu()
    assert isinstance(reading, Unknown)
    assert "parse error" in reading.why
