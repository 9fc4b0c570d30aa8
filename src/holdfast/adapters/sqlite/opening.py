"""Opening a file: for writing, under the writer lock, or for reading.

A new file is created under a temporary name and then renamed, so a file under its own name is always complete.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from threading import RLock
from typing import Final

from holdfast.adapters.sqlite.driver import Mode
from holdfast.adapters.sqlite.file import SqliteFile
from holdfast.adapters.sqlite.inspection import (
    FoundFile,
    beside,
    check_content,
    check_version,
    found_at,
    has_log,
    open_here,
)
from holdfast.adapters.sqlite.lock import WriterLock
from holdfast.adapters.sqlite.schema import MIGRATIONS, Migration, migrate, version_of
from holdfast.kernel.errors import StoreRefused

# Held from checking a file until it is registered in `open_here`, so that two threads do not interleave.
_opening: Final = RLock()


class WritableFile:
    """A file that this process may write, until `close`."""

    def __init__(self, file: SqliteFile, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.file = file
        known_version = len(migrations)
        with _opening, ExitStack() as undo:
            # Check before locking, too: next to a foreign file, do not even create a lock file.
            found_at(file.path, known_version)
            self._lock = _locked(file)
            undo.callback(self._lock.release)
            if found_at(file.path, known_version) is FoundFile.NOTHING:
                self.require_exclusive("create it")
                _create(file, migrations)
            else:
                check_content(file, known_version)
            identity = open_here.add(file.path)
            undo.callback(open_here.remove, identity)
            self.connection = file.opened_for_writing()
            undo.callback(self.connection.close)
            if file.retry_while_busy(lambda: version_of(self.connection)) < known_version:
                self.require_exclusive("migrate its layout")
                file.retry_while_busy(lambda: migrate(self.connection, migrations))
            self._undo = undo.pop_all()

    def require_exclusive(self, purpose: str) -> None:
        """Raise StoreRefused if another process may write the file."""
        if not self._lock.is_exclusive:
            raise self._lock.refusal(purpose)

    def let_others_write(self) -> None:
        """Share the lock. From here on, the tables must not be changed."""
        self._lock.share()

    def close(self) -> None:
        self._undo.close()


class ReadableFile:
    """A file that this process reads while others may write it."""

    def __init__(self, file: SqliteFile, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        known_version = len(migrations)
        with _opening:
            if found_at(file.path, known_version) is FoundFile.NOTHING:
                raise StoreRefused(f"{file.path} does not exist yet; to create it, run: holdfast run")
            self._identity = open_here.add(file.path)
        try:
            # The log may contain a newer layout than the file itself.
            if has_log(file.path):
                with closing(file.opened(Mode.READ)) as connection:
                    check_version(file.path, file.retry_while_busy(lambda: version_of(connection)), known_version)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        open_here.remove(self._identity)


def _locked(file: SqliteFile) -> WriterLock:
    try:
        return WriterLock(file.path, file.driver, file.clock)
    except OSError as error:
        raise StoreRefused(
            f"{error.filename}: cannot be locked: {error.strerror}; check that it is writable"
        ) from error


def _create(file: SqliteFile, migrations: Sequence[Migration]) -> None:
    draft = beside(file.path, ".new")
    for leftover in (draft, *(beside(draft, suffix) for suffix in ("-journal", "-wal", "-shm"))):
        leftover.unlink(missing_ok=True)
    # Create it before SQLite does, readable by its owner only. SQLite copies the mode to the files next to it.
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(file.opened(Mode.CREATE, draft)) as connection:
        file.retry_while_busy(lambda: migrate(connection, migrations))
        file.use_log(connection)
    draft.replace(file.path)
    # The new name must be on disk before any write is acknowledged.
    directory = os.open(file.path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
