"""Prices are made of AWS's price list, and every figure says how old they are and whose word."""

import json
from decimal import Decimal
from typing import Any

import pytest

from holdfast.entrypoints.tracker_cost import tracker_cost
from holdfast.jobs.cost import UNKNOWN_SOURCE, Prices, shipped_prices
from holdfast.jobs.price_list import refreshed
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.settings import load_settings
from tests.clocks import StillClock

REGION = "eu-west-1"


def product(name: str = "m5.large", usd: str = "0.1070000000", **attributes: Any) -> dict[str, Any]:
    """As the price list has it, without what is not read."""
    plain = {
        "instanceType": name,
        "regionCode": REGION,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "licenseModel": "No License required",
        "marketoption": "OnDemand",
    }
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": usd}, "description": f"${usd} per On Demand Linux {name}"}
    return {
        "product": {
            "productFamily": "Compute Instance",
            "attributes": {**plain, **attributes},
            "sku": "22WY57989R2PA7RB",
        },
        "terms": {"OnDemand": {"22.JRT": {"priceDimensions": {"22.JRT.6YS": dimension}, "termAttributes": {}}}},
        "publicationDate": "2026-09-11T12:44:22Z",
    }


def listed(*products: Any) -> str:
    """The products are texts, as the command prints them."""
    return json.dumps({"FormatVersion": "aws_v1", "PriceList": [json.dumps(each) for each in products]})


def test_the_price_list_becomes_prices() -> None:
    found = Prices.from_json(refreshed(listed(product(), product("c7g.large", "0.0771")), REGION))
    assert (found.as_of, found.region) == ("2026-09-11", REGION)
    assert found.large_usd_per_hour == {"m5": Decimal("0.107"), "c7g": Decimal("0.0771")}
    assert found.source == "AWS's price list for eu-west-1"


@pytest.mark.parametrize(
    "other",
    [
        product(usd="0.2", operatingSystem="Windows"),
        product(usd="0.2", tenancy="Dedicated"),
        product(usd="0.2", preInstalledSw="SQL Std"),
        product(usd="0", capacitystatus="UnusedCapacityReservation"),
        product(usd="0.2", licenseModel="Bring your own license"),
        product(usd="0.2", marketoption="CapacityBlock"),
        product(usd="0.2", regionCode="us-east-1"),
        product("m5.xlarge", "0.2"),
        product("m5.metal", "0.2"),
        product("", "0.2"),
    ],
)
def test_what_is_sold_otherwise_is_not_counted(other: dict[str, Any]) -> None:
    found = Prices.from_json(refreshed(listed(other, product()), REGION))
    assert found.large_usd_per_hour == {"m5": Decimal("0.107")}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"PriceList": ["x"]}',
        '{"PriceList": [{}]}',
        listed(),
        listed(product(regionCode="us-east-1")),
        listed(product(), product(usd="0.2")),
        listed(product(usd="0")),
        listed(product(usd="-1")),
        listed(product(usd="NaN")),
        listed(product(usd="much")),
        listed({**product(), "terms": {"OnDemand": {}}}),
        listed({**product(), "publicationDate": "yesterday"}),
    ],
)
def test_what_is_no_price_list_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        refreshed(text, REGION)


def test_the_file_that_aws_publishes_is_read_as_well() -> None:
    """It keeps products and their prices apart, and has much beside machines in it."""
    one, other = product(), product("c7g.large", "0.0771")
    written = {
        "publicationDate": one["publicationDate"],
        "products": {
            "A": one["product"],
            "B": other["product"],
            "C": {"attributes": {"servicecode": "AmazonEC2", "usagetype": "EBS:VolumeUsage"}},
            "D": product("r5.large")["product"],  # without a price on demand
        },
        "terms": {"OnDemand": {"A": one["terms"]["OnDemand"], "B": other["terms"]["OnDemand"]}},
    }
    assert Prices.from_json(refreshed(json.dumps(written))) == Prices.from_json(refreshed(listed(one, other)))


def test_without_a_region_the_lists_only_one_counts() -> None:
    assert refreshed(listed(product())) == refreshed(listed(product()), REGION)
    with pytest.raises(BadRequest, match="say which of eu-west-1, us-east-1"):
        refreshed(listed(product(), product(regionCode="us-east-1")))


def test_the_shipped_prices_say_that_they_were_not_compared_with_aws() -> None:
    assert "not with AWS itself" in shipped_prices().source


def test_a_file_that_does_not_say_where_it_is_from_is_shown_as_such() -> None:
    text = '{"as_of": "2026-01-15", "region": "eu-west-1", "large_usd_per_hour": {"m5": "0.1"}}'
    assert Prices.from_json(text).source == UNKNOWN_SOURCE


def test_the_trackers_cost_says_whose_prices_it_is_made_of() -> None:
    shown = tracker_cost(load_settings({}), StillClock())
    assert shown["prices_as_of"] == "2024-11-01"
    assert "not compared" in shown["prices_source"]
    shown = tracker_cost(load_settings({"DYNAMODB_WRITE_USD": "1.25"}), StillClock())
    assert (shown["prices_as_of"], "settings" in shown["prices_source"]) == (None, True)
