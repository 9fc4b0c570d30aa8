"""Prices come from AWS's price list, and every figure has their age and source."""

import json
from decimal import Decimal
from typing import Any

import pytest

from holdfast.jobs.cost.price_list import refreshed
from holdfast.jobs.cost.prices import UNKNOWN_SOURCE, Prices, shipped_prices
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.settings import load_settings
from holdfast.views.tracker_cost import tracker_cost
from tests.clocks import StillClock
from tests.support.price_lists import REGION, listed, product


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
def test_other_offers_are_not_counted(other: dict[str, Any]) -> None:
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
def test_anything_but_a_price_list_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        refreshed(text, REGION)


def test_the_file_that_aws_publishes_is_read_too() -> None:
    """It has products and prices in separate lists, and much besides machines."""
    one, other = product(), product("c7g.large", "0.0771")
    written = {
        "publicationDate": one["publicationDate"],
        "products": {
            "A": one["product"],
            "B": other["product"],
            "C": {"attributes": {"servicecode": "AmazonEC2", "usagetype": "EBS:VolumeUsage"}},
            "D": product("r5.large")["product"],  # without an on-demand price
        },
        "terms": {"OnDemand": {"A": one["terms"]["OnDemand"], "B": other["terms"]["OnDemand"]}},
    }
    assert Prices.from_json(refreshed(json.dumps(written))) == Prices.from_json(refreshed(listed(one, other)))


def test_without_a_region_the_only_one_in_the_list_is_used() -> None:
    assert refreshed(listed(product())) == refreshed(listed(product()), REGION)
    with pytest.raises(BadRequest, match="choose one of eu-west-1, us-east-1"):
        refreshed(listed(product(), product(regionCode="us-east-1")))


def test_the_shipped_prices_say_that_they_were_not_compared_with_aws() -> None:
    assert "not with AWS itself" in shipped_prices().source


def test_a_file_without_a_source_is_shown_as_such() -> None:
    text = '{"as_of": "2026-01-15", "region": "eu-west-1", "large_usd_per_hour": {"m5": "0.1"}}'
    assert Prices.from_json(text).source == UNKNOWN_SOURCE


def test_the_trackers_cost_names_the_source_of_its_prices() -> None:
    shown = tracker_cost(load_settings({}), StillClock())
    assert shown.prices_as_of == "2024-11-01"
    assert "not verified" in shown.prices_source
    shown = tracker_cost(load_settings({"DYNAMODB_WRITE_USD": "1.25"}), StillClock())
    assert (shown.prices_as_of, "settings" in shown.prices_source) == (None, True)
