"""The table `[runners]` of `holdfast.toml`: images, profiles, and the bounds for compound labels.

A profile is a set of bounds, and so is `[runners.bounds]`: labels choose within them, and never beyond. What EC2's
types have is not known here; `runners/offer.py` checks profiles against the table of types.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.kernel.label_sets import is_github_hosted
from holdfast.kernel.settings.kinds import Maybe, Text, Whole
from holdfast.kernel.settings.runner_kinds import (
    ARCHITECTURES,
    Architecture,
    ArchitectureName,
    Scope,
    ScopeName,
    Span,
    Spans,
    SpotRule,
    SpotRules,
    SubTable,
    Words,
)
from holdfast.kernel.settings.tables import REQUIRED, TableKey, read_table
from holdfast.kernel.settings.world import TEMPLATE
from holdfast.kernel.text import cut

# Labels with a meaning of their own; a profile of that name would be ambiguous.
SYSTEM_LABELS: Final = ("self-hosted", "linux", "x64", "arm64")
_RESERVED: Final = (*SYSTEM_LABELS, *ARCHITECTURES, "windows", "macos", "holdfast")
NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,48}[a-z0-9])?")
_NAME_WORDS: Final = "a name of up to 50 of a-z 0-9 . _ -, beginning and ending with a letter or digit"
FAMILY: Final = r"[a-z][a-z0-9-]{0,19}"
_REPOSITORY: Final = r"[A-Za-z0-9_-]{1,64}/([A-Za-z0-9_.-]{1,100}|\*)"


@dataclass(frozen=True, slots=True)
class Image:
    """A launch template, by the name that labels may use; they never name the template itself."""

    name: str
    template: str
    arch: Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Bounds within which labels choose a machine. `repositories` is empty if every repository may use it."""

    name: str
    types: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    cpu: Span | None = None
    ram: Span | None = None
    arch: Architecture | None = None
    image: tuple[str, ...]
    disk: Span
    spot: SpotRule
    maximum: int
    repositories: tuple[str, ...] = ()
    group: str | None = None
    scope: Scope | None = None
    pool: str | None = None

    @property
    def is_for_named_repositories(self) -> bool:
        return any(not name.endswith("/*") for name in self.repositories)

    @property
    def runner_scope(self) -> Scope:
        """Where its runners register. GitHub may give an organization's runner to any repository of its group."""
        if self.scope is not None:
            return self.scope
        return "repository" if self.is_for_named_repositories and self.group is None else "organization"


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """What operators offer. Without profiles and bounds nothing is offered, and no job is Holdfast's to serve."""

    images: tuple[Image, ...] = ()
    profiles: tuple[Profile, ...] = ()
    bounds: Profile | None = None
    file: str = "holdfast.toml"

    @property
    def offered(self) -> tuple[Profile, ...]:
        return self.profiles if self.bounds is None else (*self.profiles, self.bounds)


IMAGE_KEYS: Final = (
    TableKey("template", TEMPLATE, REQUIRED, '"lt-0123456789abcdef0:3"', "The launch template and its version."),
    TableKey("arch", ArchitectureName(), REQUIRED, '"x64"', "The architecture of its image: x64 or arm64."),
)
PROFILE_KEYS: Final = (
    TableKey(
        "types",
        Words("a list of instance types, each once", r"[a-z0-9-]+\.[a-z0-9-]+"),
        (),
        '["m7i.xlarge", "m7a.xlarge"]',
        "The instance types in order of preference; or give family.",
    ),
    TableKey(
        "family",
        Words("a list of instance families, each once", FAMILY),
        (),
        '["m7", "c7i"]',
        "Instance families: m7i alone, or with m7 all of that generation (m7i, m7a, m7g and so on).",
    ),
    TableKey("cpu", Spans(), None, "[2, 16]", "vCPUs. Needed with family."),
    TableKey("ram", Spans(), None, "[4, 64]", "Memory in GiB. If not set, any amount."),
    TableKey("arch", ArchitectureName(), None, '"arm64"', "Only this architecture. If not set, those of the images."),
    TableKey(
        "image",
        Words("the name of an image in [runners.images], or a list of them", NAME.pattern),
        REQUIRED,
        '"ubuntu-24"',
        "The images that a label may choose from; the first that fits is the default.",
    ),
    TableKey(
        "disk", Spans(), Span(30, 30), "[40, 200]", "Disk in GiB; what labels leave open is the least. If not set, 30."
    ),
    TableKey("spot", SpotRules(), "prefer", "true", "Whether to use spot machines. If not set, true."),
    TableKey(
        "maximum",
        Whole(1, 10_000),
        10,
        "20",
        "The maximum number of its machines at once, whatever their labels. If not set, 10.",
    ),
    TableKey(
        "repositories",
        Words("a list of repositories owner/name or owner/*, each once", _REPOSITORY),
        (),
        '["acme/web", "acme/api"]',
        "Only jobs of these repositories. If not set, of every repository.",
    ),
    TableKey(
        "group",
        Maybe(Text("the name of a runner group", r"[ -~]{1,100}")),
        None,
        '"builders"',
        "The runner group of its runners. If not set, GitHub's default group.",
    ),
    TableKey(
        "scope",
        ScopeName(),
        None,
        '"repository"',
        "Where its runners register. If not set, the organization; for named repositories without a group, each "
        "repository.",
    ),
    TableKey("pool", Maybe(Text(_NAME_WORDS, NAME.pattern)), None, '"warm-large"', "The name of its machine pool."),
)
_PARTS: Final = (
    TableKey("images", SubTable(), {}, '{ubuntu-24 = {template = "lt-0123456789abcdef0:3", arch = "x64"}}', ""),
    TableKey("profiles", SubTable(), {}, '{large = {family = "m7", image = "ubuntu-24"}}', ""),
    TableKey("bounds", SubTable(), None, '{family = ["m7", "c7"], image = "ubuntu-24"}', ""),
)


