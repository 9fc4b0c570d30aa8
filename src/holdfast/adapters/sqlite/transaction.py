"""Reading and writing the items of a SQLite file within one transaction."""

from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from holdfast.adapters.embedded import check_item_size
from holdfast.adapters.sqlite import items
from holdfast.adapters.sqlite.driver import Connection, Driver
from holdfast.adapters.sqlite.queries import select_in_order, select_item
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
from holdfast.ports.store import Item, Key, Query, Table, Value

_CONSTRAINT: Final = 19  # SQLite's result code: here, that the key exists
_Values = list[str | int | None]


class SqliteTransaction:
    """Implements `holdfast.adapters.embedded.Transaction`. The caller begins and commits."""

    def __init__(self, connection: Connection, driver: Driver) -> None:
        self._cursor = connection.cursor()  # shared: each statement ends before the next
        self._driver = driver
        self._statements: Final = {name: _Statements(connection, name) for name in table_names(connection)}
        self._read_without_tags: Item | None = None  # the last item read; usually it is written next
        self.writes_begun = 0

    def read(self, table: Table, key: Key) -> Item | None:
        text = self.text(table, key)
        if text is None:
            return None
        item = items.decoded(text, table.name, key)
        self._read_without_tags = None if items.has_tags(text) else item
        return item

    def text(self, table: Table, key: Key) -> str | None:
        """The item's text in the file."""
        rows = self._cursor.execute(select_item(table.name), (key.partition, key.sort or "")).fetchall()
        return rows[0][0] if rows else None

    def read_in_order(self, query: Query, after: dict[str, str] | None) -> Generator[Item]:
        """The query's items, as this transaction has written them. All are read at once: the cursor is shared."""
        sql, parameters = select_in_order(query, after)
        for (text,) in self._cursor.execute(sql, parameters).fetchall():
            yield items.decoded(text, query.table.name)

    def replace(self, table: Table, key: Key, old: Item | None, new: Item) -> None:
        plain = old if old is self._read_without_tags else None
        self.replace_by_text(table, key, old, new, items.encoded(new, plain))

    def replace_by_text(self, table: Table, key: Key, old: Item | None, new: Item, text: str) -> None:
        """The same, with `new` already encoded as text."""
        statements = self._of(table)
        check_item_size(new, table, key, text)
        self.writes_begun += 1
        if old is None:
            sql, columns = statements.insert, statements.columns(new)
        else:
            sql, columns = statements.update(old, new)
        self._cursor.execute(sql, (text, *columns, key.partition, key.sort or ""))

    def insert(self, table: Table, key: Key, new: Item, text: str) -> bool:
        """Insert the item; False if its key exists. Saves a read if it hardly ever does."""
        statements = self._of(table)
        check_item_size(new, table, key, text)
        self.writes_begun += 1
        try:
            self._cursor.execute(statements.insert, (text, *statements.columns(new), key.partition, key.sort or ""))
        except self._driver.errors as error:
            if self._driver.code(error) != _CONSTRAINT:
                raise
            return False  # the transaction continues
        return True

    def remove(self, table: Table, key: Key) -> None:
        statements = self._of(table)
        self.writes_begun += 1
        self._cursor.execute(statements.delete, (key.partition, key.sort or ""))

    def _of(self, table: Table) -> "_Statements":
        try:
            return self._statements[table.name]
        except KeyError:
            raise TableProblem(f"table {table.name} does not exist in the file; run: holdfast tables create") from None


class _Column(NamedTuple):
    """A column derived from an item: an index key, or its expiry."""

    name: str
    attribute: str
    value_of: Callable[[Value], str | int | None]


class _Statements:
    """The SQL statements of one table, built from its layout in the file, so that all columns are maintained."""

    def __init__(self, connection: Connection, name: str) -> None:
        layout = layout_of(connection, name)
        keys = attributes_with_columns(connection, name)
        expires = [_Column("expires", layout.ttl, expiry)] if layout and layout.ttl else []
        self._columns = (*expires, *[_Column(column_of(attribute), attribute, key_value) for attribute in keys])
        self._table = quoted(name)
        self._updates: dict[tuple[_Column, ...], str] = {}  # by changed columns
        names = ["item", *[column.name for column in self._columns], "pk", "sk"]
        marks = ", ".join("?" * len(names))
        self.insert = f"INSERT INTO {self._table} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608 -- quoted
        self.delete = f"DELETE FROM {self._table} WHERE pk = ? AND sk = ?"  # noqa: S608 -- the name is quoted

    def columns(self, item: Item) -> _Values:
        return [column.value_of(item.get(column.attribute)) for column in self._columns]

    def update(self, old: Item, new: Item) -> tuple[str, _Values]:
        """The update that turns `old` into `new`. It names only changed columns: SQLite then skips other indexes."""
        changed, values = [], []
        for column in self._columns:
            before, after = old.get(column.attribute), new.get(column.attribute)
            if before is not after and (before != after or type(before) is not type(after)):
                changed.append(column)
                values.append(column.value_of(after))
        return self._update_of(tuple(changed)), values

    def _update_of(self, columns: tuple[_Column, ...]) -> str:
        sql = self._updates.get(columns)
        if sql is None:
            assigned = ", ".join(f"{name} = ?" for name in ("item", *[column.name for column in columns]))
            sql = f"UPDATE {self._table} SET {assigned} WHERE pk = ? AND sk = ?"  # noqa: S608 -- the names are quoted
            self._updates[columns] = sql
        return sql
