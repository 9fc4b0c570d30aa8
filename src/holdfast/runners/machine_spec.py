"""From a request to a machine within a profile's bounds, and to the nearest request that would do.

A request only ever removes choices from the profile: nothing in a label can add a type, an image or a market.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.fleet.instance_types import InstanceType
from holdfast.kernel.settings.runner_kinds import Span, SpotRule
from holdfast.kernel.settings.runners import Image, Profile
from holdfast.kernel.settings.tables import nearest
from holdfast.runners.compound_label import LABEL_MOST, MachineRequest
from holdfast.runners.offer import MIB_PER_GIB, Offer, architecture_of, is_family, place_of

# What a label may say about spot, where the profile leaves no choice.
_ONLY_SPOT: Final[Mapping[SpotRule, bool]] = {"never": False, "only": True}


class MachineSpec(Struct, frozen=True):
    """The machine of a class. Types are in the order in which they are tried, all of one architecture."""

    types: tuple[str, ...]
    image: Image
    spot: SpotRule
    disk_gib: int


def machine_spec(offer: Offer, profile: Profile, request: MachineRequest) -> MachineSpec | list[str]:
    """The machine, or why the profile has none for this request."""
    within = offer.types_of(profile)
    problems = [*_out_of_bounds(profile, request, within)]
    if problems:
        return problems
    for image in offer.images_of(profile):
        if request.image in (None, image.name) and request.arch in (None, image.arch):
            types = [each.name for each in within if architecture_of(each) == image.arch and _fits(each, request)]
            if types:
                disk = request.disk or profile.disk
                return MachineSpec(tuple(types), image, _spot(profile, request), disk.least)
    asked = request.without_token()
    return [f"no instance type within {place_of(profile)} fits {replace(asked, profile=None).label()}"]


def nearest_request(offer: Offer, profile: Profile, request: MachineRequest) -> MachineRequest | None:
    """The most similar request that the profile can serve. It names only what the request names."""
    images = offer.images_of(profile)
    # A label counts memory in whole GiB, so it cannot name a machine with less than one.
    types = [each for each in offer.types_of(profile) if each.memory_mib >= MIB_PER_GIB]
    if not types:
        return None
    best = min(types, key=lambda each: (_distance(each, request), -each.vcpus, each.name))
    arch = architecture_of(best)
    image = next(each for each in images if each.arch == arch)
    kept = tuple(pattern for pattern in request.family if is_family(pattern, best.family))
    gib, rest = divmod(best.memory_mib, MIB_PER_GIB)
    near = MachineRequest(
        token=request.token,
        profile=profile.name or None,
        cpu=_kept(request.cpu, profile.cpu, Span(best.vcpus, best.vcpus)),
        ram=_kept(request.ram, profile.ram, Span(gib, gib + bool(rest))),
        family=kept or ((best.family,) if request.family else ()),
        arch=arch if request.arch else None,
        image=_kept_image(images, request.image, image),
        disk=_clamped(request.disk, profile.disk),
        spot=None if request.spot is None else _ONLY_SPOT.get(profile.spot, request.spot),
    )
    return near if len(near.label()) <= LABEL_MOST else replace(near, token=None, family=())


def _out_of_bounds(profile: Profile, request: MachineRequest, within: Sequence[InstanceType]) -> Iterator[str]:
    where = place_of(profile)
    for key, asked, bound in (
        ("cpu", request.cpu, profile.cpu),
        ("ram", request.ram, profile.ram),
        ("disk", request.disk, profile.disk),
    ):
        if asked is not None and bound is not None and asked not in bound:
            yield f"{key}={asked} is outside {bound} of {where}"
    families = sorted({each.family for each in within})
    for pattern in request.family:
        if not any(is_family(pattern, family) for family in families):
            close = nearest(pattern, families)
            yield f"family={pattern} is not within {where}" + (f" (the nearest is {close})" if close else "")
    if request.image is not None and request.image not in profile.image:
        yield f"image={request.image} is not an image of {where}: {', '.join(profile.image)}"
    if request.spot is not None and request.spot != _ONLY_SPOT.get(profile.spot, request.spot):
        yield f"spot={str(request.spot).lower()} is not allowed by {where}"


def _fits(each: InstanceType, request: MachineRequest) -> bool:
    if request.cpu is not None and not request.cpu.least <= each.vcpus <= request.cpu.most:
        return False
    ram = request.ram
    if ram is not None and not ram.least * MIB_PER_GIB <= each.memory_mib <= ram.most * MIB_PER_GIB:
        return False
    return not request.family or any(is_family(pattern, each.family) for pattern in request.family)


def _spot(profile: Profile, request: MachineRequest) -> SpotRule:
    return "never" if request.spot is False else profile.spot


def _distance(each: InstanceType, request: MachineRequest) -> float:
    """How unlike the request: twice the vCPUs or memory counts 1, another family up to 2, another architecture 3."""
    family = 0.0
    if request.family and not any(is_family(pattern, each.family) for pattern in request.family):
        family = 1.0 if any(pattern[0] == each.family[0] for pattern in request.family) else 2.0
    architecture = 3.0 if request.arch not in (None, architecture_of(each)) else 0.0
    return (
        _doublings(request.cpu, each.vcpus)
        + _doublings(request.ram, each.memory_mib / MIB_PER_GIB)
        + family
        + architecture
    )


def _doublings(asked: Span | None, has: float) -> float:
    if asked is None:
        return 0.0
    return abs(math.log2(has / min(max(has, asked.least), asked.most)))


def _kept(asked: Span | None, bound: Span | None, machine: Span) -> Span | None:
    """What was asked, within the bound, if it includes the machine; else exactly the machine's."""
    if asked is None or machine not in asked:
        return asked and machine
    return asked if bound is None else Span(max(asked.least, bound.least), min(asked.most, bound.most))


def _kept_image(images: Sequence[Image], asked: str | None, image: Image) -> str | None:
    fits = any(each.name == asked and each.arch == image.arch for each in images)
    return asked if asked is None or fits else image.name


def _clamped(asked: Span | None, bound: Span) -> Span | None:
    if asked is None:
        return None
    size = min(max(asked.least, bound.least), bound.most)
    return Span(size, size)
