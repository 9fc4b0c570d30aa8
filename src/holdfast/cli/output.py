"""Tables for people, JSON for programs."""

import importlib.util
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

import click

from holdfast.kernel.text import one_line

_GAP = "  "
_LAST_LEAST = 24  # characters that the last column gets, however narrow the terminal


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Fits the terminal. Elsewhere a row is a line, so that `grep` finds all of it."""
    texts = [[one_line("" if cell is None else str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        width = None
    elif importlib.util.find_spec("rich"):
        _print_rich_table(columns, texts)
        return
    else:
        width = shutil.get_terminal_size().columns
    for line in plain_table(columns, texts, width):
        click.echo(line)


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
    """Aligned columns; the last one is wrapped where a width is given."""
    every = [list(columns), *rows]
    widths = [max(len(row[position]) for row in every) for position in range(len(columns) - 1)]
    indent = sum(widths) + len(_GAP) * len(widths)
    for row in every:
        start = "".join(cell.ljust(size) + _GAP for cell, size in zip(row, widths, strict=False))
        last = textwrap.wrap(row[-1], max(_LAST_LEAST, width - indent)) if width else [row[-1]]
        for position, part in enumerate(last or [""]):
            yield ((start if position == 0 else " " * indent) + part).rstrip()


def _print_rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for position, column in enumerate(columns):
        # The first column names the row, and stays whole.
        table.add_column(column, no_wrap=position == 0, overflow="fold")
    for row in rows:
        # As Text: a plain string would be searched for rich's markup, and these are other people's values.
        table.add_row(*map(Text, row))
    Console().print(table)
