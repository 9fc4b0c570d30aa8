"""Two drivers for SQLite: apsw, which bundles a recent SQLite, and Python's own sqlite3.

Their connections have the same methods as far as we use them (`Connection`), so they are used without a wrapper. How
they are opened, and how their errors give the cause, differs; both differences are handled only here.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.kernel.errors import HoldfastError, StoreRefused, StoreUnavailable, TableProblem

if TYPE_CHECKING:
    import apsw

# Older versions can corrupt a write-ahead log when two connections write and checkpoint at once.
MANY_WRITERS_SINCE: Final = (3, 51, 3)

_STATEMENTS_KEPT: Final = 256


class Mode(StrEnum):
    """How a file is opened. IMMUTABLE takes no locks and creates no files: there must be no writer."""

    CREATE = "mode=rwc"
    WRITE = "mode=rw"
    READ = "mode=ro"
    IMMUTABLE = "mode=ro&immutable=1"


class Cursor(Protocol):
    def execute(self, sql: str, parameters: Sequence[str | int | None] = ..., /) -> "Cursor": ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> None: ...


class Connection(Protocol):
    """Statements run outside of transactions until an explicit BEGIN."""

    def execute(self, sql: str, parameters: Sequence[str | int | None] = ..., /) -> Cursor: ...

    def cursor(self) -> Cursor: ...

    @property
    def in_transaction(self) -> bool: ...

    def close(self) -> None: ...


class Driver(Protocol):
    """A SQLite library. `errors` is what its calls raise."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> tuple[int, ...]: ...

    @property
    def errors(self) -> type[Exception]: ...

    def open(self, path: Path, mode: Mode) -> Connection: ...

    def code(self, error: Exception) -> int:
        """SQLite's primary result code; 0 if the error is not from SQLite."""
        ...


@dataclass(frozen=True)
class StandardDriver:
    """Python's own sqlite3, with the SQLite that Python is linked to."""

    name: str = "sqlite3"
    version: tuple[int, ...] = sqlite3.sqlite_version_info
    errors: type[Exception] = sqlite3.Error

    def open(self, path: Path, mode: Mode) -> Connection:
        return sqlite3.connect(
            _uri(path, mode),
            uri=True,
            isolation_level=None,
            timeout=0,
            check_same_thread=False,
            cached_statements=_STATEMENTS_KEPT,
        )

    def code(self, error: Exception) -> int:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF


class ApswDriver:
    """apsw. Tests set a VFS to observe or fail disk writes."""

    name = "apsw"

    def __init__(self, vfs: str | None = None) -> None:
        import apsw

        self.version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
        self.errors: type[Exception] = apsw.Error
        self._apsw = apsw
        self._vfs = vfs

    def open(self, path: Path, mode: Mode) -> Connection:
        flags = self._apsw.SQLITE_OPEN_READWRITE | self._apsw.SQLITE_OPEN_CREATE | self._apsw.SQLITE_OPEN_URI
        connection: apsw.Connection = self._apsw.Connection(
            _uri(path, mode), flags=flags, vfs=self._vfs, statementcachesize=_STATEMENTS_KEPT
        )
        return connection

    def code(self, error: Exception) -> int:
        return getattr(error, "result", 0) & 0xFF


def best_driver() -> Driver:
    """apsw if it is installed, otherwise Python's own."""
    try:
        return ApswDriver()
    except ImportError:
        return StandardDriver()


def version_text(driver: Driver) -> str:
    return ".".join(map(str, driver.version))


# SQLite's primary result codes, as far as they are distinguished here.
_ERROR, _PERM, _BUSY, _LOCKED, _NOMEM, _READONLY, _IOERR = 1, 3, 5, 6, 7, 8, 10
_CORRUPT, _FULL, _CANTOPEN, _PROTOCOL, _AUTH, _NOTADB = 11, 13, 14, 15, 23, 26


def is_busy(driver: Driver, error: Exception) -> bool:
    """Whether another connection was in the way, so that the same call may soon succeed."""
    return driver.code(error) in (_BUSY, _LOCKED, _PROTOCOL)


def translated(driver: Driver, error: Exception, path: Path) -> Exception:
    """SQLite's error as one of ours. Programming errors are returned unchanged."""
    code = driver.code(error)
    if code in _MEANINGS:
        kind, text = _MEANINGS[code]
        return kind(f"{path}: {text} ({error})")
    if code == _ERROR and "no such" in str(error):
        return TableProblem(f"{path}: {error}; run: holdfast tables create")
    return error


_DAMAGED = "the file is damaged; restore a backup, or move it away to start from scratch. It was not changed"
_NOT_OPENED = "cannot open the file or its directory; check that this user may read and write both"
_READ_ONLY = "cannot write the file; check that this user may write it and its directory"
_MEANINGS: Final[dict[int, tuple[type[HoldfastError], str]]] = {
    _BUSY: (StoreUnavailable, "locked by another process; nothing was written, try again"),
    _LOCKED: (StoreUnavailable, "locked by another connection; nothing was written, try again"),
    _PROTOCOL: (StoreUnavailable, "locked by other processes; nothing was written, try again"),
    _FULL: (StoreUnavailable, "no space left; nothing was written. Writes resume once there is space"),
    _IOERR: (StoreUnavailable, "disk I/O failed; a write may or may not have happened"),
    _NOMEM: (StoreUnavailable, "out of memory; nothing was written"),
    _CORRUPT: (StoreRefused, _DAMAGED),
    _NOTADB: (StoreRefused, _DAMAGED),
    _CANTOPEN: (StoreRefused, _NOT_OPENED),
    _PERM: (StoreRefused, _NOT_OPENED),
    _AUTH: (StoreRefused, _NOT_OPENED),
    _READONLY: (StoreRefused, _READ_ONLY),
}


def _uri(path: Path, mode: Mode) -> str:
    return f"{path.absolute().as_uri()}?{mode.value}"
