"""What the tracker itself costs: the lives of some jobs, written to a store that tells what each call consumed.

The jobs are as GitHub really sends them, made larger by their labels and properties until they would have a given size
in the seed's own layout (every attribute stored). Index writes are part of the figures. A deployment adds a wait for
approval and its review.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from holdfast.jobs.ingest import Tracker
from holdfast.jobs.keys import JobKey
from holdfast.jobs.sample_jobs import FIRST_JOB, INSTALLATION, Shape, Told, body_of, life_of, padding_for
from holdfast.jobs.webhook import Delivery
from holdfast.kernel.ids import JobId
from holdfast.ports.clock import Clock
from holdfast.ports.store import Consumed, Meter, Store
from holdfast.ports.store.tables import JOBS
from holdfast.ports.store.values import item_bytes

__all__ = ["COMPARED", "SIZES_BYTES", "Compared", "Measured", "OpenStore", "Shape", "UnitPrices", "measured", "rows"]

SIZES_BYTES: Final = (1126, 1331, 2150)  # 1.1, 1.3 and 2.1 KB
OpenStore = Callable[[Meter], Store]


@dataclass(frozen=True, slots=True)
class Measured:
    """Units per job, by step and table. `stored_bytes` is what a job's item has in our layout in the end."""

    shape: Shape
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


def measured(open_store: OpenStore, clock: Clock, shape: Shape) -> Measured:
    """Let the run's jobs live, step by step, and add up what it consumed."""
    consumed: list[Consumed] = []
    store = open_store(consumed.append)
    tracker = Tracker(store, clock, "i-0aa1bb2cc3dd4ee5f")
    tracker.receive(Delivery("installation", "0", "99", body_of({"installation": {"id": INSTALLATION}})))
    padding = padding_for(shape)
    units: Counter[tuple[str, str]] = Counter()
    lives = [life_of(number, shape, padding) for number in range(shape.jobs)]
    for step in zip(*lives, strict=True):
        for name, told in step:
            consumed.clear()
            _tell(tracker, told)
            for each in consumed:
                units[name, each.table] += each.read_units + each.write_units  # type: ignore[assignment]
    stored = item_bytes(store.get(JOBS, JobKey(INSTALLATION, JobId(FIRST_JOB)).item) or {})
    return Measured(shape, {names: total / shape.jobs for names, total in units.items()}, stored)


def _tell(tracker: Tracker, told: Told) -> None:
    if isinstance(told, Delivery):
        tracker.receive(told)
    else:
        tracker.tell(told)


# Money


# Of the prices that are not set otherwise. The provisioned ones are those of an hour / 3600 * 10^6, rounded.
UNIT_PRICES_AS_OF: Final = "2024-11-01"
UNIT_PRICES_SOURCE: Final = (
    "on demand: AWS's cut of November 2024; provisioned: 0.00065 and 0.00013 dollars an hour, which was not compared "
    "with AWS's list of today"
)


@dataclass(frozen=True, slots=True)
class UnitPrices:
    """Dollars per million units, in us-east-1. Provisioned: at full use of what is reserved, hour by hour."""

    write_usd: Decimal = Decimal("0.625")
    read_usd: Decimal = Decimal("0.125")
    provisioned_write_usd: Decimal = Decimal("0.18")
    provisioned_read_usd: Decimal = Decimal("0.036")


@dataclass(frozen=True, slots=True)
class Compared:
    """What others would cost, normal and with a deployment: units per job, or dollars per million jobs."""

    name: str
    normal: Decimal
    with_deployment: Decimal
    unit: str = "units"


# The first four are of the seed; its true cost was measured on DynamoDB Local, for a job of 1.3 KB.
COMPARED: Final = (
    Compared("the first plan's estimate (four events, no counters)", Decimal("9.5"), Decimal("11.5")),
    Compared("the first plan, carried out literally", Decimal("36.4"), Decimal("42.4")),
    Compared("the same with attached, counters and deployments", Decimal("45.6"), Decimal("54.6")),
    Compared("webhooks on S3, as before", Decimal("21.60"), Decimal("26.60"), "USD per million jobs"),
)


def usd_per_million_jobs(units: float, price_usd: Decimal) -> Decimal:
    return (Decimal(str(units)) * price_usd).quantize(Decimal("0.01"))


def rows(found: Sequence[Measured]) -> list[dict[str, Any]]:
    """For people: each shape with its units by step and by table."""
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
