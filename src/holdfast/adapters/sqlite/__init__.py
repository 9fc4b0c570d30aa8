"""The store in a SQLite file: for a laptop, or a single host."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.adapters.sqlite.driver import ApswDriver, Driver, StandardDriver, best_driver
from holdfast.adapters.sqlite.file import SqliteFile, Tuning
from holdfast.adapters.sqlite.opening import ReadableFile, WritableFile
from holdfast.adapters.sqlite.rows import SqliteRows
from holdfast.adapters.sqlite.store import SqliteStore
from holdfast.adapters.sqlite.tables import SqliteTables, bring_up_to_date
from holdfast.ports.clock import Clock
from holdfast.ports.store import Meter, Table

__all__ = [
    "ApswDriver",
    "Driver",
    "SqliteRows",
    "SqliteStore",
    "SqliteTables",
    "StandardDriver",
    "Tuning",
    "best_driver",
    "sqlite_rows",
    "sqlite_store",
]


def sqlite_store(
    path: Path,
    clock: Clock,
    *,
    tables: Sequence[Table],
    writable: bool = True,
    meter: Meter | None = None,
    driver: Driver | None = None,
) -> SqliteStore:
    """The store in this file. If writable, creates the file, its tables and their indexes as needed."""
    return SqliteStore(sqlite_rows(path, clock, tables=tables, writable=writable, driver=driver), clock, meter, tables)


def sqlite_rows(
    path: Path,
    clock: Clock,
    *,
    tables: Sequence[Table],
    writable: bool = True,
    driver: Driver | None = None,
    tuning: Tuning | None = None,
) -> SqliteRows:
    """The rows of the store: for their counters, and for tests that tune SQLite."""
    file = SqliteFile(path, driver or best_driver(), clock, tuning or Tuning())
    if not writable:
        return SqliteRows(file, ReadableFile(file))
    held = WritableFile(file)
    try:
        bring_up_to_date(held, tables)
        held.let_others_write()
        return SqliteRows(file, held)
    except BaseException:
        held.close()
        raise
