"""Colours, on a terminal only, unless NO_COLOR or the terminal disables them.

A colour never carries information that the text does not.
"""

import os
from enum import StrEnum
from typing import IO, Final

_RESET: Final = "\x1b[0m"


class Style(StrEnum):
    """The role of a text. The value is the terminal's code for it."""

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


def verdict_style(verdict: str) -> Style:
    return _VERDICTS.get(verdict, Style.PLAIN)


def job_style(status: str) -> Style:
    """The style of a status or a conclusion; unknown words are plain."""
    return _JOBS.get(status, Style.PLAIN)


def is_coloured(stream: IO[str]) -> bool:
    # https://no-color.org: any value but an empty one.
    disabled = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not disabled and stream.isatty()


def painted(text: str, style: Style) -> str:
    return f"\x1b[{style}m{text}{_RESET}" if style and text else text
