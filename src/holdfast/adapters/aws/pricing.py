"""EC2's prices from the AWS Price List API, through boto3."""

import json
from typing import Any, Final

from holdfast.adapters.aws.clients import AwsError, aws_client, aws_config, aws_errors, explained
from holdfast.adapters.aws_region import aws_region
from holdfast.kernel.errors import NeedsOperator

READ_SECONDS: Final = 30
ENDPOINT_REGION: Final = "us-east-1"  # the API exists in few regions, and has the prices of all
PAGES_MOST: Final = 200  # of 100 products each; a region has about a dozen
# These keep the list short; the reader of the list filters the rest.
_FILTERS: Final = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}


def own_region() -> str:
    """The region that AWS's clients use."""
    region = aws_region()
    if region is None:
        raise NeedsOperator("no region is configured; name one with --region, for example --region eu-west-1")
    return region.name


class AwsPriceList:
    def __init__(self, client: Any = None) -> None:
        self._client = client or aws_client(
            "pricing", aws_config(read_seconds=READ_SECONDS), region_name=ENDPOINT_REGION
        )

    def close(self) -> None:
        self._client.close()

    def read(self, region: str) -> str:
        """The region's instance prices, in the format of 'aws pricing get-products'."""
        wanted = [
            {"Type": "TERM_MATCH", "Field": name, "Value": value}
            for name, value in {**_FILTERS, "regionCode": region}.items()
        ]
        products: list[str] = []
        more: dict[str, str] = {}
        try:
            for _ in range(PAGES_MOST):
                with aws_errors():
                    page = self._client.get_products(ServiceCode="AmazonEC2", Filters=wanted, **more)
                products += page.get("PriceList", ())
                if not page.get("NextToken"):
                    return json.dumps({"PriceList": products})
                more = {"NextToken": page["NextToken"]}
        except AwsError as error:
            raise explained(error, f"AWS price list for {region}") from error
        raise NeedsOperator(f"AWS price list for {region} has more than {PAGES_MOST} pages; nothing was changed")
