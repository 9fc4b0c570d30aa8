"""The cluster's metrics. An unknown reading is NaN, and a counter says which one failed."""

from collections.abc import Callable
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from holdfast.cluster.plan import TickResult
from holdfast.control.rules import Verdict
from holdfast.kernel.errors import HoldfastError
from holdfast.ports.readings import Reading, Unknown

_NAN: Final = float("nan")


class ClusterMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"holdfast_cluster_{name}", text, labels, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"holdfast_cluster_{name}", text, labels, registry=registry)

        self._workers = gauge("workers", "Workers in service that are not leaving.")
        self._expected = gauge("workers_expected", "Workers in service plus those being launched.")
        self._cpu = gauge("cpu_ratio", "Average CPU utilisation of the workers, 0 to 1.")
        self._pending = gauge("pending_pods", "Pending pods.")
        self._oldest = gauge("pending_oldest_seconds", "Age of the oldest pending pod.")
        self._nodes = gauge("nodes", "Nodes in Kubernetes.")
        self._action = gauge("action", "1 while an action of this kind is in progress.", "kind")
        self._notices = gauge("spot_notices", "Instances with a spot interruption notice that are still running.")
        self._paused = gauge("paused", "1 while the cluster is paused.")
        self._failures = gauge("scale_up_failures", "Consecutive failed scale-ups.")
        self._last = gauge("last_tick_timestamp_seconds", "Time of the last tick.")
        self._rules = gauge("rule", "1 if the rule holds, 0 if not, NaN if unknown.", "rule")
        self._ticks = counter("ticks", "Ticks by outcome.", "outcome")
        self._steps = counter("steps", "Steps carried out.", "kind")
        self._unknown = counter("unknown_readings", "Failed readings.", "reading")
        # Unknown until the first tick; a gauge would otherwise start at 0.
        for reading in (self._workers, self._expected, self._cpu, self._pending, self._oldest, self._nodes):
            reading.set(_NAN)

    def ticked(self, ticked: TickResult) -> None:
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
        self._rules.clear()  # a rule that was not evaluated has no verdict
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
