"""The figures of jobs that alerts are made of, read once a minute. Waits are those of the worst installation."""

import logging
from typing import Any, Final

from holdfast.console.job_metrics import JobMetrics
from holdfast.entrypoints.tracking import Tracking
from holdfast.jobs.ingest import installations
from holdfast.kernel.errors import HoldfastError
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store

EVERY_SECONDS: Final = 60.0
_PERCENTILES: Final = {"p50": "50", "p95": "95", "p99": "99"}
_log = logging.getLogger(__name__)


class JobMeter:
    def __init__(self, store: Store, tracking: Tracking, clock: Clock, metrics: JobMetrics) -> None:
        self._store = store
        self._tracking = tracking
        self._clock = clock
        self._metrics = metrics

    def once(self) -> float:
        """Read, and say in how many seconds to read again."""
        try:
            self._metrics.told(*self._figures())
        except HoldfastError as error:
            _log.warning("the jobs' figures could not be read: %s", error)
            self._metrics.unknown()
        return EVERY_SECONDS

    def _figures(self) -> tuple[int, dict[str, float | None], float]:
        now = self._clock.now()
        hour, today = now.plus(-3600).iso(), f"{now.iso()[:10]}T00:00:00Z"
        stuck, usd = 0, 0.0
        waits: dict[str, float | None] = dict.fromkeys(_PERCENTILES.values())
        for installation in installations(self._store):
            who = {"installation_id": str(installation)}
            stuck += len(self._tracking.stuck({**who, "limit": "100"})["items"])
            usd += float(self._tracking.costs({**who, "since": today})["usd"])
            waits = _worse(waits, self._tracking.stats({**who, "since": hour})["total"]["queue_seconds"])
        return stuck, waits, usd


def _worse(known: dict[str, float | None], told: dict[str, Any]) -> dict[str, float | None]:
    found = {_PERCENTILES[name]: value for name, value in told.items() if name in _PERCENTILES}
    return {name: max((v for v in (known[name], found.get(name)) if v is not None), default=None) for name in known}
