"""The tables in a SQLite file: compared with their declarations, created and changed."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.sqlite import schema
from holdfast.adapters.sqlite.driver import Connection, Driver, Mode, best_driver
from holdfast.adapters.sqlite.file import SqliteFile, Tuning
from holdfast.adapters.sqlite.inspection import FoundFile, found_at
from holdfast.adapters.sqlite.opening import ReadableFile, WritableFile
from holdfast.kernel.errors import TableProblem
from holdfast.ports.clock import Clock
from holdfast.ports.store import Table
from holdfast.ports.store.admin import AddIndex, CreateTable, EnableTtl, FoundTable, RebuildIndex, Step, differences
from holdfast.ports.store.schema import Billing


class SqliteTables:
    """Implements `holdfast.ports.store.admin.TableAdmin`.

    The file is opened for each call: `find` works while another process writes it, and never creates a file.
    """

    def __init__(self, path: Path, clock: Clock, driver: Driver | None = None) -> None:
        self._file = SqliteFile(path, driver or best_driver(), clock, Tuning())

    def find(self, table: Table) -> FoundTable | None:
        if found_at(self._file.path, len(schema.MIGRATIONS)) is FoundFile.NOTHING:
            return None
        with closing(ReadableFile(self._file)), closing(self._file.opened(Mode.READ)) as connection:
            return self._file.retry_while_busy(lambda: _found_table(connection, table))

    def carry_out(self, step: Step) -> None:
        with closing(WritableFile(self._file)) as held:
            _carry_out(held, step)


def bring_up_to_date(held: WritableFile, tables: Sequence[Table]) -> None:
    """Create and change tables and indexes until they are as declared."""
    for step in held.file.retry_while_busy(lambda: _missing_steps(held.connection, tables)):
        _carry_out(held, step)


def _missing_steps(connection: Connection, tables: Sequence[Table]) -> list[Step]:
    """The steps until the tables are as declared. Raises TableProblem if that needs a person."""
    steps = []
    names = [table.name for table in tables]
    for table in tables:
        if names.count(table.name) > 1:
            raise TableProblem(f"table {table.name} is declared twice; set {table.setting} to another name")
        for difference in differences(table, _without_replaceable(connection, table), Billing.ON_DEMAND):
            if difference.step is None:
                raise TableProblem(
                    f"table {table.name}, {difference.attribute}: declared {difference.declared}, "
                    f"found {difference.found}; {difference.remedy}"
                )
            steps.append(difference.step)
    return steps


def _carry_out(held: WritableFile, step: Step) -> None:
    held.require_exclusive(str(step))
    held.file.retry_while_busy(lambda: _carry_out_once(held.connection, step))


def _carry_out_once(connection: Connection, step: Step) -> None:
    """One step in one transaction. A step that was carried out before changes nothing."""
    with schema.transaction(connection):
        there = schema.layout_of(connection, step.table.name)
        match step:
            case CreateTable(table) if there is None:
                schema.create_table(connection, table)
            case AddIndex(table, index) | RebuildIndex(table, index) if there and index not in there.indexes:
                schema.add_index(connection, table.name, index)
            case EnableTtl(table) if there is not None and there.ttl != table.ttl:
                schema.set_ttl(connection, table.name, table.ttl)


def _found_table(connection: Connection, table: Table) -> FoundTable | None:
    layout = schema.layout_of(connection, table.name)
    if layout is None:
        return None
    return FoundTable(
        name=table.name,
        key_attributes=(layout.partition,) if layout.sort is None else (layout.partition, layout.sort),
        indexes=layout.indexes,
        ttl=layout.ttl,
        stream=None,
        point_in_time_recovery=None,
        billing=None,
    )


def _without_replaceable(connection: Connection, table: Table) -> FoundTable | None:
    """The table as found, without what SQLite, unlike DynamoDB, can replace in place: its indexes and its TTL.

    An index that is no longer declared is kept and maintained: an older Holdfast may come back and read it.
    """
    there = _found_table(connection, table)
    if there is None:
        return None
    kept = tuple(index for index in there.indexes if index in table.indexes)
    return replace(there, indexes=kept, ttl=there.ttl if there.ttl == table.ttl else None)
