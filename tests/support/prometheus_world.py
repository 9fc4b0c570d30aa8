"""A real Prometheus that scrapes exporters of the test."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from holdfast.adapters.http_calls import HttpEndpoint
from holdfast.adapters.prometheus.queries import Queries
from holdfast.adapters.prometheus.signals import PrometheusSignals
from holdfast.adapters.system_clock import SystemClock
from holdfast.ports.readings import Reading, Unknown
from tests.servers import prometheus
from tests.servers.scripted_http import Asked, Reply, serving

T = TypeVar("T")
PATIENCE_SECONDS = 60
CLOCK = SystemClock()
WINDOW = "2s"
BUSY_MODES = ("user", "system", "iowait", "irq", "nice", "softirq", "steal")


@dataclass
class NodeExporter:
    """Two cores, busy or idle for some time; counters only grow."""

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
    """Nodes and pods as kube-state-metrics reports them."""

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
class PrometheusWorld:
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
        place = HttpEndpoint(self.url, CLOCK, setting="PROMETHEUS_URL")
        return PrometheusSignals(place, CLOCK, queries or Queries(cpu=Queries().cpu.replace("[5m]", f"[{WINDOW}]")))

    def until(self, measure: Callable[[], Reading[T]], wanted: Callable[[Reading[T]], bool]) -> Reading[T]:
        """Read after each scrape until the reading is as expected."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not wanted(reading := measure()):
            assert time.monotonic() < end, f"still {reading}"
            with self.scraped:
                self.scraped.wait(timeout=1)
        return reading


def is_unknown(reading: Reading[T]) -> bool:
    return isinstance(reading, Unknown)


@contextmanager
def scraped_world(directory: Path) -> Iterator[PrometheusWorld]:
    """Raises `prometheus.Unavailable` if there is none."""
    world = PrometheusWorld()
    with ExitStack() as stack:
        sources: dict[str, NodeExporter | KubeStateMetrics] = {
            "node-a": world.exporters[0],
            "node-b": world.exporters[1],
            "kube": world.kube,
            "twin": world.kube,
        }
        servers = {name: stack.enter_context(serving(world.page(source))) for name, source in sources.items()}
        targets = {name: server.url.removeprefix("http://") for name, server in servers.items()}
        server = prometheus.start(directory, targets)
        stack.callback(server.stop)
        world.url = server.url
        yield world
