"""Logging: one record, one line, to stderr. As text for people, or as JSON lines for machines.

Whatever a stranger managed to get into a message (a header, a file name) cannot begin a line of its own.
"""

import json
import logging
import sys
from typing import Final

from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import Settings
from holdfast.kernel.text import one_line

# They tell at `info` what only their authors want to know.
_TALKATIVE: Final = ("boto3", "botocore", "urllib3", "uvicorn")


def start_logging(settings: Settings) -> None:
    """Log as the settings say, instead of however it was before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    level = getattr(logging, settings.log_level.upper())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(level if level == logging.DEBUG else max(level, logging.WARNING))


class TextLines(logging.Formatter):
    """``2026-01-15T10:00:01.123Z INFO holdfast.server: message``; a traceback follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_moment(record)} {record.levelname} {record.name}: {one_line(record.getMessage())}"
        return "\n".join([line, *(f"    {one_line(traced)}" for traced in _traceback(self, record).splitlines())])


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if traceback := _traceback(self, record):
            entry["traceback"] = traceback
        return json.dumps(entry)


def _moment(record: logging.LogRecord) -> str:
    return Instant(int(record.created * 1000)).iso()


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
