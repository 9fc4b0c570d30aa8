"""Prometheus: does it answer, do our queries give data, and is the data fresh?"""

from collections.abc import Iterator
from typing import Any, Final

from holdfast.entrypoints.doctor.findings import Finding, failed, ok, warning
from holdfast.entrypoints.world import prometheus_signals
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.readings import Reading, Unknown
from holdfast.ports.signals import PendingPods

_EXPORTERS: Final = {
    "CPU": "let Prometheus scrape node_exporter on every worker, or set PROMETHEUS_CPU_QUERY",
    "pending pods": "let Prometheus scrape kube-state-metrics, or set PROMETHEUS_PENDING_QUERY",
    "Ready nodes": "let Prometheus scrape kube-state-metrics, or set PROMETHEUS_READY_QUERY",
}


def read(settings: Settings, clock: Clock) -> Iterator[Finding]:
    signals = prometheus_signals(settings, clock)
    yield _reading("CPU", signals.cpu(), clock)
    yield _reading("pending pods", signals.pending_pods(), clock)
    yield _reading("Ready nodes", signals.ready_addresses(), clock)


def _reading(what: str, reading: Reading[Any], clock: Clock) -> Finding:
    check = f"Prometheus: {what}"
    if isinstance(reading, Unknown):
        # Whether nodes are Ready is also asked of Kubernetes; nothing else knows the other two.
        tell = warning if what == "Ready nodes" else failed
        return tell(check, reading.why, _fix(what, reading.why))
    age_seconds = clock.now().seconds_since(reading.at)
    return ok(check, f"{_words(reading.value)}, seen {max(age_seconds, 0):.0f} s ago")


def _fix(what: str, why: str) -> str:
    if "token" in why:
        return "see to PROMETHEUS_TOKEN_FILE or PROMETHEUS_TOKEN_PARAMETER"
    if "certificate" in why or "TLS" in why:
        return "name Prometheus' certificate authority in PROMETHEUS_CA_FILE"
    if "Prometheus at" in why:
        return "correct PROMETHEUS_URL, or see to Prometheus and the network"
    if " s old" in why or "ahead of the clock" in why:
        return "are its targets up, and do the clocks agree? PROMETHEUS_STALE_SEC is the limit"
    return _EXPORTERS[what]


def _words(value: object) -> str:
    if isinstance(value, PendingPods):
        return f"{value.count} pods wait"
    if isinstance(value, frozenset):
        return f"{len(value)} nodes"
    return f"{value:.2f}"
