"""Write `fleet/instance_types.json` from EC2's own answers, as moto recorded them: `python -m tools.instance_types`."""

import gzip
import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent.parent / "src" / "holdfast" / "fleet" / "instance_types.json"

Families = dict[str, tuple[str, dict[str, tuple[int, int]]]]


def recorded() -> dict[str, Any]:
    """The answer to DescribeInstanceTypes, by the type's name."""
    packed = files("moto.ec2").joinpath("resources/instance_types.json.gz").read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(packed))
    return found


def families() -> Families:
    """Architecture, and the sizes' vCPUs and MiB, the smallest first. A worker is never a Mac."""
    found: Families = {}
    for name, row in recorded().items():
        family, size = name.split(".")
        if family.startswith("mac"):
            continue
        arm = "arm64" in row["ProcessorInfo"]["SupportedArchitectures"]
        _, sizes = found.setdefault(family, ("arm64" if arm else "x86_64", {}))
        sizes[size] = (row["VCpuInfo"]["DefaultVCpus"], row["MemoryInfo"]["SizeInMiB"])
    return {
        family: (architecture, dict(sorted(sizes.items(), key=lambda row: (row[1], row[0]))))
        for family, (architecture, sizes) in sorted(found.items())
    }


def page() -> str:
    rows = [f"  {json.dumps(family)}: {json.dumps(row)}" for family, row in families().items()]
    head = {
        "source": f"EC2's DescribeInstanceTypes, as recorded in moto {version('moto')}",
        "note": "family: [architecture, {size: [vCPUs, memory in MiB]}]",
    }
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    return "\n".join(["{", *lines, ' "families": {', ",\n".join(rows), " }", "}", ""])


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
