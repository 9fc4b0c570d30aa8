"""Opening a file: for writing, under the writer's lock and with our tables in it, or for reading.

A new file is made under another name and then renamed. So whatever is found under its own name is a whole file, and
one that was killed while it was made is no file yet.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from threading import RLock
from typing import Final

from holdfast.adapters.sqlite.driver import Mode
from holdfast.adapters.sqlite.file import SqliteFile
from holdfast.adapters.sqlite.inspection import (
    Found,
    beside,
    check_version,
    found_at,
    has_log,
    look_through,
    open_here,
)
from holdfast.adapters.sqlite.lock import WriterLock
from holdfast.adapters.sqlite.schema import MIGRATIONS, Migration, migrate, version_of
from holdfast.adapters.sqlite.tables import carry_out, steps_towards
from holdfast.kernel.errors import StoreRefused
from holdfast.ports.store import Table
from holdfast.ports.store.admin import Step

# Between looking at a file and being counted as having it open, nobody else of this process may do the same.
_one_at_a_time: Final = RLock()


class WritableFile:
    """A file that this process may write, from construction until `close`."""

    def __init__(self, file: SqliteFile, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.file = file
        known_version = len(migrations)
        with _one_at_a_time, ExitStack() as undo:
            # Looked at before it is locked as well: beside what is not ours, we leave not even a lock.
            found_at(file.path, known_version)
            self._lock = _locked(file)
            undo.callback(self._lock.release)
            if found_at(file.path, known_version) is Found.NOTHING:
                self._only_alone("make it")
                _make(file, migrations)
            else:
                look_through(file, known_version)
            identity = open_here.add(file.path)
            undo.callback(open_here.remove, identity)
            self.connection = file.opened_for_writing()
            undo.callback(self.connection.close)
            if file.patiently(lambda: version_of(self.connection)) < known_version:
                self._only_alone("bring its layout up to date")
                file.patiently(lambda: migrate(self.connection, migrations))
            self._undo = undo.pop_all()

    def bring_up_to_date(self, tables: Sequence[Table]) -> None:
        """Carry out whatever it takes until the tables are as declared."""
        for step in self.file.patiently(lambda: steps_towards(self.connection, tables)):
            self.carry_out(step)

    def carry_out(self, step: Step) -> None:
        self._only_alone(str(step))
        self.file.patiently(lambda: carry_out(self.connection, step))

    def let_others_write(self) -> None:
        """From here on the tables stay as they are."""
        self._lock.share()

    def close(self) -> None:
        self._undo.close()

    def _only_alone(self, purpose: str) -> None:
        if not self._lock.is_exclusive:
            raise self._lock.refusal(purpose)


class ReadableFile:
    """A file that this process reads, while others may write it."""

    def __init__(self, file: SqliteFile, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        known_version = len(migrations)
        with _one_at_a_time:
            if found_at(file.path, known_version) is Found.NOTHING:
                raise StoreRefused(f"{file.path} is not there yet; who opens it for writing makes it: holdfast run")
            self._identity = open_here.add(file.path)
        try:
            # The log may hold a newer layout than the file itself does.
            if has_log(file.path):
                with closing(file.opened(Mode.READ)) as connection:
                    check_version(file.path, file.patiently(lambda: version_of(connection)), known_version)
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
            f"{error.filename}: cannot be locked: {error.strerror}; see that it can be written"
        ) from error


def _make(file: SqliteFile, migrations: Sequence[Migration]) -> None:
    draft = beside(file.path, ".new")
    for leftover in (draft, *(beside(draft, suffix) for suffix in ("-journal", "-wal", "-shm"))):
        leftover.unlink(missing_ok=True)
    # Before SQLite makes it: what is in it is nobody else's business. What SQLite puts beside it follows suit.
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(file.opened(Mode.CREATE, draft)) as connection:
        file.patiently(lambda: migrate(connection, migrations))
        file.use_log(connection)
    draft.replace(file.path)
    # The new name is on the disk before anything is acknowledged.
    directory = os.open(file.path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
