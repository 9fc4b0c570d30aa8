"""What every process needs first: logging, and its version.

A log record is one line on stderr, as text or as JSON. Foreign text in a message (a header, a file name) cannot start a
new line.
"""

import json
import logging
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import Settings, mistyped
from holdfast.kernel.text import one_line

_OURS: Final = "holdfast"
_log = logging.getLogger(__name__)
# Libraries that log too much at `info`.
_VERBOSE_LIBRARIES: Final = ("boto3", "botocore", "urllib3", "uvicorn")


def installed_version() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "0 (not installed)"  # run from a source tree


def start_logging(settings: Settings) -> None:
    """Configure logging from the settings, replacing any earlier configuration."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    level = getattr(logging, settings.log_level.upper())
    # Libraries never log at `debug`: botocore would print whole responses, with decrypted secrets in them.
    logging.basicConfig(handlers=[handler], level=max(level, logging.INFO), force=True)
    logging.getLogger(_OURS).setLevel(level)
    for name in _VERBOSE_LIBRARIES:
        logging.getLogger(name).setLevel(max(level, logging.INFO if level == logging.DEBUG else logging.WARNING))


def warn_of_mistyped(environment: Mapping[str, str]) -> None:
    """Without the values: one may be a secret."""
    for name, close in mistyped(environment):
        _log.warning("environment variable %s is not a setting, and is ignored; did you mean %s?", name, close)


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
