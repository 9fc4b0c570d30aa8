"""Tables as lines that fit a width. Pure: does not read the terminal or print.

Every cell is one line of text, already escaped. If the last column, which holds prose, would become too narrow, it is
placed below its row instead.
"""

import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.cli.terminal.colours import Style

GAP: Final = "  "
_PROSE_LEAST: Final = 28  # a narrower last column is placed below its row
_COLUMN_LEAST: Final = 10
_BELOW: Final = "    "

Paint = Callable[[str, Style], str]


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    style: Style = Style.PLAIN


Row = Sequence[Cell]


def plain(text: str, _style: Style) -> str:
    return text


def shown_width(text: str) -> int:
    """How many terminal columns the text occupies."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, broken between words where possible."""
    if shown_width(text) <= width:
        return [text]
    if text.isascii():
        return textwrap.wrap(text, width, break_on_hyphens=False) or [""]
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and shown_width(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
            continue
        if lines[-1]:
            lines.append("")
        for character in word:
            if shown_width(lines[-1] + character) > width:
                lines.append("")
            lines[-1] += character
    return lines


def table_lines(columns: Sequence[str], rows: Sequence[Row], width: int | None, paint: Paint = plain) -> Iterator[str]:
    """A header and the rows: one line each, or wrapped to `width` if there is one."""
    header = [Cell(column, Style.TITLE) for column in columns]
    every = [header, *rows]
    natural = [max(shown_width(row[position].text) for row in every) for position in range(len(columns))]
    if width is None:
        for row in every:
            yield from _side_by_side(row, [*natural[:-1], 0], paint, wrap=False)
        return
    before = sum(natural[:-1]) + len(GAP) * (len(natural) - 1)
    if len(columns) > 2 and before + min(natural[-1], _PROSE_LEAST) > width:
        sizes = _fitted(natural[:-1], width)
        for row in every:
            yield from _side_by_side(row[:-1], sizes, paint)
            yield from _below(row[-1], width, paint)
        return
    sizes = _fitted(natural, width)
    for row in every:
        yield from _side_by_side(row, sizes, paint)


def _fitted(natural: Sequence[int], width: int) -> list[int]:
    """Column sizes that fit: the widest shrink first, and the first column, which names the row, shrinks last."""
    sizes = list(natural)
    room = max(width - len(GAP) * (len(sizes) - 1), len(sizes))
    for may_shrink, least in ((range(1, len(sizes)), _COLUMN_LEAST), (range(len(sizes)), 1)):
        while sum(sizes) > room:
            widest = max(may_shrink, key=lambda position: sizes[position], default=0)
            if sizes[widest] <= least:
                break
            sizes[widest] -= 1
    return sizes


def _side_by_side(row: Row, sizes: Sequence[int], paint: Paint, *, wrap: bool = True) -> Iterator[str]:
    cells = [wrapped(cell.text, max(size, 1)) if wrap else [cell.text] for cell, size in zip(row, sizes, strict=True)]
    for number in range(max(map(len, cells), default=0)):
        line, missing = "", 0
        for cell, parts, size in zip(row, cells, sizes, strict=True):
            part = parts[number] if number < len(parts) else ""
            if part:
                line += " " * missing + paint(part, cell.style)
                missing = 0
            missing += max(size - shown_width(part), 0) + len(GAP)
        yield line


def _below(cell: Cell, width: int, paint: Paint) -> Iterator[str]:
    if cell.text:
        for part in wrapped(cell.text, max(width - len(_BELOW), 1)):
            yield _BELOW + paint(part, cell.style)
