"""Progress of a long command: a bar with the remaining time on a terminal, otherwise a line now and then."""

import importlib.util
import sys
import time
from types import TracebackType
from typing import Any, Final, Self

import click

LINE_EVERY_SECONDS: Final = 10.0
_BAR: Final = 30


class Progress:
    """On stderr, because stdout may hold JSON."""

    def __init__(self, what: str, unit: str) -> None:
        self._what = what
        self._unit = unit
        self._started = self._last_line = time.monotonic()
        self._first: int | None = None
        self._is_live = sys.stderr.isatty()
        self._rich: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._rich is not None:
            self._rich.stop()
        elif self._is_live and self._first is not None:
            click.echo("", err=True)

    def show(self, done: int, total: int | None, words: str) -> None:
        """`total` is None if unknown."""
        if self._first is None:
            self._first = done  # work of an earlier run does not count towards our pace
            self._started = time.monotonic()
        if self._is_live and importlib.util.find_spec("rich"):
            self._show_rich(done, total, words)
        elif self._is_live:
            click.echo(f"\r\x1b[K{self._line(done, total, words)}", err=True, nl=False)
        elif time.monotonic() - self._last_line >= LINE_EVERY_SECONDS:
            self._last_line = time.monotonic()
            click.echo(self._line(done, total, words), err=True)

    def _line(self, done: int, total: int | None, words: str) -> str:
        seconds = max(0.001, time.monotonic() - self._started)
        pace = (done - (self._first or 0)) / seconds
        parts = [f"{self._what}: {done}" if total is None else f"{self._what}: {done} of {total}"]
        parts[0] += f" {self._unit}, {pace:.0f} per second"
        if total is not None and pace > 0:
            parts.append(f"{_span(max(0, total - done) / pace)} left")
        if self._is_live and total:
            full = round(_BAR * min(1, done / total))
            parts.insert(0, "█" * full + "·" * (_BAR - full))
        return ", ".join([*parts, words]).replace("·, ", "· ").replace("█, ", "█ ")

    def _show_rich(self, done: int, total: int | None, words: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        if self._rich is None:
            columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[words]}"))
            self._rich = RichProgress(TextColumn(self._what), *columns, console=Console(stderr=True))
            self._rich.start()
            self._task = self._rich.add_task(self._what, completed=done, words=words)
        self._rich.update(self._task, completed=done, total=total, words=words)


def _span(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {whole % 60:02d} s" if minutes else f"{whole} s"