def runner_settings(label: str, raw: object) -> tuple[RunnerSettings, list[str]]:
    """The table `[runners]` of the file with that label, and its problems."""
    where = f"{label}: runners"
    tables, problems = read_table(where, raw, _PARTS)
    if problems:
        return RunnerSettings(file=label), problems
    images, problems = _images(f"{where}.images", tables["images"])
    names = [image.name for image in images]
    profiles: list[Profile] = []
    for name, table in tables["profiles"].items():
        found, own = _named_profile(f"{where}.profiles.{cut(name)}", name, table, names)
        profiles += found
        problems += own
    bounds: list[Profile] = []
    if tables["bounds"] is not None:
        bounds, own = _profile(f"{where}.bounds", "", tables["bounds"], names)
        problems += own
    return RunnerSettings(images, tuple(profiles), bounds[0] if bounds else None, label), problems


def _named_profile(where: str, name: str, table: object, images: Sequence[str]) -> tuple[list[Profile], list[str]]:
    if NAME.fullmatch(name) and name not in _RESERVED and not is_github_hosted(name):
        return _profile(where, name, table, images)
    return [], [f"{where}: its name must be {_NAME_WORDS}, and no label that GitHub gives a meaning; for example large"]


def _images(where: str, tables: Mapping[str, object]) -> tuple[tuple[Image, ...], list[str]]:
    images, problems = [], []
    for name, table in tables.items():
        if not NAME.fullmatch(name):
            problems.append(f"{where}.{cut(name)}: the name is not {_NAME_WORDS}; for example ubuntu-24")
            continue
        values, own = read_table(f"{where}.{name}", table, IMAGE_KEYS)
        problems += own
        if not own:
            images.append(Image(name, **values))
    return tuple(images), problems


def _profile(where: str, name: str, table: object, images: Sequence[str]) -> tuple[list[Profile], list[str]]:
    values, problems = read_table(where, table, PROFILE_KEYS)
    if problems:
        return [], problems
    profile = Profile(name=name, **values)
    profile = replace(profile, repositories=tuple(each.lower() for each in profile.repositories))
    return [profile], [f"{where}{problem}" for problem in _contradictions(profile, images)]


def _contradictions(profile: Profile, images: Sequence[str]) -> list[str]:
    found = []
    if bool(profile.types) == bool(profile.family):
        found.append(' needs either types or family, and not both; for example family = ["m7"]')
    if profile.family and profile.cpu is None:
        found.append(" needs cpu with family, or a label could ask for the largest machine; for example cpu = [2, 16]")
    missing = [image for image in profile.image if image not in images]
    if missing:
        known = ", ".join(images) or "none; add [runners.images.ubuntu-24]"
        found.append(f".image: {', '.join(missing)} is not in [runners.images]; known are: {known}")
    if profile.scope == "organization" and profile.is_for_named_repositories and profile.group is None:
        found.append(
            ".scope: GitHub may give a runner of the organization to any repository; name a runner group that only "
            'these repositories may use, or set scope = "repository"'
        )
    return found
