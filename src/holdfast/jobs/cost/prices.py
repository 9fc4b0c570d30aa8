"""The cost of a job's machine. Prices are dated data: shipped with Holdfast, and replaceable by newer ones.

A spot machine costs its price at launch, if the fleet reported it. Otherwise, or in a region without its own prices,
the cost is marked as an estimate. An unknown instance type has no price: no figure is better than a wrong one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from typing import Final, NamedTuple, Self

from holdfast.jobs.model.durations import is_carried_over, moments_of
from holdfast.jobs.model.machines import earlier_machines, with_own_machine
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut, one_line
from holdfast.ports.store import Item

SPOT_SHARE: Final = Decimal("0.4")  # of the on-demand price, if the spot price is unknown
_SIZES: Final = {"nano": "0.0625", "micro": "0.125", "small": "0.25", "medium": "0.5", "large": "1", "xlarge": "2"}
UNKNOWN_SOURCE: Final = "unknown: the file names no source"
_CENT_PARTS: Final = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Price:
    usd_per_hour: Decimal
    is_estimate: bool


@dataclass(frozen=True, slots=True)
class Prices:
    """On-demand prices of a region by instance family. `source` says where they come from."""

    as_of: str
    region: str
    large_usd_per_hour: Mapping[str, Decimal]
    source: str = UNKNOWN_SOURCE

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Prices in the form of the shipped file; BadRequest if they are not."""
        try:
            found = json.loads(text, parse_float=Decimal)
            families = {str(name): Decimal(price) for name, price in found["large_usd_per_hour"].items()}
            day = Instant.from_iso(f"{found['as_of']}T00:00:00Z").date()
            prices = cls(
                day, str(found["region"]), families, cut(one_line(str(found.get("source") or UNKNOWN_SOURCE)), 200)
            )
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
            raise BadRequest(f"prices: expected as_of, region and large_usd_per_hour ({error})") from error
        if not all(price.is_finite() and 0 < price < 1000 for price in families.values()):
            raise BadRequest("prices: expected dollars per hour, above 0 and below 1000")
        return prices

    def of(self, instance_type: str, lifecycle: str, region: str | None, spot_usd: Decimal | None) -> Price | None:
        """The price of one hour; None for a type without a price."""
        if lifecycle == "spot" and spot_usd is not None:
            return Price(Decimal(spot_usd), is_estimate=False)
        family, _, size = instance_type.partition(".")
        large, times = self.large_usd_per_hour.get(family), _size_times(size)
        if large is None or times is None:
            return None
        hour = large * times
        if lifecycle == "spot":
            return Price(hour * SPOT_SHARE, is_estimate=True)
        return Price(hour, is_estimate=region is not None and region != self.region)


def shipped_prices() -> Prices:
    return Prices.from_json(files("holdfast.jobs.cost").joinpath("prices.json").read_text())


@dataclass(frozen=True, slots=True)
class Cost:
    usd: Decimal
    is_estimate: bool


class MachineUse(NamedTuple):
    """How long a job had one of its machines, and what the price of that depends on.

    `ms` is None if it is unknown. `is_guess`: the end of that time was not reported.
    """

    instance_type: str | None
    lifecycle: str
    region: str | None
    spot_usd: Decimal | None
    ms: int | None
    is_guess: bool

    @property
    def known_spot_usd(self) -> Decimal | None:
        """The price that the fleet reported at launch; no price list is needed."""
        return Decimal(self.spot_usd) if self.lifecycle == "spot" and self.spot_usd is not None else None


def machine_uses(job: Item, now: Instant | None = None) -> list[MachineUse]:
    """The job's machines, one for each attempt, the last one first, until they ended or until now."""
    # What was reclaimed was paid for. A machine whose end was not reported ended at the latest with the next attempt.
    earlier = [_use_of(facts, _end_of(facts)) for facts in earlier_machines(job)]
    last = _use_of(with_own_machine(job), now)
    return [last._replace(is_guess=last.is_guess or "attempts_cut" in job), *earlier]


def cost_of(job: Item, prices: Prices, now: Instant | None = None) -> Cost | None:
    """The cost of the job's machines, until they ended or until now; None if that of any is unknown."""
    if is_carried_over(job):
        return None  # the attempt that executed it has the cost
    found = [_cost_of_use(use, prices) for use in machine_uses(job, now)]
    known = [cost for cost in found if cost is not None]
    if len(known) < len(found):
        return None
    return Cost(sum((cost.usd for cost in known), Decimal(0)), any(cost.is_estimate for cost in known))


def _end_of(facts: Item) -> Instant | None:
    end_ms = facts.get("interrupted_ms") or facts["next_ms"]
    return Instant(int(end_ms)) if end_ms else None


def _use_of(facts: Item, end: Instant | None) -> MachineUse:
    return MachineUse(
        facts.get("instance_type"),
        facts.get("instance_lifecycle", "on-demand"),
        facts.get("region"),
        facts.get("spot_price_usd_per_hour"),
        moments_of(facts).machine_ms(end),
        is_guess="next_ms" in facts and "terminated_ms" not in facts,
    )


def _cost_of_use(use: MachineUse, prices: Prices) -> Cost | None:
    if use.ms is None or use.instance_type is None:
        return None
    price = prices.of(use.instance_type, use.lifecycle, use.region, use.spot_usd)
    if price is None:
        return None
    usd = (price.usd_per_hour * use.ms / 3_600_000).quantize(_CENT_PARTS)
    return Cost(usd, price.is_estimate or use.is_guess)


def _size_times(size: str) -> Decimal | None:
    if size in _SIZES:
        return Decimal(_SIZES[size])
    number = size.removesuffix("xlarge")
    return Decimal(number) * 2 if number != size and number.isdecimal() and number.isascii() else None
