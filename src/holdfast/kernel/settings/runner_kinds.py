"""The kinds of values in `[runners]` of `holdfast.toml`. They are TOML values: no environment variable holds them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from holdfast.kernel.settings.kinds import Flag, Whole, WordList

Architecture = Literal["x64", "arm64"]
SpotRule = Literal["prefer", "never", "only"]
Scope = Literal["organization", "repository"]

# By GitHub's words for them, and the other ones that people use.
ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "x64": "x64",
    "x86_64": "x64",
    "amd64": "x64",
    "arm64": "arm64",
    "aarch64": "arm64",
}
NUMBER_MOST: Final = 99_999


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Whole numbers from least to most, both included."""

    least: int
    most: int

    def __contains__(self, other: "Span") -> bool:
        return self.least <= other.least and other.most <= self.most

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}-{self.most}"


@dataclass(frozen=True, slots=True)
class Spans:
    """A whole number, or the least and the most as a list."""

    expected: str = f"a whole number from 1 to {NUMBER_MOST}, or the least and the most as a list"

    def parse(self, raw: object) -> Span:
        ends = raw if isinstance(raw, list) else [raw, raw]
        if len(ends) != 2:
            raise ValueError(self.expected)
        least, most = (Whole(1, NUMBER_MOST).parse(end) for end in ends)
        if least > most:
            raise ValueError(self.expected)
        return Span(least, most)


@dataclass(frozen=True, slots=True)
class Words:
    """One word or a list of words, each once."""

    expected: str
    pattern: str

    def parse(self, raw: object) -> tuple[str, ...]:
        words = WordList(self.expected, self.pattern).parse(raw)
        if len(set(words)) < len(words):
            raise ValueError(self.expected)
        return words


@dataclass(frozen=True, slots=True)
class ArchitectureName:
    expected: str = "x64 or arm64"

    def parse(self, raw: object) -> Architecture:
        if not isinstance(raw, str) or raw.lower() not in ARCHITECTURES:
            raise ValueError(self.expected)
        return ARCHITECTURES[raw.lower()]


@dataclass(frozen=True, slots=True)
class SpotRules:
    expected: str = 'true (spot first; a label may ask for on-demand), false (never spot) or "only"'

    def parse(self, raw: object) -> SpotRule:
        if raw == "only":
            return "only"
        return "prefer" if Flag(self.expected).parse(raw) else "never"


@dataclass(frozen=True, slots=True)
class ScopeName:
    expected: str = "organization or repository"

    def parse(self, raw: object) -> Scope:
        if raw == "organization":
            return "organization"
        if raw == "repository":
            return "repository"
        raise ValueError(self.expected)


@dataclass(frozen=True, slots=True)
class SubTable:
    expected: str = "a table"

    def parse(self, raw: object) -> Mapping[str, Any]:
        if not isinstance(raw, Mapping):
            raise ValueError(self.expected)  # noqa: TRY004  a kind refuses with ValueError
        return raw
