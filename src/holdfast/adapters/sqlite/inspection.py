"""Is the file ours, is it whole, do we know its layout?

A file that is refused is left as it was, and nothing new lies beside it but the lock. So this is found out before
SQLite opens the file in earnest: from its first hundred bytes, then through a connection that cannot change anything.
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

# A larger file is only read where it is used: looking through all of it would make every start slow.
LOOKED_THROUGH_BYTES_MOST: Final = 32 * 1024 * 1024

_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100


class Found(Enum):
    NOTHING = "no file, or an empty one"
    OURS = "a file of ours"


class OpenHere:
    """The files that this process has open.

    They are not looked at from outside of SQLite again: closing any descriptor of a file makes the kernel drop all
    locks that the process has on it, also those that SQLite relies on.
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


def found_at(path: Path, known_version: int) -> Found:
    """What lies there, by its kind and its first bytes; StoreRefused if it is not for us."""
    try:
        about = path.stat()
    except FileNotFoundError:
        return _nothing(path)
    except OSError as error:
        raise StoreRefused(f"{path}: cannot be opened: {error.strerror}") from error
    if not stat.S_ISREG(about.st_mode):
        kind = "a directory" if stat.S_ISDIR(about.st_mode) else "not a file"
        raise StoreRefused(f"{path} is {kind}; name a file, for example HOLDFAST_STORE=sqlite:{path}/holdfast.db")
    if about.st_nlink > 1:
        # Two names have two logs and two locks: two writers would each destroy what the other wrote.
        raise StoreRefused(f"{path} has {about.st_nlink} names (hard links); remove the others, or copy the file")
    if about.st_size == 0:
        return _nothing(path)
    if not open_here.holds(path):
        _check_header(path, known_version)
    return Found.OURS


def look_through(file: SqliteFile, known_version: int) -> None:
    """Refuse a file that is newer than its first bytes say, or damaged. The caller has the writer's lock."""
    if open_here.holds(file.path):
        return
    mode = Mode.READ if has_log(file.path) else Mode.IMMUTABLE
    with closing(file.opened(mode)) as connection:
        check_version(file.path, file.patiently(lambda: version_of(connection)), known_version)
        if file.path.stat().st_size <= LOOKED_THROUGH_BYTES_MOST:
            [(verdict,), *_] = file.rows(connection, "PRAGMA quick_check(1)")
            if verdict != "ok":
                raise _damaged(file.path, verdict)


def has_log(path: Path) -> bool:
    """Whether writes lie in the write-ahead log that are not in the file yet."""
    return _size_bytes(beside(path, "-wal")) > 0


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def check_version(path: Path, version: int, known_version: int) -> None:
    if version > known_version:
        raise StoreRefused(
            f"{path} was written by a newer Holdfast: it has layout {version}, this one knows up to {known_version}. "
            "Install that version, or name another file in HOLDFAST_STORE. The file was not changed"
        )


def _nothing(path: Path) -> Found:
    if not path.parent.is_dir():
        raise StoreRefused(f"{path}: there is no directory {path.parent}; make it, or name another file")
    for suffix in ("-wal", "-journal"):
        log = beside(path, suffix)
        if _size_bytes(log) > 0:
            # SQLite would take it for the new file's own log, and write old pages into it.
            raise StoreRefused(f"{log} holds writes of a file that is gone; put {path} back, or move {log} away")
    return Found.NOTHING


def _check_header(path: Path, known_version: int) -> None:
    # Asked first: who writes the file may be just about to close it, and its log would be gone by the end.
    may_be_unfinished = has_log(path)
    try:
        with path.open("rb") as opened:
            header = opened.read(_HEADER_BYTES)
    except OSError as error:
        raise StoreRefused(f"{path}: cannot be opened: {error.strerror}") from error
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise StoreRefused(f"{path} is not a SQLite file; name another one in HOLDFAST_STORE. It was not changed")
    application_id = int.from_bytes(header[68:72])
    if application_id != APPLICATION_ID:
        raise StoreRefused(
            f"{path} is a SQLite file of another program (application id {application_id:#x}, "
            f"ours is {APPLICATION_ID:#x}); name another one in HOLDFAST_STORE. It was not changed"
        )
    check_version(path, int.from_bytes(header[60:64]), known_version)
    # While the log is written back into the file, and if that was cut short, the file is shorter than it says.
    page_bytes, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    said_bytes = (65536 if page_bytes == 1 else page_bytes) * pages
    size_bytes = _size_bytes(path)
    if size_bytes < said_bytes and not may_be_unfinished:
        raise _damaged(path, f"cut off: {size_bytes} of {said_bytes} bytes are there")


def _damaged(path: Path, how: str) -> StoreRefused:
    return StoreRefused(
        f"{path} is damaged ({how}); put a copy from before back, or move it away to start afresh. It was not changed"
    )


def _size_bytes(path: Path) -> int:
    """0 where there is no file; another process may take it away at any moment."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _identity(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_dev, about.st_ino
