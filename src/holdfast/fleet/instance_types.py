"""What EC2's instance types have: vCPUs, memory and architecture, as shipped in `instance_types.json`.

The numbers are the machine's own. A node can allocate less of them to pods, and never more. A type that is not in the
table is unknown: it may be newer than this version.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

from msgspec import Struct

from holdfast.ports.kube import Resources


class InstanceType(Struct, frozen=True):
    name: str
    family: str  # ``m7i`` of ``m7i.xlarge``
    architecture: str  # ``x86_64`` or ``arm64``
    vcpus: int
    memory_mib: int

    @property
    def capacity(self) -> Resources:
        return Resources(self.vcpus * 1000, self.memory_mib * 1024 * 1024)


@lru_cache(maxsize=1)
def instance_types() -> Mapping[str, InstanceType]:
    """Every type of the table, by name."""
    table = json.loads(files("holdfast.fleet").joinpath("instance_types.json").read_text(encoding="utf-8"))
    return {
        f"{family}.{size}": InstanceType(f"{family}.{size}", family, architecture, vcpus, memory_mib)
        for family, (architecture, sizes) in table["families"].items()
        for size, (vcpus, memory_mib) in sizes.items()
    }


def instance_type(name: str) -> InstanceType | None:
    return instance_types().get(name)
