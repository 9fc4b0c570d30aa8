"""The items of a SQLite file, read and written within one transaction."""

from collections.abc import Iterable
from typing import Final

from holdfast.adapters.embedded import check_item_size
from holdfast.adapters.sqlite import items
from holdfast.adapters.sqlite.driver import Connection, Driver
from holdfast.adapters.sqlite.queries import select_item
from holdfast.adapters.sqlite.schema import (
    attributes_with_columns,
    column_of,
    expiry,
    key_value,
    layout_of,
    quoted,
    table_names,
)
from holdfast.kernel.errors import TableProblem
from holdfast.ports.store import Item, Key, Table

_CONSTRAINT: Final = 19  # SQLite's result code: here, that there is such a key already
_Columns = tuple[str | int | None, ...]


class SqliteTransaction:
    """Implements `holdfast.adapters.embedded.Transaction`. Who uses it begins and commits."""

    def __init__(self, connection: Connection, driver: Driver) -> None:
        self._connection = connection
        self._driver = driver
        self._statements: Final = {name: _Statements(connection, name) for name in table_names(connection)}
        self.writes_begun = 0

    def read(self, table: Table, key: Key) -> Item | None:
        rows = self._connection.execute(select_item(table.name), (key.partition, key.sort or "")).fetchall()
        return items.decoded(rows[0][0], table.name, key) if rows else None

    def replace(self, table: Table, key: Key, old: Item | None, new: Item) -> None:
        statements = self._of(table)
        text = items.encoded(new)
        check_item_size(new, table, key, text)
        self.writes_begun += 1
        if old is not None and statements.leave_columns(old, new):
            # The usual update: no index is touched.
            self._connection.execute(statements.update_item, (text, key.partition, key.sort or ""))
        else:
            sql = statements.insert if old is None else statements.update
            self._connection.execute(sql, (text, *statements.columns(new), key.partition, key.sort or ""))

    def insert(self, table: Table, key: Key, new: Item) -> bool:
        """Put the item where none is; whether none was. Where one hardly ever is, that saves a read."""
        statements = self._of(table)
        text = items.encoded(new)
        check_item_size(new, table, key, text)
        self.writes_begun += 1
        try:
            self._connection.execute(statements.insert, (text, *statements.columns(new), key.partition, key.sort or ""))
        except self._driver.errors as error:
            if self._driver.code(error) != _CONSTRAINT:
                raise
            return False  # and the transaction goes on
        return True

    def remove(self, table: Table, key: Key) -> None:
        statements = self._of(table)
        self.writes_begun += 1
        self._connection.execute(statements.delete, (key.partition, key.sort or ""))

    def _of(self, table: Table) -> "_Statements":
        try:
            return self._statements[table.name]
        except KeyError:
            raise TableProblem(f"table {table.name} is not in the file; run: holdfast tables create") from None


class _Statements:
    """What is said to one table. Made from the table as it lies in the file, so that all its columns are kept up."""

    def __init__(self, connection: Connection, name: str) -> None:
        layout = layout_of(connection, name)
        self._ttl = layout.ttl if layout else None
        self._attributes = attributes_with_columns(connection, name)
        self._watched = (*self._attributes, self._ttl) if self._ttl else self._attributes
        columns = ["item", "expires", *map(column_of, self._attributes)]
        table = quoted(name)
        marks = ", ".join("?" * (len(columns) + 2))
        where = "WHERE pk = ? AND sk = ?"
        self.insert = f"INSERT INTO {table} ({', '.join(columns)}, pk, sk) VALUES ({marks})"  # noqa: S608 -- quoted
        self.update = f"UPDATE {table} SET {_assigned(columns)} {where}"  # noqa: S608 -- the names are quoted
        self.update_item = f"UPDATE {table} SET item = ? {where}"  # noqa: S608 -- the name is quoted
        self.delete = f"DELETE FROM {table} {where}"  # noqa: S608 -- the name is quoted

    def columns(self, item: Item) -> _Columns:
        """What stands beside the item: its expiry, and its index keys."""
        expires = expiry(item.get(self._ttl)) if self._ttl else None
        return (expires, *[key_value(item.get(attribute)) for attribute in self._attributes])

    def leave_columns(self, old: Item, new: Item) -> bool:
        """Whether the change leaves all of that as it is. An update keeps the very values that it does not change."""
        for attribute in self._watched:
            before, after = old.get(attribute), new.get(attribute)
            if before is not after and (before != after or type(before) is not type(after)):
                return False
        return True


def _assigned(columns: Iterable[str]) -> str:
    return ", ".join(f"{column} = ?" for column in columns)
