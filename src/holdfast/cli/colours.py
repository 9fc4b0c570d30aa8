"""Colours, for whoever looks: on a terminal, unless NO_COLOR or the terminal itself forbids them. Never in a pipe.

A colour says nothing that a word beside it does not say.
"""

import os
from enum import StrEnum
from typing import IO, Final

_RESET: Final = "\x1b[0m"


class Style(StrEnum):
    """What a text is to whoever reads it. The value is the terminal's code for it."""

    PLAIN = ""
    TITLE = "1"
    FAINT = "2"
    BAD = "31"
    GOOD = "32"
    WARNING = "33"
    BUSY = "36"


_VERDICTS: Final = {"yes": Style.GOOD, "no": Style.PLAIN, "unknown": Style.WARNING}
_JOBS: Final = {
    "queued": Style.WARNING,
    "waiting": Style.WARNING,
    "scheduled": Style.WARNING,
    "action_required": Style.WARNING,
    "in_progress": Style.BUSY,
    "success": Style.GOOD,
    "failure": Style.BAD,
    "timed_out": Style.BAD,
    "startup_failure": Style.BAD,
    "cancelled": Style.FAINT,
    "neutral": Style.FAINT,
    "skipped": Style.FAINT,
    "stale": Style.FAINT,
}


def of_verdict(verdict: str) -> Style:
    return _VERDICTS.get(verdict, Style.PLAIN)


def of_job(status: str) -> Style:
    """The style of a status or a conclusion; what GitHub thinks of next is plain."""
    return _JOBS.get(status, Style.PLAIN)


def is_coloured(stream: IO[str]) -> bool:
    # https://no-color.org: set and not empty, whatever its value.
    forbidden = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not forbidden and stream.isatty()


def painted(text: str, style: Style) -> str:
    return f"\x1b[{style}m{text}{_RESET}" if style and text else text
