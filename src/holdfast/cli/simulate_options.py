"""The options of `holdfast simulate`: what each may be, and which say nothing beside each other."""

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


class Days(click.FloatRange):
    """A number within bounds. What is no number has none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not a number of days", param, ctx)
        return found


class SvgFile(click.Path):
    """A file to draw into. Browsers know a picture's kind by the end of its name."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(str(super().convert(value, param, ctx)))
        if path.suffix.lower() != ".svg":
            self.fail(f"the picture is an SVG: {path} must end in .svg", param, ctx)
        return path


class ScenarioName(click.ParamType[str]):
    """The name of a scenario, or 'list'."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        names = self._names()
        if value not in names:
            close = difflib.get_close_matches(value, names, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            self.fail(
                f"there is no scenario {value!r}; {hint}'holdfast simulate --scenario list' shows all", param, ctx
            )
        return value

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return [CompletionItem(name) for name in self._names() if name.startswith(incomplete)]

    def _names(self) -> list[str]:
        from holdfast.simulator.scenarios import SCENARIOS

        return ["list", *SCENARIOS]


def check_together(given: Mapping[str, object], scenario: str | None, *, as_json: bool) -> None:
    """An option that would not count is refused: whoever gives it expects that it does. None: it was not given."""
    names = [name for name, value in given.items() if value is not None]
    if scenario == "list" and names:
        raise click.UsageError(f"--scenario list only lists; leave out {', '.join(names)}")
    if scenario is not None and "--days" in names:
        raise click.UsageError("a scenario has a length of its own; leave out --days")
    alone = [name for name in ("--only", "--plot", "--story") if name in names]
    if "--seeds" in names and alone:
        raise click.UsageError(f"{', '.join(alone)}: of one run, and --seeds asks for many; leave out one or the other")
    if "--jobs" in names and "--seeds" not in names:
        raise click.UsageError("--jobs is for a search; say how many seeds with --seeds")
    if as_json and "--story" in names:
        raise click.UsageError("--story is for people, and --json for programs; leave out one of them")


def names_of(only: str) -> list[str]:
    """The faults that --only names."""
    from holdfast.simulator.faults import NO_FAULT

    names = [name.strip() for name in only.split(",") if name.strip()]
    if not names:
        raise click.UsageError("--only names no fault; for a run without any: --only none")
    return [] if names == [NO_FAULT] else names
