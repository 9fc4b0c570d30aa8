"""`holdfast tables` for a SQLite file."""

from contextlib import closing
from pathlib import Path

from holdfast.adapters.sqlite.driver import Driver, Mode, best_driver
from holdfast.adapters.sqlite.file import SqliteFile, Tuning
from holdfast.adapters.sqlite.inspection import Found, found_at
from holdfast.adapters.sqlite.opening import ReadableFile, WritableFile
from holdfast.adapters.sqlite.schema import MIGRATIONS
from holdfast.adapters.sqlite.tables import found_table
from holdfast.ports.clock import Clock
from holdfast.ports.store import Table
from holdfast.ports.store.admin import FoundTable, Step


class SqliteTables:
    """Implements `holdfast.ports.store.admin.TableAdmin`.

    The file is opened for each call: `check` reads beside whoever writes it, and leaves no file where there was none.
    """

    def __init__(self, path: Path, clock: Clock, driver: Driver | None = None) -> None:
        self._file = SqliteFile(path, driver or best_driver(), clock, Tuning())

    def find(self, table: Table) -> FoundTable | None:
        if found_at(self._file.path, len(MIGRATIONS)) is Found.NOTHING:
            return None
        with closing(ReadableFile(self._file)), closing(self._file.opened(Mode.READ)) as connection:
            return self._file.patiently(lambda: found_table(connection, table))

    def carry_out(self, step: Step) -> None:
        with closing(WritableFile(self._file)) as held:
            held.carry_out(step)
