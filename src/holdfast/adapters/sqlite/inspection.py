"""Is the file ours, is it undamaged, do we know its layout?

A refused file stays unchanged, and nothing is created next to it but the lock. So this is checked before SQLite opens
the file for writing: first its header of a hundred bytes, then through a read-only connection.
"""

import stat
from collections import Counter
from contextlib import closing
from enum import Enum
from pathlib import Path
from threading import Lock
from typing import Final

from holdfast.adapters.sqlite.driver import Mode
from holdfast.adapters.sqlite.file import SqliteFile
from holdfast.adapters.sqlite.schema import APPLICATION_ID, version_of
from holdfast.kernel.errors import StoreRefused

# Larger files are not checked in full: that would slow down every start.
CHECKED_BYTES_MOST: Final = 32 * 1024 * 1024

_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100


class FoundFile(Enum):
    NOTHING = "no file, or an empty one"
    OURS = "one of our files"


class OpenHere:
    """The files that this process has open.

    They must not be opened again outside of SQLite: closing any descriptor of a file makes the kernel drop all locks
    that the process has on it, including SQLite's.
    """

    def __init__(self) -> None:
        self._files: Counter[tuple[int, int]] = Counter()
        self._lock = Lock()

    def holds(self, path: Path) -> bool:
        with self._lock:
            return self._files[_identity(path)] > 0

    def add(self, path: Path) -> tuple[int, int]:
        with self._lock:
            identity = _identity(path)
            self._files[identity] += 1
            return identity

    def remove(self, identity: tuple[int, int]) -> None:
        with self._lock:
            self._files[identity] -= 1


open_here: Final = OpenHere()


def found_at(path: Path, known_version: int) -> FoundFile:
    """What is at this path, by its type and header; raises StoreRefused if it is not ours."""
    try:
        about = path.stat()
    except FileNotFoundError:
        return _nothing(path)
    except OSError as error:
        raise StoreRefused(f"{path}: cannot open: {error.strerror}") from error
    if not stat.S_ISREG(about.st_mode):
        kind = "a directory" if stat.S_ISDIR(about.st_mode) else "not a file"
        raise StoreRefused(f"{path} is {kind}; name a file, for example HOLDFAST_STORE=sqlite:{path}/holdfast.db")
    if about.st_nlink > 1:
        # Each name has its own log and lock: two writers would destroy each other's writes.
        raise StoreRefused(f"{path} has {about.st_nlink} names (hard links); remove the others, or copy the file")
    if about.st_size == 0:
        return _nothing(path)
    if not open_here.holds(path):
        _check_header(path, known_version)
    return FoundFile.OURS


def check_content(file: SqliteFile, known_version: int) -> None:
    """Refuse a file that is damaged, or newer than its header says. The caller holds the writer lock."""
    if open_here.holds(file.path):
        return
    mode = Mode.READ if has_log(file.path) else Mode.IMMUTABLE
    with closing(file.opened(mode)) as connection:
        check_version(file.path, file.retry_while_busy(lambda: version_of(connection)), known_version)
        if file.path.stat().st_size <= CHECKED_BYTES_MOST:
            [(verdict,), *_] = file.rows(connection, "PRAGMA quick_check(1)")
            if verdict != "ok":
                raise _damaged(file.path, verdict)


def has_log(path: Path) -> bool:
    """Whether the write-ahead log contains writes that are not in the file yet."""
    return _size_bytes(beside(path, "-wal")) > 0


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def check_version(path: Path, version: int, known_version: int) -> None:
    if version > known_version:
        raise StoreRefused(
            f"{path} was written by a newer Holdfast: it has layout {version}, this version knows up to "
            f"{known_version}. Install the newer version, or set HOLDFAST_STORE to another file. It was not changed"
        )


def _nothing(path: Path) -> FoundFile:
    if not path.parent.is_dir():
        raise StoreRefused(f"{path}: directory {path.parent} does not exist; create it, or choose another file")
    for suffix in ("-wal", "-journal"):
        log = beside(path, suffix)
        if _size_bytes(log) > 0:
            # SQLite would apply it to the new file as that file's log.
            raise StoreRefused(f"{log} is the log of a file that is gone; restore {path}, or move {log} away")
    return FoundFile.NOTHING


def _check_header(path: Path, known_version: int) -> None:
    # Ask first: a writer may be about to close the file, and its log would be gone by then.
    may_be_unfinished = has_log(path)
    try:
        with path.open("rb") as opened:
            header = opened.read(_HEADER_BYTES)
    except OSError as error:
        raise StoreRefused(f"{path}: cannot open: {error.strerror}") from error
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise StoreRefused(f"{path} is not a SQLite file; set HOLDFAST_STORE to another one. It was not changed")
    application_id = int.from_bytes(header[68:72])
    if application_id != APPLICATION_ID:
        raise StoreRefused(
            f"{path} is a SQLite file of another program (application id {application_id:#x}, "
            f"ours is {APPLICATION_ID:#x}); set HOLDFAST_STORE to another one. It was not changed"
        )
    check_version(path, int.from_bytes(header[60:64]), known_version)
    # During a checkpoint, or after an interrupted one, the file is shorter than its header says.
    page_bytes, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    said_bytes = (65536 if page_bytes == 1 else page_bytes) * pages
    size_bytes = _size_bytes(path)
    if size_bytes < said_bytes and not may_be_unfinished:
        raise _damaged(path, f"truncated to {size_bytes} of {said_bytes} bytes")


def _damaged(path: Path, how: str) -> StoreRefused:
    return StoreRefused(
        f"{path} is damaged ({how}); restore a backup, or move it away to start from scratch. It was not changed"
    )


def _size_bytes(path: Path) -> int:
    """0 if there is no file: another process may remove it at any moment."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _identity(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_dev, about.st_ino
