"""What operators offer: profiles and images, against the table of instance types.

`type_problems` is checked at start: a profile that no type fits, or that names an unknown type, is a mistake in the
file, and not in the labels of some later job.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from holdfast.fleet.instance_types import InstanceType
from holdfast.kernel.settings.runner_kinds import ARCHITECTURES, Architecture
from holdfast.kernel.settings.runners import Image, Profile, RunnerSettings
from holdfast.kernel.settings.tables import nearest

_GENERATION: Final = re.compile(r"[a-z]+[0-9]+")
MIB_PER_GIB: Final = 1024


class Offer(Struct, frozen=True):
    settings: RunnerSettings
    types: Mapping[str, InstanceType]

    def profile(self, name: str) -> Profile | None:
        return next((profile for profile in self.settings.profiles if profile.name == name), None)

    def images_of(self, profile: Profile) -> list[Image]:
        """In the profile's order: the first is the default."""
        by_name = {image.name: image for image in self.settings.images}
        return [by_name[name] for name in profile.image]

    def types_of(self, profile: Profile) -> list[InstanceType]:
        """Every type within the profile's bounds: in its own order, or the smallest first."""
        known = (self.types[name] for name in profile.types if name in self.types)
        candidates = known if profile.types else self.types.values()
        architectures = {image.arch for image in self.images_of(profile)}
        within = [each for each in candidates if architecture_of(each) in architectures and is_within(each, profile)]
        return within if profile.types else sorted(within, key=lambda each: (each.vcpus, each.memory_mib, each.name))

    def type_problems(self) -> Iterator[str]:
        """One line for each mistake of a profile."""
        for profile in self.settings.offered:
            where = f"{self.settings.file}: {place_of(profile)}"
            unknown = [name for name in profile.types if name not in self.types]
            for name in unknown:
                yield f"{where}.types: {name} is not a known instance type{_hint(name, [*self.types])}"
            families = sorted({each.family for each in self.types.values()})
            for pattern in profile.family:
                if not any(is_family(pattern, family) for family in families):
                    yield f"{where}.family: {pattern} is not a known instance family{_hint(pattern, families)}"
            if not unknown and not self.types_of(profile):
                yield f"{where}: no instance type fits cpu, ram, arch and family, and has an image of its architecture"


def _hint(word: str, known: list[str]) -> str:
    close = nearest(word, known)
    return f"; the nearest is {close}" if close else ""


def place_of(profile: Profile) -> str:
    """Its table in the file."""
    return f"runners.profiles.{profile.name}" if profile.name else "runners.bounds"


def architecture_of(each: InstanceType) -> Architecture:
    return ARCHITECTURES[each.architecture]


def is_family(pattern: str, family: str) -> bool:
    """Whether a family is meant: by its whole name, or by series and generation (``m7`` means m7i, m7a, m7i-flex)."""
    if family == pattern:
        return True
    return bool(_GENERATION.fullmatch(pattern)) and family.startswith(pattern) and not family[len(pattern)].isdigit()


def is_within(each: InstanceType, profile: Profile) -> bool:
    cpu, ram = profile.cpu, profile.ram
    if cpu is not None and not cpu.least <= each.vcpus <= cpu.most:
        return False
    if ram is not None and not ram.least * MIB_PER_GIB <= each.memory_mib <= ram.most * MIB_PER_GIB:
        return False
    if profile.arch is not None and architecture_of(each) != profile.arch:
        return False
    return not profile.family or any(is_family(pattern, each.family) for pattern in profile.family)
