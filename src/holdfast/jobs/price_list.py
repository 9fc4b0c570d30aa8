"""Newer prices from AWS's own price list, in the form of `prices.json`.

What is read is the output of `aws pricing get-products --service-code AmazonEC2`: each of its products is a text with
JSON in it. Counted are Linux machines on shared hardware, on demand, without anything installed; of each family the
size large, from which the others follow.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from holdfast.jobs.cost import Prices
from holdfast.kernel.errors import BadRequest

_SIZE: Final = ".large"
# What AWS sells under the same name of a type, and costs more, or is paid for otherwise, differs in one of these.
_PLAIN: Final = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "licenseModel": "No License required",
}
_OURS: Final = frozenset({"On-Demand", "OnDemand", None})  # of the attribute marketoption; older lists lack it


def refreshed(text: str, region: str) -> str:
    """The file for PRICES_FILE. BadRequest: the text is no price list, or has no prices of the region."""
    families: dict[str, Decimal] = {}
    days: set[str] = set()
    try:
        for product in _products(json.loads(text, parse_float=Decimal)):
            attributes = product["product"]["attributes"]
            family, dot, size = str(attributes.get("instanceType", "")).partition(".")
            if f"{dot}{size}" == _SIZE and attributes.get("regionCode") == region and _is_plain(attributes):
                families[family] = _agreed(family, families.get(family), _usd_per_hour(product))
                days.add(str(product.get("publicationDate", ""))[:10])
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise BadRequest(f"not the output of 'aws pricing get-products': {error}") from error
    if not families:
        raise BadRequest(f"no price of a size large in region {region}; expected products of AmazonEC2 in that region")
    written = {
        "as_of": min(days),
        "region": region,
        "note": "on-demand, Linux, USD per hour of the family's size large; other sizes follow from it",
        "source": f"AWS's price list for {region}",
        "large_usd_per_hour": {name: str(price.normalize()) for name, price in sorted(families.items())},
    }
    found = json.dumps(written, indent=1) + "\n"
    Prices.from_json(found)  # whoever refreshes hears of what is wrong, and not whoever starts Holdfast next
    return found


def _products(found: Any) -> Iterator[Mapping[str, Any]]:
    listed: Iterable[Any] = found["PriceList"]
    for product in listed:
        yield json.loads(product, parse_float=Decimal) if isinstance(product, str) else product


def _is_plain(attributes: Mapping[str, Any]) -> bool:
    return all(attributes.get(name) == value for name, value in _PLAIN.items()) and (
        attributes.get("marketoption") in _OURS
    )


def _usd_per_hour(product: Mapping[str, Any]) -> Decimal:
    """The one price of an hour on demand."""
    dimensions = [
        dimension for term in product["terms"]["OnDemand"].values() for dimension in term["priceDimensions"].values()
    ]
    prices = {Decimal(each["pricePerUnit"]["USD"]) for each in dimensions if each["unit"] == "Hrs"}
    if len(prices) != 1:
        raise ValueError(f"{product['product']['attributes']['instanceType']} has {len(prices)} prices of an hour")
    return prices.pop()


def _agreed(family: str, known: Decimal | None, price: Decimal) -> Decimal:
    if known not in (None, price):
        raise ValueError(f"{family}{_SIZE} has two prices, {known} and {price}")
    return price
