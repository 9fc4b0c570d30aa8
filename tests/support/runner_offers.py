"""Offers for tests: the one of the guide, and any that operators might write."""

import json
import tomllib
from pathlib import Path
from typing import Final, TypeVar

from hypothesis import assume
from hypothesis import strategies as st

from holdfast.fleet.instance_types import instance_types
from holdfast.kernel.settings.runner_kinds import Architecture, Span, SpotRule
from holdfast.kernel.settings.runners import Image, Profile, RunnerSettings, runner_settings
from holdfast.runners.compound_label import MachineRequest
from holdfast.runners.offer import Offer

T = TypeVar("T")
EXAMPLE: Final = Path(__file__).parents[2] / "docs" / "examples" / "runners.toml"
IMAGES: Final = (
    Image("ubuntu", "lt-0aaa:1", "x64"),
    Image("ubuntu-arm", "lt-0bbb:1", "arm64"),
    Image("debian", "lt-0ccc:1", "x64"),
)
FAMILIES: Final = ("m7", "c7i", "m7i", "t3", "t4g", "r8g", "c5", "g4dn", "m7i-flex")
# A part of the table, for speed: what is drawn, and some that nobody offers.
TYPES: Final = {
    name: found
    for name, found in instance_types().items()
    if found.family.startswith(("m7", "c7i", "t3", "t4g", "r8g", "c5", "g4dn", "p5", "u-3tb1"))
}
SIZES: Final = st.sampled_from([1, 2, 4, 8, 15, 16, 32, 64, 192])
SPANS: Final = st.tuples(SIZES, SIZES).map(lambda ends: Span(min(ends), max(ends)))
WIDE: Final = st.tuples(st.integers(1, 4), st.integers(8, 200)).map(lambda ends: Span(*ends))
_ARCHITECTURES: Final[tuple[Architecture | None, ...]] = (None, None, "x64", "arm64")
_SPOT_RULES: Final[tuple[SpotRule, ...]] = ("prefer", "never", "only")


def described(*rows: tuple[str, int, int, str]) -> str:
    """As `aws ec2 describe-instance-types` prints it, with some of its attributes."""
    return json.dumps(
        {
            "InstanceTypes": [
                {
                    "InstanceType": name,
                    "CurrentGeneration": True,
                    "VCpuInfo": {"DefaultVCpus": vcpus, "DefaultCores": 1},
                    "MemoryInfo": {"SizeInMiB": mib},
                    "ProcessorInfo": {"SupportedArchitectures": [architecture]},
                }
                for name, vcpus, mib, architecture in rows
            ]
        }
    )


def offer_of(text: str) -> Offer:
    found, problems = runner_settings("holdfast.toml", tomllib.loads(text)["runners"])
    assert problems == []
    offer = Offer(found, instance_types())
    assert list(offer.type_problems()) == []
    return offer


def example_offer() -> Offer:
    return offer_of(EXAMPLE.read_text(encoding="utf-8"))


@st.composite
def profiles(draw: st.DrawFn, name: str) -> Profile:
    by_name = draw(st.booleans())
    types = st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=5, unique=True)
    families = st.lists(st.sampled_from(FAMILIES), min_size=1, max_size=3, unique=True)
    return Profile(
        name=name,
        types=tuple(draw(types)) if by_name else (),
        family=() if by_name else tuple(draw(families)),
        cpu=draw(st.none() | WIDE | SPANS),
        ram=draw(st.none() | WIDE | SPANS),
        arch=draw(st.sampled_from(_ARCHITECTURES)),
        image=tuple(draw(st.permutations([image.name for image in IMAGES])))[: draw(st.integers(1, 3))],
        disk=draw(SPANS),
        spot=draw(st.sampled_from(_SPOT_RULES)),
        maximum=draw(st.integers(1, 50)),
        repositories=draw(st.sampled_from([(), (), ("acme/*",), ("acme/web",)])),
    )


@st.composite
def offers(draw: st.DrawFn) -> Offer:
    """Valid ones: there is a profile, and each has a machine."""
    drawn = [draw(profiles(name)) for name in ("small", "large", "")]
    every = Offer(RunnerSettings(IMAGES, tuple(drawn)), TYPES)
    usable = {profile.name: profile for profile in drawn if every.types_of(profile)}
    assume(usable)
    named = tuple(profile for name, profile in usable.items() if name)
    return Offer(RunnerSettings(IMAGES, named, usable.get("")), TYPES)


def _few(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    """Mostly nothing: a request that names everything is hardly ever served."""
    return st.integers(0, 3).flatmap(lambda number: st.none() if number else strategy)


REQUESTS: Final = st.builds(
    MachineRequest,
    token=st.none() | st.from_regex(r"[a-z0-9][a-z0-9._-]{0,19}", fullmatch=True),
    profile=st.sampled_from([None, "small", "large", "huge"]),
    cpu=_few(WIDE | SPANS),
    ram=_few(WIDE | SPANS),
    family=_few(st.lists(st.sampled_from([*FAMILIES, "p5", "u-3tb1"]), max_size=3, unique=True).map(tuple)).map(
        lambda found: found or ()
    ),
    arch=st.sampled_from(_ARCHITECTURES),
    image=_few(st.sampled_from(["ubuntu", "debian", "ubuntu-arm", "windows"])),
    disk=_few(SIZES.map(lambda size: Span(size, size))),
    spot=_few(st.booleans()),
)
SYSTEM: Final = st.lists(st.sampled_from(["self-hosted", "Linux", "X64", "arm64"]), max_size=2)
# Words that mean something, mixed with anything at all: hostile text is most dangerous where it is almost right.
PARTS: Final = st.sampled_from(["cpu=4", "cpu=1e9", "ram=", "family=.*", "family=m7", "spot=true", "=", "cpu=4-2", "x"])
LABELS: Final = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["self-hosted", "linux", "x64", "arm64", "small", "large", "ubuntu-latest", "gpu"]),
    REQUESTS.map(MachineRequest.label),
    st.tuples(REQUESTS.map(MachineRequest.label), PARTS | st.text(max_size=10)).map("/".join),
)
LABEL_LISTS: Final = st.one_of(
    st.tuples(REQUESTS.map(MachineRequest.label), SYSTEM).map(lambda both: [both[0], *both[1]]),
    st.tuples(st.sampled_from(["small", "Large"]), SYSTEM).map(lambda both: [both[0], *both[1]]),
    st.lists(LABELS, max_size=5),
)
