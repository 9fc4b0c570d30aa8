"""Tables for people, JSON for programs."""

import json
import shutil
import sys
from collections.abc import Sequence

import click

from holdfast.cli.terminal.colours import Style, is_coloured, painted
from holdfast.cli.terminal.layout import Cell, Paint, plain, table_lines, wrapped
from holdfast.kernel.text import one_line


def print_json(value: object) -> None:
    """A typed answer, or plain values."""
    from holdfast.views.plain_json import to_json

    click.echo(json.dumps(to_json(value), indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Fits the terminal. Without one, each row is one line, so that `grep` finds all of it."""
    for line in table_lines(columns, [safe_row(row) for row in rows], terminal_width(), stdout_paint()):
        click.echo(line)


def print_words(text: str, style: Style = Style.PLAIN, *, indent: int = 0) -> None:
    """One line, wrapped if the terminal is narrower."""
    for line in words_lines(text, terminal_width(), style, stdout_paint(), indent=indent):
        click.echo(line)


def words_lines(
    text: str, width: int | None, style: Style = Style.PLAIN, paint: Paint = plain, *, indent: int = 0
) -> list[str]:
    """Continuation lines are indented by two more columns."""
    line = one_line(text)
    if width is None:
        return [" " * indent + paint(line, style)]
    first, *rest = wrapped(line, max(width - indent - 2, 1))
    return [" " * indent + paint(first, style), *(" " * (indent + 2) + paint(part, style) for part in rest)]


def terminal_width() -> int | None:
    """None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def stdout_paint() -> Paint:
    return painted if is_coloured(sys.stdout) else plain


def safe_row(row: Sequence[object]) -> list[Cell]:
    return [Cell(_safe(cell.text), cell.style) if isinstance(cell, Cell) else Cell(_safe(cell)) for cell in row]


def _safe(value: object) -> str:
    return one_line("" if value is None else str(value))
