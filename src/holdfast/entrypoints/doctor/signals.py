"""Prometheus: whether it answers, and whether our queries return fresh data."""

from collections.abc import Iterator
from typing import Any, Final

from holdfast.entrypoints.doctor.aws import WorkersFound
from holdfast.entrypoints.doctor.findings import Finding, failed, ok, skipped, warning
from holdfast.entrypoints.wiring.world import prometheus_signals
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.readings import Reading, Unknown
from holdfast.ports.signals import PendingPods

_EXPORTERS: Final = {
    "CPU": "scrape node_exporter on every worker, or set PROMETHEUS_CPU_QUERY",
    "pending pods": "scrape kube-state-metrics, or set PROMETHEUS_PENDING_QUERY",
    "Ready nodes": "scrape kube-state-metrics, or set PROMETHEUS_READY_QUERY",
}


# Before the first worker there is nothing to measure, and kube-state-metrics may have nowhere to run.
_WITHOUT_WORKERS: Final = {
    "CPU": "there is no worker to measure; MIN_WORKERS are launched without it",
    "pending pods": "kube-state-metrics may not run before the first worker; until then Kubernetes itself is asked",
    "Ready nodes": "kube-state-metrics may not run before the first worker",
}
_NO_DATA: Final = ("no data for ", "Prometheus has no nodes")


def read(settings: Settings, clock: Clock, workers: WorkersFound | None = None) -> Iterator[Finding]:
    """`workers`: with none, data that only workers provide is not missed."""
    signals, is_empty = prometheus_signals(settings, clock), workers is not None and workers.number == 0
    readings: dict[str, Reading[Any]] = {
        "CPU": signals.cpu(),
        "pending pods": signals.pending_pods(),
        "Ready nodes": signals.ready_addresses(),
    }
    for what, reading in readings.items():
        if is_empty and isinstance(reading, Unknown) and any(words in reading.why for words in _NO_DATA):
            yield skipped(f"Prometheus: {what}", f"unknown yet: {_WITHOUT_WORKERS[what]}")
        else:
            yield _reading(what, reading, clock)
    if is_empty and isinstance(readings["CPU"], Unknown) and _never_starts(settings):
        seen = "without a worker CPU use is unknown, and with MIN_WORKERS=0 nothing is ever launched"
        yield warning("Prometheus: CPU", seen, "set MIN_WORKERS=1 or SCALE_UP_RULE=any, or scrape a server as well")


def _never_starts(settings: Settings) -> bool:
    return settings.min_workers == 0 and settings.scale_up_rule == "all"


def _reading(what: str, reading: Reading[Any], clock: Clock) -> Finding:
    check = f"Prometheus: {what}"
    if isinstance(reading, Unknown):
        # Kubernetes also reports Ready nodes; only Prometheus has the other two.
        outcome = warning if what == "Ready nodes" else failed
        return outcome(check, reading.why.removeprefix(f"{what}: "), _fix(what, reading.why))
    age_seconds = clock.now().seconds_since(reading.at)
    return ok(check, f"{_words(reading.value)}, {max(age_seconds, 0):.0f} s old")


def _fix(what: str, why: str) -> str:
    if "token" in why:
        return "check PROMETHEUS_TOKEN_FILE or PROMETHEUS_TOKEN_PARAMETER"
    if "certificate" in why or "TLS" in why:
        return "set PROMETHEUS_CA_FILE to the certificate authority of Prometheus"
    if "Prometheus at" in why:
        return "check PROMETHEUS_URL, Prometheus itself and the network"
    if " s old" in why or "ahead of the clock" in why:
        return "check that its targets are up and that the clocks agree; PROMETHEUS_STALE_SEC is the limit"
    return _EXPORTERS[what]


def _words(value: object) -> str:
    if isinstance(value, PendingPods):
        return f"{value.count} pods pending"
    if isinstance(value, frozenset):
        return f"{len(value)} nodes"
    return f"{value:.2f}"
