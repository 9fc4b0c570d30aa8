"""The jobs' figures at /metrics: the same as on the command line, and unknown while the store cannot be read."""

import math

import pytest
from prometheus_client import CollectorRegistry

from holdfast.adapters.memory import memory_store
from holdfast.console.metrics.jobs import JobMetrics
from holdfast.entrypoints.observers import JOB_METRICS_EVERY_SECONDS, JobMetricsUpdater
from holdfast.jobs.cost.prices import shipped_prices
from holdfast.jobs.read.item_views import Viewing
from holdfast.jobs.read.stuck import StuckLimits
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Store
from holdfast.ports.store.schema import Table
from holdfast.views.job_views import JobViews
from tests.clocks import StillClock
from tests.payloads import CREATED
from tests.support.job_world import JobWorld


class Figures:
    def __init__(self, now: Instant) -> None:
        self.clock = StillClock(now)
        self.store: Store = memory_store(self.clock)
        self.registry = CollectorRegistry()
        self.metrics = JobMetrics(self.registry)

    def read(self, store: Store | None = None) -> None:
        tracking = JobViews(
            store or self.store, self.clock, Viewing(shipped_prices(), "https://github.com"), StuckLimits()
        )
        meter = JobMetricsUpdater(store or self.store, tracking, self.clock, self.metrics)
        assert meter.run() == JOB_METRICS_EVERY_SECONDS

    def value(self, name: str, **labels: str) -> float:
        found = self.registry.get_sample_value(f"holdfast_jobs_{name}", labels)
        assert found is not None
        return found


@pytest.fixture
def figures() -> Figures:
    return Figures(CREATED.plus(1800))


def test_before_the_first_read_all_figures_are_unknown(figures: Figures) -> None:
    assert math.isnan(figures.value("stuck"))
    assert math.isnan(figures.value("cost_usd_today"))
    assert math.isnan(figures.value("queue_seconds", percentile="95"))


def test_stuck_jobs_waits_and_cost_are_exported(figures: Figures) -> None:
    world = JobWorld(figures.store, figures.clock)
    world.job(1, "queued")
    world.job(2, "queued", "in_progress", "completed", conclusion="success")
    world.schedule(2)
    figures.read()
    assert math.isnan(figures.value("cost_usd_today")), "not counted yet"
    world.count()
    figures.read()
    assert figures.value("stuck") == 1
    assert figures.value("queue_seconds", percentile="95") > 0
    assert figures.value("cost_usd_today") > 0


def test_without_jobs_the_cost_is_zero_and_waits_are_unknown(figures: Figures) -> None:
    figures.read()
    assert (figures.value("stuck"), figures.value("cost_usd_today")) == (0, 0)
    assert math.isnan(figures.value("queue_seconds", percentile="50"))


class Away:
    """A store that does not answer."""

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        raise StoreUnavailable("away")


def test_while_the_store_is_unavailable_all_figures_are_unknown(figures: Figures) -> None:
    figures.read()
    figures.read(Away())  # type: ignore[arg-type]
    assert math.isnan(figures.value("stuck"))
