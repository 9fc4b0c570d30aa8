"""The tables in a SQLite file against their declaration: what is there, and the steps that make it so."""

from collections.abc import Sequence
from dataclasses import replace

from holdfast.adapters.sqlite import schema
from holdfast.adapters.sqlite.driver import Connection
from holdfast.kernel.errors import TableProblem
from holdfast.ports.store import Table
from holdfast.ports.store.admin import AddIndex, CreateTable, EnableTtl, FoundTable, Step, differences
from holdfast.ports.store.schema import Billing


def found_table(connection: Connection, table: Table) -> FoundTable | None:
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


def steps_towards(connection: Connection, tables: Sequence[Table]) -> list[Step]:
    """What is to be done until the tables are as declared. TableProblem: it takes a person."""
    steps = []
    names = [table.name for table in tables]
    for table in tables:
        if names.count(table.name) > 1:
            raise TableProblem(f"table {table.name} is declared twice; name another one in {table.setting}")
        for difference in differences(table, _without_the_mendable(connection, table), Billing.ON_DEMAND):
            if difference.step is None:
                raise TableProblem(
                    f"table {table.name}, {difference.attribute}: declared {difference.declared}, "
                    f"found {difference.found}; {difference.remedy}"
                )
            steps.append(difference.step)
    return steps


def carry_out(connection: Connection, step: Step) -> None:
    """One step in one transaction; one that was carried out before changes nothing."""
    with schema.transaction(connection):
        there = schema.layout_of(connection, step.table.name)
        match step:
            case CreateTable(table) if there is None:
                schema.create_table(connection, table)
            case AddIndex(table, index) if there is not None and index not in there.indexes:
                schema.add_index(connection, table.name, index)
            case EnableTtl(table) if there is not None and there.ttl != table.ttl:
                schema.set_ttl(connection, table.name, table.ttl)


def _without_the_mendable(connection: Connection, table: Table) -> FoundTable | None:
    """The table as found, less what SQLite, unlike DynamoDB, can replace in place: its indexes and its TTL.

    An index that is no longer declared stays, and is kept up: an older Holdfast may come back and read it.
    """
    there = found_table(connection, table)
    if there is None:
        return None
    kept = tuple(index for index in there.indexes if index in table.indexes)
    return replace(there, indexes=kept, ttl=there.ttl if there.ttl == table.ttl else None)
