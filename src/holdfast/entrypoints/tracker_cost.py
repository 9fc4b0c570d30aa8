"""What the tracker itself costs on DynamoDB: some jobs live in a store in memory, which counts units as DynamoDB does.

That it counts the same is tested against DynamoDB Local.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from holdfast.adapters.memory import memory_store
from holdfast.entrypoints.shown import plain
from holdfast.jobs.capacity import (
    COMPARED,
    UNIT_PRICES_AS_OF,
    UNIT_PRICES_SOURCE,
    Compared,
    Shape,
    UnitPrices,
    measured,
    rows,
)
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import Consumed, Meter

_SHAPES: Final = (Shape(), Shape(has_deployment=True))  # of 1.3 KB, twenty to a run
_CENT: Final = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Units:
    """Of one job."""

    writes: Decimal
    reads: Decimal = Decimal(0)

    def dollars(self, prices: UnitPrices) -> dict[str, Decimal]:
        """For a million jobs."""
        on_demand = self.writes * prices.write_usd + self.reads * prices.read_usd
        provisioned = self.writes * prices.provisioned_write_usd + self.reads * prices.provisioned_read_usd
        return {"usd_on_demand": on_demand.quantize(_CENT), "usd_provisioned": provisioned.quantize(_CENT)}


def tracker_cost(settings: Settings, clock: Clock) -> dict[str, Any]:
    """Units per job by step and by table, and dollars per million jobs, beside what others would cost."""
    prices = unit_prices(settings)
    others = [_compared(other, prices, has_deployment=flag) for flag in (False, True) for other in COMPARED]
    shown = {
        "items": [_row(shape, clock, prices) for shape in _SHAPES],
        "cursor": None,
        "compared": others,
        "prices": {name: getattr(prices, name) for name in prices.__slots__},
        **_whose(prices),
    }
    return {name: plain(value) for name, value in shown.items()}


def _whose(prices: UnitPrices) -> dict[str, str | None]:
    """Whose word the prices are: ours, with its date, or the settings'."""
    if prices == UnitPrices():
        return {"prices_as_of": UNIT_PRICES_AS_OF, "prices_source": UNIT_PRICES_SOURCE}
    return {"prices_as_of": None, "prices_source": "the settings DYNAMODB_…_USD"}


def unit_prices(settings: Settings) -> UnitPrices:
    s = settings
    found = (
        s.dynamodb_write_usd,
        s.dynamodb_read_usd,
        s.dynamodb_provisioned_write_usd,
        s.dynamodb_provisioned_read_usd,
    )
    return UnitPrices(*(Decimal(str(price)) for price in found))


def _row(shape: Shape, clock: Clock, prices: UnitPrices) -> dict[str, Any]:
    def total(counted: Callable[[Consumed], Consumed]) -> Decimal:
        def open_store(meter: Meter) -> Any:
            return memory_store(clock, lambda consumed: meter(counted(consumed)))

        return Decimal(str(round(measured(open_store, clock, shape).total, 4)))

    [row] = rows([measured(lambda meter: memory_store(clock, meter), clock, shape)])
    units = Units(
        writes=total(lambda consumed: replace(consumed, read_units=0)),
        reads=total(lambda consumed: replace(consumed, write_units=0)),
    )
    return {**row, "write_units": units.writes, "read_units": units.reads, **units.dollars(prices)}


def _compared(other: Compared, prices: UnitPrices, *, has_deployment: bool) -> dict[str, Any]:
    """Units of others count as writes, which nearly all of them are."""
    figure = other.with_deployment if has_deployment else other.normal
    shown: dict[str, Any] = {"name": other.name, "has_deployment": has_deployment}
    if other.unit != "units":
        return {**shown, "units": None, "usd_on_demand": figure, "usd_provisioned": None}
    return {**shown, "units": figure, **Units(figure).dollars(prices)}
