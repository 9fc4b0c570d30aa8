"""Compares existing tables with their declarations, and decides what to do about differences.

Adapters only report what they find, and carry out single steps.
"""

from dataclasses import dataclass
from typing import Protocol

from holdfast.ports.store.schema import Billing, Index, Table
from holdfast.ports.store.tables import projection_of


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table as it exists. None where a backend has no such feature (SQLite has no billing)."""

    name: str
    key_attributes: tuple[str, ...]
    indexes: tuple[Index, ...]
    ttl: str | None
    stream: bool | None
    point_in_time_recovery: bool | None
    billing: Billing | None
    status: str = "ACTIVE"


@dataclass(frozen=True, slots=True)
class CreateTable:
    table: Table

    def __str__(self) -> str:
        return f"create table {self.table.name}"


@dataclass(frozen=True, slots=True)
class AddIndex:
    table: Table
    index: Index

    def __str__(self) -> str:
        return f"add index {self.index.name} to table {self.table.name}"


@dataclass(frozen=True, slots=True)
class RebuildIndex:
    """Delete an index that differs from its declaration, and create it as declared. Queries of it fail until then."""

    table: Table
    index: Index

    def __str__(self) -> str:
        return f"rebuild index {self.index.name} of table {self.table.name}"


@dataclass(frozen=True, slots=True)
class EnableTtl:
    table: Table

    def __str__(self) -> str:
        return f"enable TTL of table {self.table.name} by {self.table.ttl}"


Step = CreateTable | AddIndex | RebuildIndex | EnableTtl


@dataclass(frozen=True, slots=True)
class TableDifference:
    """One attribute that is not as declared. `step` fixes it; without one, `remedy` is for a person.

    `rebuild` would fix it as well, but takes an index away for a while: only if a person asks for it.
    """

    table: str
    attribute: str
    declared: str
    found: str
    remedy: str
    step: Step | None = None
    rebuild: RebuildIndex | None = None


class TableAdmin(Protocol):
    def find(self, table: Table) -> FoundTable | None:
        """The table as it exists, or None."""
        ...

    def carry_out(self, step: Step) -> None:
        """Carry it out, and wait until it is done. Repeating a completed step is not an error."""
        ...


def differences(table: Table, found: FoundTable | None, billing: Billing) -> list[TableDifference]:
    """All differences between the existing table and its declaration."""
    if found is None:
        return [TableDifference(table.name, "table", "present", "absent", _RUN_CREATE, CreateTable(table))]
    by_hand = "cannot be changed in place: move the items to a new table"
    if found.billing is not None:  # DynamoDB, where tables have the names that settings give them
        by_hand += f", or set {table.setting} to another name"
    noted: list[TableDifference] = []

    def compare(attribute: str, declared: object, there: object, remedy: str, step: Step | None = None) -> None:
        if there is not None and declared != there:
            noted.append(TableDifference(table.name, attribute, _words(declared), _words(there), remedy, step))

    compare("status", "ACTIVE", found.status, "wait until the table is active, then check again")
    compare("keys", table.key_attributes, found.key_attributes, by_hand)
    noted += _index_differences(table, found)
    if found.ttl != table.ttl:
        noted.append(_ttl_difference(table, found))
    compare("stream", table.stream, found.stream, _switch("the stream", table.stream))
    compare(
        "point-in-time recovery",
        table.point_in_time_recovery,
        found.point_in_time_recovery,
        _switch("point-in-time recovery", table.point_in_time_recovery),
    )
    compare(
        "billing", billing, found.billing, f"change the table's billing mode, or set DYNAMODB_BILLING={found.billing}"
    )
    return noted


_RUN_CREATE = "run: holdfast tables create"


def _index_differences(table: Table, found: FoundTable) -> list[TableDifference]:
    there = {index.name: index for index in found.indexes}
    noted = []
    for index in table.indexes:
        have = there.pop(index.name, None)
        if have is None:
            step = AddIndex(table, index)
            noted.append(TableDifference(table.name, f"index {index.name}", "present", "absent", _RUN_CREATE, step))
            continue
        for attribute, declared, actual in (
            ("keys", index.key_attributes, have.key_attributes),
            ("projection", index.projection, have.projection),
            ("included", tuple(sorted(index.included)), tuple(sorted(have.included))),
        ):
            if declared != actual:
                what, rebuild = f"index {index.name}: {attribute}", RebuildIndex(table, index)
                noted.append(
                    TableDifference(table.name, what, _words(declared), _words(actual), _remedy(have), rebuild=rebuild)
                )
    for name in there:
        remedy = "delete it if nothing else reads it: it makes each write more expensive"
        noted.append(TableDifference(table.name, f"index {name}", "absent", "present", remedy))
    return noted


def _remedy(have: Index) -> str:
    remedy = f"delete the index {have.name} and create it again; run: holdfast tables rebuild-index {have.name}"
    projection = projection_of(have)
    return remedy if projection is None else f"{remedy}; or set JOBS_INDEX_PROJECTION={projection}"


def _ttl_difference(table: Table, found: FoundTable) -> TableDifference:
    declared, there = table.ttl or "none", found.ttl or "none"
    if found.ttl is None:
        return TableDifference(table.name, "ttl", declared, there, _RUN_CREATE, EnableTtl(table))
    remedy = (
        f"disable TTL for {there} (DynamoDB may then require waiting up to an hour), then run: holdfast tables create"
    )
    return TableDifference(table.name, "ttl", declared, there, remedy)


def _switch(what: str, wanted: object) -> str:
    return f"{'enable' if wanted else 'disable'} {what} for this table"


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
