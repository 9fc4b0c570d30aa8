"""The EC2 prices in use, and how they are updated. The first of these that exists is used:

    PRICES_FILE, if set
    prices.json in the data directory, written by 'holdfast prices refresh'
    the prices shipped with Holdfast

Running processes read them at their next start.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.entrypoints.wiring.data_files import read_limited, replace_file
from holdfast.jobs.cost.price_list import refreshed
from holdfast.jobs.cost.prices import Prices, shipped_prices
from holdfast.kernel.errors import BadRequest, BadSetting, NeedsOperator
from holdfast.kernel.settings import Settings

FILE_NAME: Final = "prices.json"


@dataclass(frozen=True, slots=True)
class PriceTable:
    """The prices, and their file; None for the shipped ones."""

    prices: Prices
    file: Path | None

    def shown(self) -> dict[str, Any]:
        families = sorted(self.prices.large_usd_per_hour.items())
        return {
            "as_of": self.prices.as_of,
            "region": self.prices.region,
            "source": self.prices.source,
            "file": str(self.file) if self.file else None,
            "items": [{"family": name, "large_usd_per_hour": float(price)} for name, price in families],
            "cursor": None,
        }


def own_file(settings: Settings) -> Path:
    """The file that is read and written, whether it exists or not."""
    return settings.prices_file or settings.holdfast_data / FILE_NAME


def price_table(settings: Settings) -> PriceTable:
    """The prices in use."""
    path = own_file(settings)
    try:
        return PriceTable(Prices.from_json(path.read_text(encoding="utf-8")), path)
    except FileNotFoundError as error:
        if settings.prices_file is None:
            return PriceTable(shipped_prices(), None)
        raise BadSetting(f"PRICES_FILE={path} cannot be used as prices: {error}") from error
    except (OSError, UnicodeDecodeError, BadRequest) as error:
        if settings.prices_file is None:
            raise NeedsOperator(
                f"{path} cannot be used as prices: {error}; replace it with 'holdfast prices refresh' or remove it"
            ) from error
        raise BadSetting(f"PRICES_FILE={path} cannot be used as prices: {error}") from error


def refresh(settings: Settings, listed: Path | None, region: str | None, *, write: bool) -> dict[str, Any]:
    """Read prices from a saved list or from AWS, and write them if `write`; returns what changed."""
    text, region = (read_limited(listed, "the price list of one region"), region) if listed else _fetched(region)
    made = refreshed(text, region)
    new, path = Prices.from_json(made), own_file(settings)
    before = _before(settings)
    if write:
        replace_file(path, made, "prices")
    return {
        "as_of": new.as_of,
        "region": new.region,
        "source": new.source,
        "file": str(path),
        "families": len(new.large_usd_per_hour),
        "before": {"as_of": before.as_of, "region": before.region} if before else None,
        "changed": _changed(before, new),
        "done": write,
    }


def _fetched(region: str | None) -> tuple[str, str]:
    """Local import: a saved list needs no boto3."""
    from holdfast.adapters.aws.pricing import AwsPriceList, own_region

    wanted = region or own_region()
    with closing(AwsPriceList()) as aws:
        return aws.read(wanted), wanted


def _before(settings: Settings) -> Prices | None:
    """The prices in use so far; None if the file is unusable, since it is about to be replaced."""
    try:
        return price_table(settings).prices
    except (BadSetting, NeedsOperator):
        return None


def _changed(before: Prices | None, new: Prices) -> list[dict[str, Any]]:
    """Prices that differ; empty if the region is another or there were none before."""
    if before is None or before.region != new.region:
        return []
    both = sorted(before.large_usd_per_hour.keys() & new.large_usd_per_hour.keys())
    pairs = [(name, before.large_usd_per_hour[name], new.large_usd_per_hour[name]) for name in both]
    return [{"family": name, "from": float(old), "to": float(price)} for name, old, price in pairs if old != price]
