"""Keeps metrics, open pages and `/readyz` up to date with what the process does."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.cluster.plan import TickResult
from holdfast.console.http.live import Live
from holdfast.console.http.webhooks import Request, Take, WebhookAnswer
from holdfast.console.metrics.jobs import JobMetrics
from holdfast.console.metrics.registry import Metrics
from holdfast.control.lease import LeaseHeld
from holdfast.jobs.intake.tracker import installations
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.views.job_types import Percentiles
from holdfast.views.job_views import JobViews
from holdfast.views.latest_tick import LatestTick
from holdfast.views.tick_health import TickHealth

JOB_METRICS_EVERY_SECONDS: Final = 60.0
_PERCENTILES: Final = ("50", "95", "99")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Observers:
    """Everything that is updated after a tick or a webhook."""

    metrics: Metrics
    latest_tick: LatestTick
    live: Live
    health: TickHealth

    def ticked(self, result: TickResult) -> None:
        self.metrics.cluster.ticked(result)
        self.latest_tick.ticked(result)
        if result.has_failed:
            self.health.missed("a tick that was cut short", result.stopped or "")
        else:
            self.health.beat()
        self.live.changed()

    def failed(self, error: HoldfastError, now: Instant) -> None:
        self.metrics.cluster.failed(error)
        self.latest_tick.failed(error, now)
        if isinstance(error, LeaseHeld):
            self.health.beat()  # this process is healthy; another one acts
        else:
            self.health.missed(error.words, str(error))
        self.live.changed()

    def notify_pages_after(self, take: Take) -> Take:
        """`take`, followed by a notification of open pages."""

        def take_and_notify(requests: Sequence[Request]) -> Sequence[WebhookAnswer | Exception]:
            answers = take(requests)
            self.live.changed()
            return answers

        return take_and_notify


class JobMetricsUpdater:
    """Reads the job metrics that alerts use. Queue times are those of the worst installation."""

    def __init__(self, store: Store, views: JobViews, clock: Clock, metrics: JobMetrics) -> None:
        self._store = store
        self._views = views
        self._clock = clock
        self._metrics = metrics

    def run(self) -> float:
        """Update the metrics; returns the seconds until the next update."""
        try:
            self._metrics.record(*self._values())
        except HoldfastError as error:
            _log.warning("could not read the job metrics: %s", error)
            self._metrics.unknown()
        return JOB_METRICS_EVERY_SECONDS

    def _values(self) -> tuple[int, dict[str, float | None], float]:
        now = self._clock.now()
        hour, today = now.plus(-3600).iso(), f"{now.iso()[:10]}T00:00:00Z"
        stuck, usd = 0, 0.0
        waits: dict[str, float | None] = dict.fromkeys(_PERCENTILES)
        for installation in installations(self._store):
            who = {"installation_id": str(installation)}
            stuck += len(self._views.stuck({**who, "limit": "100"}).items)
            costs = self._views.costs({**who, "since": today})
            usd += math.nan if costs.unknown_days else float(costs.usd)
            waits = _worst(waits, self._views.stats({**who, "since": hour}).total.queue_seconds)
        return stuck, waits, usd


def _worst(known: dict[str, float | None], waits: Percentiles) -> dict[str, float | None]:
    found = {"50": waits.p50, "95": waits.p95, "99": waits.p99}
    return {name: max((v for v in (known[name], found[name]) if v is not None), default=None) for name in known}
