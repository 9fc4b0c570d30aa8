"""What becomes of labels, in words."""

from collections.abc import Sequence
from typing import Final, Literal, assert_never

from holdfast.kernel.settings.runner_kinds import SpotRule
from holdfast.runners.classes import NotOurs, Served, Unservable, Verdict, name_of
from holdfast.runners.machine_spec import MachineSpec

Market = Literal["spot first", "on-demand", "spot only"]
MARKETS: Final[dict[SpotRule, Market]] = {
    "prefer": "spot first",
    "never": "on-demand",
    "only": "spot only",
}


def verdict_words(found: Verdict) -> str:
    """One sentence without a full stop."""
    match found:
        case Served():
            return f"{name_of(found.profile)} serves them with {machine_words(found.spec)}"
        case Unservable():
            near = f". The nearest that would do: {', '.join(found.nearest)}" if found.nearest else ""
            return f"nobody can serve them: {found.reason}{near}"
        case NotOurs():
            return f"they are not for Holdfast: {found.reason}"
        case _:
            assert_never(found)


def machine_words(spec: MachineSpec) -> str:
    image = f"image {spec.image.name} ({spec.image.arch})"
    return f"{types_words(spec.types)}; {MARKETS[spec.spot]}; {image}; {spec.disk_gib} GiB of disk"


def types_words(types: Sequence[str], most: int = 3) -> str:
    """The first few types, and how many more there are."""
    more = len(types) - most
    return ", ".join(types[:most]) + (f" and {more} more" if more > 0 else "")
