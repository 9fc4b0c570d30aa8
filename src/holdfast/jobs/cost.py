"""What a job's machine cost. Prices are data with a date: shipped with Holdfast, and replaced by newer ones.

A spot machine costs what it was launched at, where the fleet told it. Where it did not, or where a region has no prices
of its own, the figure is an estimate and says so. A type that nobody knows has no price: no figure is better than a
wrong one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from typing import Final, Self

from holdfast.jobs.durations import moments_of
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut, one_line
from holdfast.ports.store import Value

SPOT_SHARE: Final = Decimal("0.4")  # of the on-demand price, where nobody told the spot price
_SIZES: Final = {"nano": "0.0625", "micro": "0.125", "small": "0.25", "medium": "0.5", "large": "1", "xlarge": "2"}
UNKNOWN_SOURCE: Final = "the file does not say where they are from"
_CENT_PARTS: Final = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Price:
    usd_per_hour: Decimal
    is_estimate: bool


@dataclass(frozen=True, slots=True)
class Prices:
    """On-demand prices by region and family. `source` says whose word they are, for whoever reads a figure."""

    as_of: str
    region: str
    large_usd_per_hour: Mapping[str, Decimal]
    source: str = UNKNOWN_SOURCE

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Prices in the form of the file that is shipped; BadRequest if they are not."""
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
            raise BadRequest("prices: each is an amount of dollars per hour, above 0")
        return prices

    def of(self, instance_type: str, lifecycle: str, region: str | None, spot_usd: Decimal | None) -> Price | None:
        """The price of one hour; None for a type that has none here."""
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
    return Prices.from_json(files("holdfast.jobs").joinpath("prices.json").read_text())


@dataclass(frozen=True, slots=True)
class Cost:
    usd: Decimal
    is_estimate: bool


def cost_of(job: Mapping[str, Value], prices: Prices, now: Instant | None = None) -> Cost | None:
    """What the job's machine has cost until it ended, or until now; None where it cannot be told."""
    seconds = moments_of(job).machine_seconds(now)
    if seconds is None or "instance_type" not in job:
        return None
    price = prices.of(
        job["instance_type"],
        job.get("instance_lifecycle", "on-demand"),
        job.get("region"),
        job.get("spot_price_usd_per_hour"),
    )
    if price is None:
        return None
    usd = (price.usd_per_hour * Decimal(str(seconds)) / 3600).quantize(_CENT_PARTS)
    return Cost(usd, price.is_estimate)


def _size_times(size: str) -> Decimal | None:
    if size in _SIZES:
        return Decimal(_SIZES[size])
    number = size.removesuffix("xlarge")
    return Decimal(number) * 2 if number != size and number.isdecimal() and number.isascii() else None
