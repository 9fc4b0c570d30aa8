"""Tables that operators refresh: read from a saved answer of AWS, and kept in a file of the data directory."""

import os
from pathlib import Path
from typing import Final

from holdfast.kernel.errors import BadRequest, NeedsOperator

_TEXT_BYTES_MOST: Final = 1 << 30  # AWS's full price list of a region has several hundred megabytes


def read_limited(path: Path, expected: str) -> str:
    try:
        if path.stat().st_size > _TEXT_BYTES_MOST:
            raise BadRequest(f"{path} is larger than {_TEXT_BYTES_MOST} bytes; expected {expected}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} cannot be read: {error}") from error


def replace_file(path: Path, text: str, what: str) -> None:
    """Atomically: a process that starts meanwhile reads the old file."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise NeedsOperator(f"{what} cannot be written to {path}: {error.strerror}; see to the directory") from error
