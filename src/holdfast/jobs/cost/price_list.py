"""Converts AWS's price list into the form of `prices.json`.

The input is the output of `aws pricing get-products --service-code AmazonEC2` (whose products are JSON texts), or AWS's
price list file for EC2. It uses on-demand Linux instances on shared hardware without preinstalled software, and of each
family the size large, from which the other sizes are computed.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from holdfast.jobs.cost.prices import Prices
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.text import cut

_SIZE: Final = ".large"
# Other offers of the same instance type, with other prices, differ in one of these attributes.
_PLAIN: Final = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "licenseModel": "No License required",
}
_OURS: Final = frozenset({"On-Demand", "OnDemand", None})  # values of the attribute marketoption; older lists lack it


def refreshed(text: str, region: str | None = None) -> str:
    """The content for PRICES_FILE. BadRequest if the text is not a price list, or has no prices for the region.

    `region` may be omitted if the list has only one.
    """
    by_region: dict[str, dict[str, Decimal]] = {}
    days: dict[str, set[str]] = {}
    try:
        for product in _products(json.loads(text, parse_float=Decimal)):
            attributes = product["product"]["attributes"]
            family, dot, size = str(attributes.get("instanceType", "")).partition(".")
            where = str(attributes.get("regionCode"))
            if f"{dot}{size}" == _SIZE and where == (region or where) and _is_plain(attributes):
                families = by_region.setdefault(where, {})
                families[family] = _agreed(family, families.get(family), _usd_per_hour(product))
                days.setdefault(where, set()).add(str(product.get("publicationDate", ""))[:10])
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise BadRequest(f"not an AWS price list: {cut(str(error), 200)}") from error
    if not by_region:
        of = f"region {region}" if region else "any region"
        raise BadRequest(f"no price for size large in {of}; expected products of AmazonEC2")
    if len(by_region) > 1:
        raise BadRequest(f"the list has several regions; choose one of {', '.join(sorted(by_region)[:20])}")
    [(where, families)] = by_region.items()
    written = {
        "as_of": min(days[where]),
        "region": where,
        "note": "on-demand, Linux, USD per hour of the family's size large; other sizes follow from it",
        "source": f"AWS's price list for {where}",
        "large_usd_per_hour": {name: str(price.normalize()) for name, price in sorted(families.items())},
    }
    found = json.dumps(written, indent=1) + "\n"
    Prices.from_json(found)  # fail now, not at the next start of Holdfast
    return found


def _products(found: Any) -> Iterator[Mapping[str, Any]]:
    if "PriceList" not in found:
        yield from _of_file(found)
        return
    listed: Iterable[Any] = found["PriceList"]
    for product in listed:
        yield json.loads(product, parse_float=Decimal) if isinstance(product, str) else product


def _of_file(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """AWS's file has products and their terms in separate lists."""
    terms = found["terms"]["OnDemand"]
    for sku, product in found["products"].items():
        if "instanceType" in product["attributes"] and sku in terms:
            yield {
                "product": product,
                "terms": {"OnDemand": terms[sku]},
                "publicationDate": found["publicationDate"],
            }


def _is_plain(attributes: Mapping[str, Any]) -> bool:
    return all(attributes.get(name) == value for name, value in _PLAIN.items()) and (
        attributes.get("marketoption") in _OURS
    )


def _usd_per_hour(product: Mapping[str, Any]) -> Decimal:
    """The on-demand price of one hour."""
    dimensions = [
        dimension for term in product["terms"]["OnDemand"].values() for dimension in term["priceDimensions"].values()
    ]
    prices = {Decimal(each["pricePerUnit"]["USD"]) for each in dimensions if each["unit"] == "Hrs"}
    if len(prices) != 1:
        raise ValueError(f"{product['product']['attributes']['instanceType']} has {len(prices)} prices per hour")
    return prices.pop()


def _agreed(family: str, known: Decimal | None, price: Decimal) -> Decimal:
    if known not in (None, price):
        raise ValueError(f"{family}{_SIZE} has two prices, {known} and {price}")
    return price
