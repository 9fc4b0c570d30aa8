"""The compound label: ``holdfast=TOKEN/cpu=4/ram=16/family=m7+c7/spot=false``, separated by slashes or commas.

It is one label, so that no label set of ours includes another. The token makes it unlike the labels of other jobs: a
job whose label holds its run's id gets a runner that no job of another run can be given. It chooses nothing.

Anyone who may change a workflow can write labels. Everything that is not spelled exactly as below is refused.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.kernel.settings.runner_kinds import ARCHITECTURES, NUMBER_MOST, Architecture, Span
from holdfast.kernel.settings.runners import FAMILY, NAME
from holdfast.kernel.settings.tables import nearest
from holdfast.kernel.text import cut

WORD: Final = "holdfast"
LABEL_MOST: Final = 256
_START: Final = re.compile(rf"{WORD}(?:[=/,]|\Z)")
_TOKEN: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,4}")
_FAMILIES: Final = re.compile(rf"{FAMILY}(\+{FAMILY}){{0,15}}")


class MachineRequest(Struct, frozen=True):
    """What a label asks for. None, or no family: whatever the profile has."""

    token: str | None = None
    profile: str | None = None
    cpu: Span | None = None
    ram: Span | None = None
    family: tuple[str, ...] = ()
    arch: Architecture | None = None
    image: str | None = None
    disk: Span | None = None
    spot: bool | None = None

    def label(self) -> str:
        """The request as a label, in the order of the fields; parsing it gives the request again."""
        parts = [WORD if self.token is None else f"{WORD}={self.token}"]
        named = (
            ("profile", self.profile),
            ("cpu", self.cpu),
            ("ram", self.ram),
            ("family", "+".join(self.family) or None),
            ("arch", self.arch),
            ("image", self.image),
            ("disk", self.disk),
            ("spot", None if self.spot is None else str(self.spot).lower()),
        )
        return "/".join([*parts, *(f"{key}={value}" for key, value in named if value is not None)])

    def without_token(self) -> "MachineRequest":
        return replace(self, token=None)


Value = str | Span | tuple[str, ...] | bool


def _span(text: str) -> Span | None:
    least, dash, most = text.partition("-")
    if not _NUMBER.fullmatch(least) or not _NUMBER.fullmatch(most if dash else least):
        return None
    span = Span(int(least), int(most if dash else least))
    return span if span.least <= span.most else None


def _size(text: str) -> Span | None:
    return None if "-" in text else _span(text)


def _families(text: str) -> tuple[str, ...] | None:
    return tuple(dict.fromkeys(text.split("+"))) if _FAMILIES.fullmatch(text) else None


def _word(text: str) -> str | None:
    return text if NAME.fullmatch(text) else None


def _flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


_SPAN_WORDS: Final = f"a whole number from 1 to {NUMBER_MOST}, or two of them such as 4-8"
_KEYS: Final[dict[str, tuple[Callable[[str], Value | None], str]]] = {
    "profile": (_word, "the name of a profile"),
    "cpu": (_span, _SPAN_WORDS),
    "ram": (_span, _SPAN_WORDS),
    "family": (_families, "instance families such as m7 or m7+c7i"),
    "arch": (ARCHITECTURES.get, "x64 or arm64"),
    "image": (_word, "the name of an image"),
    "disk": (_size, f"a whole number from 1 to {NUMBER_MOST}"),
    "spot": (_flag, "true or false"),
}


def is_compound(label: str) -> bool:
    """Whether the label, in lower case, is meant for Holdfast, well-formed or not."""
    return _START.match(label) is not None


def parsed(label: str) -> tuple[MachineRequest, list[str]]:
    """What a label in lower case asks for, as far as it is understood, and what is wrong with it."""
    if len(label) > LABEL_MOST:
        return MachineRequest(), [f"the label {cut(label)!r} is longer than {LABEL_MOST} characters"]
    first, *parts = re.split("[/,]", label)
    token = first.partition("=")[2] if "=" in first else None
    problems = []
    if token is not None and not _TOKEN.fullmatch(token):
        problems.append(f"{cut(first)}: the token is not 1 to 100 of a-z 0-9 . _ -, beginning with a letter or digit")
        token = None
    values: dict[str, Value] = {}
    problems += _read(parts, values)
    return MachineRequest(token, **values), problems  # type: ignore[arg-type]  # each value is of its key's type


def _read(parts: list[str], values: dict[str, Value]) -> Iterator[str]:
    """Put the value of each part into `values`; yields what is wrong."""
    for part in parts:
        key, _, text = part.partition("=")
        if key not in _KEYS:
            close = nearest(key, [*_KEYS])
            if close is not None and (meant := _KEYS[close][0](text)) is not None:
                values.setdefault(close, meant)  # for the nearest label that would do; this one is refused
            hint = f"did you mean {close}?" if close else f"the keys are {', '.join(_KEYS)}"
            yield f"{cut(part) or 'an empty part'} has no known key ({hint})"
            continue
        parse, expected = _KEYS[key]
        value = parse(text)
        if value is None:
            yield f"{cut(part)} is not {expected}"
        elif values.setdefault(key, value) != value:
            yield f"{key} is given twice"
