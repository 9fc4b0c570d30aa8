"""Which prices count, and newer ones for them.

    PRICES_FILE, where it is set
    prices.json in the data directory, which 'holdfast prices refresh' writes
    those that are shipped

One that runs already reads them when it starts next.
"""

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.jobs.cost import Prices, shipped_prices
from holdfast.jobs.price_list import refreshed
from holdfast.kernel.errors import BadRequest, BadSetting, NeedsOperator
from holdfast.kernel.settings import Settings

FILE_NAME: Final = "prices.json"
_TEXT_BYTES_MOST: Final = 1 << 30  # AWS's whole list of a region takes some hundred megabytes


@dataclass(frozen=True, slots=True)
class PriceTable:
    """The prices, and the file they are from; None: they are shipped."""

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
    """The file that counts, and that is written, whether it is there or not."""
    return settings.prices_file or settings.holdfast_data / FILE_NAME


def price_table(settings: Settings) -> PriceTable:
    """The prices that count."""
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
                f"{path} cannot be used as prices: {error}; replace it with 'holdfast prices refresh', or remove it"
            ) from error
        raise BadSetting(f"PRICES_FILE={path} cannot be used as prices: {error}") from error


def refresh(settings: Settings, listed: Path | None, region: str | None, *, write: bool) -> dict[str, Any]:
    """Make prices of a saved list, or of AWS's own, and put them where they count; what is new about them."""
    text, region = (_saved(listed), region) if listed else _asked(region)
    made = refreshed(text, region)
    new, path = Prices.from_json(made), own_file(settings)
    before = _before(settings)
    if write:
        _replace(path, made)
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


def _saved(path: Path) -> str:
    try:
        if path.stat().st_size > _TEXT_BYTES_MOST:
            raise BadRequest(f"{path} is larger than {_TEXT_BYTES_MOST} bytes; expected the price list of one region")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} cannot be read: {error}") from error


def _asked(region: str | None) -> tuple[str, str]:
    """Imported here: whoever has a saved list needs no boto3."""
    from holdfast.adapters.pricing import AwsPriceList, own_region

    wanted = region or own_region()
    with closing(AwsPriceList()) as aws:
        return aws.read(wanted), wanted


def _before(settings: Settings) -> Prices | None:
    """Those that count so far. A file that is broken is mended by being replaced."""
    try:
        return price_table(settings).prices
    except (BadSetting, NeedsOperator):
        return None


def _changed(before: Prices | None, new: Prices) -> list[dict[str, Any]]:
    """Of the same region, where a price is another; nothing where there is nothing to compare with."""
    if before is None or before.region != new.region:
        return []
    both = sorted(before.large_usd_per_hour.keys() & new.large_usd_per_hour.keys())
    pairs = [(name, before.large_usd_per_hour[name], new.large_usd_per_hour[name]) for name in both]
    return [{"family": name, "from": float(old), "to": float(price)} for name, old, price in pairs if old != price]


def _replace(path: Path, text: str) -> None:
    """Whole or not at all: whoever starts meanwhile reads the old ones."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise NeedsOperator(f"prices cannot be written to {path}: {error.strerror}; see to the directory") from error
