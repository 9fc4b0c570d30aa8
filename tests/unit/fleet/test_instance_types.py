"""The table of instance types, against EC2's own answers."""

import pytest

from holdfast.fleet.instance_types import InstanceType, instance_type, instance_types
from holdfast.ports.kube import Resources
from tools.instance_types import recorded


@pytest.mark.parametrize(
    ("name", "architecture", "vcpus", "gib"),
    [
        ("t3.medium", "x86_64", 2, 4),
        ("t4g.small", "arm64", 2, 2),
        ("m5.large", "x86_64", 2, 8),
        ("m6g.medium", "arm64", 1, 4),
        ("m7i.xlarge", "x86_64", 4, 16),
        ("m7i-flex.large", "x86_64", 2, 8),
        ("m8g.48xlarge", "arm64", 192, 768),
        ("c5.9xlarge", "x86_64", 36, 72),
        ("c7a.2xlarge", "x86_64", 8, 16),
        ("r7g.16xlarge", "arm64", 64, 512),
        ("i4i.2xlarge", "x86_64", 8, 64),
        ("m7i.metal-24xl", "x86_64", 96, 384),
    ],
)
def test_common_types_are_as_ec2s_pages_list_them(name: str, architecture: str, vcpus: int, gib: int) -> None:
    family = name.split(".")[0]
    assert instance_type(name) == InstanceType(name, family, architecture, vcpus, gib * 1024)


def test_every_row_is_what_ec2_answers() -> None:
    """As moto recorded it. A difference means: run `python -m tools.instance_types`."""
    found = {name: row for name, row in recorded().items() if not name.startswith("mac")}
    assert instance_types().keys() == found.keys()
    for name, row in found.items():
        ours = instance_types()[name]
        assert ours.vcpus == row["VCpuInfo"]["DefaultVCpus"]
        assert ours.memory_mib == row["MemoryInfo"]["SizeInMiB"]
        assert ours.architecture in row["ProcessorInfo"]["SupportedArchitectures"]


@pytest.mark.parametrize("family", ["t3 t3a t4g m5 m6i m6a m6g m7i m7a m7g m8g c5 c6i c7g c8g r5 r6i r7i r8g i4i"])
def test_the_common_families_are_there(family: str) -> None:
    assert set(family.split()) <= {found.family for found in instance_types().values()}


def test_a_machines_capacity_is_in_the_units_of_pods() -> None:
    found = instance_type("t3.medium")
    assert found is not None
    assert found.capacity == Resources(2_000, 4 * 1024**3)


def test_an_unknown_type_is_unknown() -> None:
    assert instance_type("m99i.huge") is None
