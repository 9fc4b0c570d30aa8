"""What tracking costs on DynamoDB, measured with sample jobs in a memory store that counts units as DynamoDB does.

A test compares its counts with DynamoDB Local.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from holdfast.adapters.memory import memory_store
from holdfast.jobs.cost.tracker_units import (
    COMPARED,
    UNIT_PRICES_AS_OF,
    UNIT_PRICES_SOURCE,
    JobShape,
    UnitPrices,
    UnitsCompared,
    measured,
    rows,
)
from holdfast.kernel.json_types import Amount, Count, Money, Shape
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import Consumed, Meter, Store

_SHAPES: Final = (JobShape(), JobShape(has_deployment=True))  # of 1.3 KB, twenty to a run
_CENT: Final = Decimal("0.01")


class MeasuredJob(Shape, frozen=True, kw_only=True):
    """The units of one job of a kind, and the dollars for a million of them."""

    size_bytes: Count
    jobs_per_run: Count
    has_deployment: bool
    stored_bytes: Count
    units: Amount
    by_step: dict[str, Amount]
    by_table: dict[str, Amount]
    write_units: Money
    read_units: Money
    usd_on_demand: Money
    usd_provisioned: Money


class ComparedTracker(Shape, frozen=True, kw_only=True):
    """What another system would cost for a million jobs."""

    name: str
    has_deployment: bool
    units: Money | None
    usd_on_demand: Money | None
    usd_provisioned: Money | None


class UnitPricesShown(Shape, frozen=True, kw_only=True):
    write_usd: Money
    read_usd: Money
    provisioned_write_usd: Money
    provisioned_read_usd: Money


class TrackerCost(Shape, frozen=True, kw_only=True):
    """Units per job by step and by table, and dollars per million jobs, beside other systems."""

    items: list[MeasuredJob]
    cursor: str | None = None
    compared: list[ComparedTracker]
    prices: UnitPricesShown
    prices_as_of: str | None
    prices_source: str


@dataclass(frozen=True, slots=True)
class Units:
    """Of one job."""

    writes: Decimal
    reads: Decimal = Decimal(0)

    def usd_on_demand(self, prices: UnitPrices) -> Decimal:
        """For a million jobs."""
        return (self.writes * prices.write_usd + self.reads * prices.read_usd).quantize(_CENT)

    def usd_provisioned(self, prices: UnitPrices) -> Decimal:
        """For a million jobs."""
        usd = self.writes * prices.provisioned_write_usd + self.reads * prices.provisioned_read_usd
        return usd.quantize(_CENT)


def tracker_cost(settings: Settings, clock: Clock) -> TrackerCost:
    prices = unit_prices(settings)
    is_shipped = prices == UnitPrices()
    return TrackerCost(
        items=[_measured_job(shape, clock, prices) for shape in _SHAPES],
        compared=[_compared(other, prices, has_deployment=flag) for flag in (False, True) for other in COMPARED],
        prices=UnitPricesShown(
            write_usd=prices.write_usd,
            read_usd=prices.read_usd,
            provisioned_write_usd=prices.provisioned_write_usd,
            provisioned_read_usd=prices.provisioned_read_usd,
        ),
        prices_as_of=UNIT_PRICES_AS_OF if is_shipped else None,
        prices_source=UNIT_PRICES_SOURCE if is_shipped else "the settings DYNAMODB_…_USD",
    )


def unit_prices(settings: Settings) -> UnitPrices:
    s = settings
    found = (
        s.dynamodb_write_usd,
        s.dynamodb_read_usd,
        s.dynamodb_provisioned_write_usd,
        s.dynamodb_provisioned_read_usd,
    )
    return UnitPrices(*(Decimal(str(price)) for price in found))


def _measured_job(shape: JobShape, clock: Clock, prices: UnitPrices) -> MeasuredJob:
    def total(counted: Callable[[Consumed], Consumed]) -> Decimal:
        def open_store(meter: Meter) -> Store:
            return memory_store(clock, lambda consumed: meter(counted(consumed)))

        return Decimal(str(round(measured(open_store, clock, shape).total, 4)))

    [row] = rows([measured(lambda meter: memory_store(clock, meter), clock, shape)])
    units = Units(
        writes=total(lambda consumed: replace(consumed, read_units=0)),
        reads=total(lambda consumed: replace(consumed, write_units=0)),
    )
    return MeasuredJob(
        **row,
        write_units=units.writes,
        read_units=units.reads,
        usd_on_demand=units.usd_on_demand(prices),
        usd_provisioned=units.usd_provisioned(prices),
    )


def _compared(other: UnitsCompared, prices: UnitPrices, *, has_deployment: bool) -> ComparedTracker:
    """Another system's units count as writes, which nearly all of them are."""
    figure = other.with_deployment if has_deployment else other.normal
    is_units = other.unit == "units"
    return ComparedTracker(
        name=other.name,
        has_deployment=has_deployment,
        units=figure if is_units else None,
        usd_on_demand=Units(figure).usd_on_demand(prices) if is_units else figure,
        usd_provisioned=Units(figure).usd_provisioned(prices) if is_units else None,
    )
