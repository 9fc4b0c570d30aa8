"""Price lists as AWS publishes them."""

import json
from typing import Any

REGION = "eu-west-1"


def product(name: str = "m5.large", usd: str = "0.1070000000", **attributes: Any) -> dict[str, Any]:
    """As in the price list, without the fields that are not read."""
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
    """The products are strings, as the command prints them."""
    return json.dumps({"FormatVersion": "aws_v1", "PriceList": [json.dumps(each) for each in products]})
