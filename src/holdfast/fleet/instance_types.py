"""What EC2's instance types have: vCPUs, memory and architecture, as shipped in `instance_types.json`.

The numbers are the machine's own. A node can allocate less of them to pods, and never more. A type that is not in the
table is unknown: it may be newer than this version. `described` makes a newer table from EC2's own answer.
"""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from msgspec import Struct

from holdfast.kernel.errors import BadRequest
from holdfast.ports.kube import Resources

_ARCHITECTURES: Final = ("x86_64", "arm64")
_NOTE: Final = "family: [architecture, {size: [vCPUs, memory in MiB]}]"


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
    """Every type of the shipped table, by name."""
    return types_from_json(files("holdfast.fleet").joinpath("instance_types.json").read_text(encoding="utf-8"))


def instance_type(name: str) -> InstanceType | None:
    return instance_types().get(name)


def types_from_json(text: str) -> Mapping[str, InstanceType]:
    """A table in the form of the shipped file; BadRequest if it is not."""
    try:
        found = {
            f"{family}.{size}": InstanceType(f"{family}.{size}", family, architecture, vcpus, memory_mib)
            for family, (architecture, sizes) in json.loads(text)["families"].items()
            for size, (vcpus, memory_mib) in sizes.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"instance types: expected families with their sizes ({error})") from error
    for each in found.values():
        numbers = (each.vcpus, each.memory_mib)
        if each.architecture not in _ARCHITECTURES or any(type(one) is not int or one < 1 for one in numbers):
            raise BadRequest(f"instance types: {each.name}: expected an architecture, vCPUs and MiB above 0")
    return found


def described(text: str, source: str) -> str:
    """A table from a saved answer, as ``aws ec2 describe-instance-types`` prints it."""
    try:
        return table_page(json.loads(text)["InstanceTypes"], source)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        expected = "expected the output of 'aws ec2 describe-instance-types'"
        raise BadRequest(f"instance types: {expected} ({type(error).__name__}: {error})") from error


def table_page(rows: Iterable[Mapping[str, Any]], source: str) -> str:
    """The table as a file: a line for each family, the smallest size first. A worker or a runner is never a Mac."""
    families: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {}
    for row in rows:
        family, size = row["InstanceType"].split(".")
        architectures = row["ProcessorInfo"]["SupportedArchitectures"]
        if family.startswith("mac") or not {*_ARCHITECTURES} & {*architectures}:
            continue
        _, sizes = families.setdefault(family, ("arm64" if "arm64" in architectures else "x86_64", {}))
        sizes[size] = (row["VCpuInfo"]["DefaultVCpus"], row["MemoryInfo"]["SizeInMiB"])
    lines = []
    for family, (architecture, sizes) in sorted(families.items()):
        smallest_first = dict(sorted(sizes.items(), key=lambda each: (each[1], each[0])))
        lines.append(f"  {json.dumps(family)}: {json.dumps([architecture, smallest_first])}")
    head = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in (("source", source), ("note", _NOTE))]
    return "\n".join(["{", *head, ' "families": {', ",\n".join(lines), " }", "}", ""])
