"""Write `fleet/instance_types.json` from EC2's own answers, as moto recorded them: `python -m tools.instance_types`."""

import gzip
import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from holdfast.fleet.instance_types import table_page

FILE = Path(__file__).parent.parent / "src" / "holdfast" / "fleet" / "instance_types.json"


def recorded() -> dict[str, Any]:
    """The answer to DescribeInstanceTypes, by the type's name."""
    packed = files("moto.ec2").joinpath("resources/instance_types.json.gz").read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(packed))
    return found


def page() -> str:
    rows = [{**row, "InstanceType": name} for name, row in recorded().items()]
    return table_page(rows, f"EC2's DescribeInstanceTypes, as recorded in moto {version('moto')}")


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
