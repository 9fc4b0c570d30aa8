"""Figures for people, for programs, and for the page of results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from bench.harness.catalogue import Benchmark
from bench.harness.figures import Figure

COLUMNS: Final = ("what", "value", "unit", "reference", "ratio", "goal", "")

_START: Final = """\
<!-- Written by `make bench`. Measure again rather than edit. -->

# Results

Medians of rounds in which all contenders take turns, on the machine below. A goal that was missed says so. What is
compared within one run holds elsewhere too; rates by themselves are this machine's.
"""


@dataclass(frozen=True, slots=True)
class Result:
    """What one benchmark found."""

    benchmark: Benchmark
    figures: Sequence[Figure]
    notes: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        return {"name": self.benchmark.name, "figures": [figure.as_json() for figure in self.figures]}


def rows(figures: Sequence[Figure]) -> list[list[str]]:
    return [_row(figure) for figure in figures]


def page(results: Sequence[Result], machine: dict[str, str], day: date) -> str:
    """All results as Markdown."""
    about_machine = "".join(f"| {what} | {text} |\n" for what, text in {**machine, "day": day.isoformat()}.items())
    sections = "".join("\n" + "\n".join(_section(result)) + "\n" for result in results)
    return f"{_START}\n| machine | |\n| --- | --- |\n{about_machine}{sections}"


def _section(result: Result) -> Iterator[str]:
    yield f"## {result.benchmark.name}\n"
    yield f"{result.benchmark.about}\n"
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{' --- |' * len(COLUMNS)}"
    for cells in rows(result.figures):
        yield f"| {' | '.join(cells)} |"
    for note in result.notes:
        yield f"\n{note}"


def _row(figure: Figure) -> list[str]:
    numbers = [_number(number) for number in (figure.value, figure.reference, figure.ratio)]
    goal = "" if figure.goal is None else str(figure.goal)
    return [figure.what, numbers[0], figure.unit, numbers[1], numbers[2], goal, figure.verdict]


def _number(number: float | None) -> str:
    """Three digits, all of those before the point."""
    if number is None:
        return ""
    decimals = 0 if abs(number) >= 100 else 1 if abs(number) >= 10 else 2
    return f"{number:,.{decimals}f}"
