"""The cluster's figures at /metrics. What is unknown is not a number: its gauge says NaN, and a counter why."""

from collections.abc import Callable
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from holdfast.cluster.plan import Ticked
from holdfast.cluster.rules import Verdict
from holdfast.kernel.errors import HoldfastError
from holdfast.ports.readings import Reading, Unknown

_NAN: Final = float("nan")


class ClusterMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"holdfast_cluster_{name}", text, labels, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"holdfast_cluster_{name}", text, labels, registry=registry)

        self._workers = gauge("workers", "Workers that are there to stay.")
        self._expected = gauge("workers_expected", "The same with those that an action is launching.")
        self._cpu = gauge("cpu_ratio", "The workers' average CPU use, 0 to 1.")
        self._pending = gauge("pending_pods", "Pods that wait for a place.")
        self._oldest = gauge("pending_oldest_seconds", "How long the oldest of them has waited.")
        self._nodes = gauge("nodes", "Nodes that Kubernetes knows.")
        self._action = gauge("action", "1 for the action that is under way.", "kind")
        self._notices = gauge("spot_notices", "Machines that spot has announced to take, and that are not gone.")
        self._paused = gauge("paused", "1 while somebody has paused it.")
        self._failures = gauge("scale_up_failures", "Scale-ups that failed in a row.")
        self._last = gauge("last_tick_timestamp_seconds", "When the last tick looked.")
        self._rules = gauge("rule", "1 if the rule holds, 0 if not, NaN if unknown.", "rule")
        self._ticks = counter("ticks", "Ticks by how they ended.", "outcome")
        self._steps = counter("steps", "Steps that were carried out.", "kind")
        self._unknown = counter("unknown_readings", "Readings that could not be had.", "reading")
        # Until the first look nothing is known, and a gauge would say 0.
        for unseen in (self._workers, self._expected, self._cpu, self._pending, self._oldest, self._nodes):
            unseen.set(_NAN)

    def ticked(self, ticked: Ticked) -> None:
        seen, state = ticked.seen, ticked.seen.state
        self._workers.set(len(seen.staying))
        self._expected.set(seen.expected)
        self._set(self._cpu, "cpu", seen.cpu, lambda value: value)
        self._set(self._pending, "pending", seen.pending, lambda value: value.count)
        self._oldest.set(_NAN if isinstance(seen.pending, Unknown) else seen.pending.value.oldest_seconds)
        self._set(self._nodes, "kubernetes", seen.kube, lambda view: len(view.nodes))
        self._action.labels("scale-up").set(int(state.up is not None))
        self._action.labels("scale-down").set(int(state.down is not None))
        self._notices.set(len(seen.notices))
        self._paused.set(int(seen.is_paused))
        self._failures.set(state.up_failures)
        self._last.set(seen.now.epoch_ms / 1000)
        self._rules.clear()  # a rule that was not asked this time has no verdict
        for rule in ticked.plan.rules:
            self._rules.labels(rule.name).set(_NAN if rule.verdict is Verdict.UNKNOWN else int(rule.holds))
        for step in ticked.done:
            self._steps.labels(step.kind).inc()
        self._ticks.labels("stopped" if ticked.stopped else "acted" if ticked.done else "quiet").inc()

    def failed(self, error: HoldfastError) -> None:
        self._ticks.labels(type(error).__name__).inc()

    def _set(self, gauge: Gauge, name: str, reading: Reading[Any], number: Callable[[Any], float]) -> None:
        if isinstance(reading, Unknown):
            gauge.set(_NAN)
            self._unknown.labels(name).inc()
        else:
            gauge.set(number(reading.value))
