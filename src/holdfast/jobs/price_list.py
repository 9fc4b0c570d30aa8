"""Newer prices from AWS's own price list, in the form of `prices.json`.

What is read is the output of `aws pricing get-products --service-code AmazonEC2`, each of whose products is a text with
JSON in it, or AWS's price list file of EC2. Counted are Linux machines on shared hardware, on demand, without anything
installed; of each family the size large, from which the others follow.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from holdfast.jobs.cost import Prices
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.text import cut

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


def refreshed(text: str, region: str | None = None) -> str:
    """The file for PRICES_FILE. BadRequest: the text is no price list, or has no prices of the region.

    Without a region, it is the only one that the list has.
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
        raise BadRequest(f"not a price list of AWS's: {cut(str(error), 200)}") from error
    if not by_region:
        of = f"region {region}" if region else "any region"
        raise BadRequest(f"no price of a size large in {of}; expected products of AmazonEC2")
    if len(by_region) > 1:
        raise BadRequest(f"prices of several regions; say which of {', '.join(sorted(by_region)[:20])}")
    [(where, families)] = by_region.items()
    written = {
        "as_of": min(days[where]),
        "region": where,
        "note": "on-demand, Linux, USD per hour of the family's size large; other sizes follow from it",
        "source": f"AWS's price list for {where}",
        "large_usd_per_hour": {name: str(price.normalize()) for name, price in sorted(families.items())},
    }
    found = json.dumps(written, indent=1) + "\n"
    Prices.from_json(found)  # whoever refreshes hears of what is wrong, and not whoever starts Holdfast next
    return found


def _products(found: Any) -> Iterator[Mapping[str, Any]]:
    if "PriceList" not in found:
        yield from _of_file(found)
        return
    listed: Iterable[Any] = found["PriceList"]
    for product in listed:
        yield json.loads(product, parse_float=Decimal) if isinstance(product, str) else product


def _of_file(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """AWS's file keeps products and their terms apart."""
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
