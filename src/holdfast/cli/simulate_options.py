"""The options of `holdfast simulate`: their types, and which exclude each other."""

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


class Days(click.FloatRange):
    """A number within bounds; click would accept NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not a number of days", param, ctx)
        return found


class SvgFile(click.Path):
    """The file for the plot. Browsers need the extension to recognise an SVG."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(str(super().convert(value, param, ctx)))
        if path.suffix.lower() != ".svg":
            self.fail(f"{path} must end in .svg: the plot is an SVG", param, ctx)
        return path


class ScenarioName(click.ParamType[str]):
    """The name of a scenario, or 'list'."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        names = self._names()
        if value not in names:
            close = difflib.get_close_matches(value, names, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            self.fail(f"unknown scenario {value!r}; {hint}'holdfast simulate --scenario list' lists all", param, ctx)
        return value

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return [CompletionItem(name) for name in self._names() if name.startswith(incomplete)]

    def _names(self) -> list[str]:
        from holdfast.simulator.proof.scenarios import SCENARIOS

        return ["list", *SCENARIOS]


def check_combination(options: Mapping[str, object], scenario: str | None, *, as_json: bool) -> None:
    """Reject an option that would have no effect. An option that was not passed is None."""
    names = [name for name, value in options.items() if value is not None]
    if scenario == "list" and names:
        raise click.UsageError(f"--scenario list takes no other options; remove {', '.join(names)}")
    if scenario is not None and "--days" in names:
        raise click.UsageError("--days cannot be combined with --scenario: a scenario has a fixed length")
    alone = [name for name in ("--only", "--plot", "--story") if name in names]
    if "--seeds" in names and alone:
        raise click.UsageError(f"{', '.join(alone)} cannot be combined with --seeds: it applies to a single run")
    if "--jobs" in names and "--seeds" not in names:
        raise click.UsageError("--jobs needs --seeds")
    if as_json and "--story" in names:
        raise click.UsageError("--story cannot be combined with --json")


def fault_names(only: str) -> list[str]:
    """The fault names in --only."""
    from holdfast.simulator.proof.faults import NO_FAULT

    names = [name.strip() for name in only.split(",") if name.strip()]
    if not names:
        raise click.UsageError("--only is empty; for a run without faults use --only none")
    return [] if names == [NO_FAULT] else names
