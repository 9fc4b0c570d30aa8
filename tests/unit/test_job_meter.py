"""The jobs' figures at /metrics: as the command line tells them, and unknown when nobody knows."""

import math

import pytest
from prometheus_client import CollectorRegistry

from holdfast.adapters.memory import memory_store
from holdfast.console.job_metrics import JobMetrics
from holdfast.entrypoints.job_meter import EVERY_SECONDS, JobMeter
from holdfast.entrypoints.tracking import Tracking
from holdfast.jobs.cost import shipped_prices
from holdfast.jobs.stuck import Patience
from holdfast.jobs.views import Viewing
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Store
from holdfast.ports.store.schema import Table
from tests.clocks import StillClock
from tests.payloads import CREATED
from tests.unit.job_world import JobWorld


class Figures:
    def __init__(self, now: Instant) -> None:
        self.clock = StillClock(now)
        self.store: Store = memory_store(self.clock)
        self.registry = CollectorRegistry()
        self.metrics = JobMetrics(self.registry)

    def read(self, store: Store | None = None) -> None:
        tracking = Tracking(
            store or self.store, self.clock, Viewing(shipped_prices(), "https://github.com"), Patience()
        )
        meter = JobMeter(store or self.store, tracking, self.clock, self.metrics)
        assert meter.once() == EVERY_SECONDS

    def value(self, name: str, **labels: str) -> float:
        found = self.registry.get_sample_value(f"holdfast_jobs_{name}", labels)
        assert found is not None
        return found


@pytest.fixture
def figures() -> Figures:
    return Figures(CREATED.plus(1800))


def test_until_somebody_read_nothing_is_known(figures: Figures) -> None:
    assert math.isnan(figures.value("stuck"))
    assert math.isnan(figures.value("cost_usd_today"))
    assert math.isnan(figures.value("queue_seconds", percentile="95"))


def test_stuck_jobs_waits_and_cost_are_told(figures: Figures) -> None:
    world = JobWorld(figures.store, figures.clock)
    world.job(1, "queued")
    world.job(2, "queued", "in_progress", "completed", conclusion="success")
    world.schedule(2)
    figures.read()
    assert figures.value("stuck") == 1
    assert figures.value("queue_seconds", percentile="95") > 0
    assert figures.value("cost_usd_today") > 0


def test_without_jobs_the_cost_is_nothing_and_waits_are_unknown(figures: Figures) -> None:
    figures.read()
    assert (figures.value("stuck"), figures.value("cost_usd_today")) == (0, 0)
    assert math.isnan(figures.value("queue_seconds", percentile="50"))


class Away:
    """A store that does not answer."""

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        raise StoreUnavailable("away")


def test_when_the_store_is_away_nothing_is_known(figures: Figures) -> None:
    figures.read()
    figures.read(Away())  # type: ignore[arg-type]
    assert math.isnan(figures.value("stuck"))
