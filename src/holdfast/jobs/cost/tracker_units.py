"""Measures what the tracker itself costs: sample jobs are written to a store that reports what each call consumed.

The jobs are as GitHub sends them, with labels and properties padded to a given size in the full layout (every attribute
stored). The figures include index writes and a job's whole life (`sample_jobs.py`); its jobs share what a run costs.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from holdfast.jobs.cost.sample_jobs import (
    FIRST_JOB,
    INSTALLATION,
    JobShape,
    SampleEvent,
    body_of,
    padding_for,
    sample_events,
)
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import Delivery
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.ids import JobId
from holdfast.ports.clock import Clock
from holdfast.ports.store import Consumed, Meter, Store
from holdfast.ports.store.tables import JOBS
from holdfast.ports.store.values import item_bytes

__all__ = [
    "COMPARED",
    "SIZES_BYTES",
    "JobShape",
    "Measured",
    "OpenStore",
    "UnitPrices",
    "UnitsCompared",
    "measured",
    "rows",
]

SIZES_BYTES: Final = (1126, 1331, 2150)  # 1.1, 1.3 and 2.1 KB
OpenStore = Callable[[Meter], Store]


@dataclass(frozen=True, slots=True)
class Measured:
    """Units per job, by step and table. `stored_bytes` is the final size of a job's item in our layout."""

    shape: JobShape
    units: Mapping[tuple[str, str], float]
    stored_bytes: int

    @property
    def total(self) -> float:
        return sum(self.units.values())

    def by(self, part: int) -> dict[str, float]:
        """Summed by step (0) or by table (1), in the order of a job's life."""
        sums: dict[str, float] = defaultdict(float)
        for names, units in self.units.items():
            sums[names[part]] += units
        return dict(sums)


def measured(open_store: OpenStore, clock: Clock, shape: JobShape) -> Measured:
    """Record the run's jobs, step by step, and add up the consumed units."""
    consumed: list[Consumed] = []
    store = open_store(consumed.append)
    tracker = Tracker(store, clock, "i-0aa1bb2cc3dd4ee5f")
    tracker.receive(Delivery("installation", "0", "99", body_of({"installation": {"id": INSTALLATION}})))
    padding = padding_for(shape)
    units: Counter[tuple[str, str]] = Counter()
    lives = [sample_events(number, shape, padding) for number in range(shape.jobs)]
    for step in zip(*lives, strict=True):
        for name, event in step:
            if event is None:
                continue
            consumed.clear()
            _record(tracker, event)
            for each in consumed:
                units[name, each.table] += each.read_units + each.write_units  # type: ignore[assignment]
    stored = item_bytes(store.get(JOBS, JobKey(INSTALLATION, JobId(FIRST_JOB)).item) or {})
    return Measured(shape, {names: total / shape.jobs for names, total in units.items()}, stored)


def _record(tracker: Tracker, event: SampleEvent) -> None:
    if isinstance(event, Delivery):
        tracker.receive(event)
    else:
        tracker.record_event(event)


# Money


# Of the default prices. A provisioned price is the price of an hour / 3600 * 10^6, rounded.
UNIT_PRICES_AS_OF: Final = "2024-11-01"
UNIT_PRICES_SOURCE: Final = (
    "on demand: AWS's prices since November 2024; provisioned: 0.00065 and 0.00013 dollars an hour, "
    "not verified against AWS's current list"
)


@dataclass(frozen=True, slots=True)
class UnitPrices:
    """Dollars per million units, in us-east-1. Provisioned: at full use of the reserved capacity."""

    write_usd: Decimal = Decimal("0.625")
    read_usd: Decimal = Decimal("0.125")
    provisioned_write_usd: Decimal = Decimal("0.18")
    provisioned_read_usd: Decimal = Decimal("0.036")


@dataclass(frozen=True, slots=True)
class UnitsCompared:
    """The cost of an alternative, without and with a deployment: units per job, or dollars per million jobs."""

    name: str
    normal: Decimal
    with_deployment: Decimal
    unit: str = "units"


# For a job of 1.3 KB. The second and third were measured on DynamoDB Local.
COMPARED: Final = (
    UnitsCompared("the first plan's estimate (four events, no counters)", Decimal("9.5"), Decimal("11.5")),
    UnitsCompared("the first plan, carried out literally", Decimal("36.4"), Decimal("42.4")),
    UnitsCompared("the same with attached, counters and deployments", Decimal("45.6"), Decimal("54.6")),
    UnitsCompared("webhooks on S3, as before", Decimal("21.60"), Decimal("26.60"), "USD per million jobs"),
)


def rows(found: Sequence[Measured]) -> list[dict[str, Any]]:
    """Each shape with its units by step and by table."""
    return [
        {
            "size_bytes": each.shape.size_bytes,
            "jobs_per_run": each.shape.jobs,
            "has_deployment": each.shape.has_deployment,
            "stored_bytes": each.stored_bytes,
            "units": round(each.total, 2),
            "by_step": {name: round(units, 2) for name, units in each.by(0).items()},
            "by_table": {name: round(units, 2) for name, units in each.by(1).items()},
        }
        for each in found
    ]
