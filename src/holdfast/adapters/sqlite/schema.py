"""The layout of a SQLite file.

One SQL table per table, under the same name:

    pk, sk           the key; sk is '' if the table has no sort key
    item             the whole item, as JSON
    expires          its TTL attribute, if that is a whole number
    key:NAME         the attribute NAME, if it is a key of an index

and one SQL index TABLE:INDEX per index: its keys, then pk and sk, over the rows that have them all. What SQL cannot
express (key attributes, projections, the TTL attribute) is stored in "holdfast:tables". Names of tables contain no
colon, so our own names never collide with names from settings.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from holdfast.adapters.sqlite import items
from holdfast.adapters.sqlite.driver import Connection
from holdfast.kernel import typed_json
from holdfast.kernel.errors import TableProblem
from holdfast.ports.store import Index, Item, Table
from holdfast.ports.store.values import Value

APPLICATION_ID: Final = 0x486C6466  # "Hldf", in the header, where `file` and other programs look

_KEY_PREFIX: Final = "key:"
_BACKFILL_ROWS: Final = 500
_EXPIRES_LEAST: Final = -(2**63)
_EXPIRES_MOST: Final = 2**63 - 1

Migration = Callable[[Connection], None]


def _make_notes(connection: Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute('CREATE TABLE "holdfast:tables" (name TEXT PRIMARY KEY NOT NULL, layout TEXT NOT NULL)')


# In order, and never changed once released. The file's user_version is the number of migrations applied.
MIGRATIONS: Final[tuple[Migration, ...]] = (_make_notes,)


class SqliteLayout(msgspec.Struct, frozen=True, omit_defaults=True):
    """What "holdfast:tables" stores about a table."""

    partition: str
    sort: str | None = None
    ttl: str | None = None
    indexes: tuple[Index, ...] = ()


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def migrate(connection: Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply the missing migrations, each in its own transaction."""
    for number in range(version_of(connection), len(migrations)):
        with transaction(connection):
            migrations[number](connection)
            connection.execute(f"PRAGMA user_version = {number + 1}")


def version_of(connection: Connection) -> int:
    [(version,)] = connection.execute("PRAGMA user_version").fetchall()
    return int(version)


# Reading the layout


def layout_of(connection: Connection, name: str) -> SqliteLayout | None:
    """The stored layout of the table, without indexes that are missing from the file."""
    noted = connection.execute('SELECT layout FROM "holdfast:tables" WHERE name = ?', (name,)).fetchall()
    there = _statements_of(connection, name)
    if not noted or name not in there:
        return None
    layout = typed_json.decoded(noted[0][0], SqliteLayout)
    true = tuple(
        index for index in layout.indexes if there.get(index_name(name, index)) == _index_sql(name, index, layout)
    )
    return msgspec.structs.replace(layout, indexes=true)


def _statements_of(connection: Connection, name: str) -> dict[str, str]:
    """The statements that created the table and its indexes, by name: SQLite keeps them verbatim."""
    return dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE tbl_name = ?", (name,)).fetchall())


def table_names(connection: Connection) -> list[str]:
    return [name for (name,) in connection.execute('SELECT name FROM "holdfast:tables"').fetchall()]


def attributes_with_columns(connection: Connection, name: str) -> tuple[str, ...]:
    """The attributes that have a column. Each is maintained, even if its index is no longer declared."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({quoted(name)})").fetchall()]
    return tuple(column.removeprefix(_KEY_PREFIX) for column in columns if column.startswith(_KEY_PREFIX))


# Changing the layout, within a transaction of the caller


def create_table(connection: Connection, table: Table) -> None:
    _check_name(connection, table)
    layout = SqliteLayout(table.partition, table.sort, table.ttl)
    connection.execute(
        f"CREATE TABLE {quoted(table.name)}"
        " (pk TEXT NOT NULL, sk TEXT NOT NULL, item TEXT NOT NULL, expires INTEGER, PRIMARY KEY (pk, sk))"
    )
    connection.execute(
        f"CREATE INDEX {quoted(expiry_index_name(table.name))} ON {quoted(table.name)} (expires)"
        " WHERE expires IS NOT NULL"
    )
    _note(connection, table.name, layout)
    for index in table.indexes:
        add_index(connection, table.name, index)


def add_index(connection: Connection, name: str, index: Index) -> None:
    """Create the index and the columns it needs, from the existing items."""
    layout = _noted(connection, name)
    have = attributes_with_columns(connection, name)
    missing = [
        attribute
        for attribute in index.key_attributes
        if attribute not in have and attribute not in (layout.partition, layout.sort)
    ]
    _check_cases(name, (*have, *missing))
    for attribute in missing:
        connection.execute(f"ALTER TABLE {quoted(name)} ADD COLUMN {column_of(attribute)} TEXT")
    if missing:
        _backfill(
            connection,
            name,
            [column_of(attribute) for attribute in missing],
            lambda item: [key_value(item.get(attribute)) for attribute in missing],
        )
    sql = _index_sql(name, index, layout)
    if sql not in _statements_of(connection, name).values():
        connection.execute(f"DROP INDEX IF EXISTS {quoted(index_name(name, index))}")
        connection.execute(sql)
    others = tuple(other for other in layout.indexes if other.name != index.name)
    _note(connection, name, msgspec.structs.replace(layout, indexes=(*others, index)))


def set_ttl(connection: Connection, name: str, ttl: str | None) -> None:
    _backfill(connection, name, ["expires"], lambda item: [expiry(item.get(ttl) if ttl else None)])
    _note(connection, name, msgspec.structs.replace(_noted(connection, name), ttl=ttl))


def _noted(connection: Connection, name: str) -> SqliteLayout:
    [(text,)] = connection.execute('SELECT layout FROM "holdfast:tables" WHERE name = ?', (name,)).fetchall()
    return typed_json.decoded(text, SqliteLayout)


def _note(connection: Connection, name: str, layout: SqliteLayout) -> None:
    text = msgspec.json.encode(layout).decode()
    connection.execute('INSERT OR REPLACE INTO "holdfast:tables" (name, layout) VALUES (?, ?)', (name, text))


def _backfill(
    connection: Connection, name: str, columns: Sequence[str], values: Callable[[Item], list[str | int | None]]
) -> None:
    """Fill columns from the items, in batches: a table may be larger than memory."""
    sets = ", ".join(f"{column} = ?" for column in columns)
    select = f"SELECT rowid, item FROM {quoted(name)} WHERE rowid > ? ORDER BY rowid LIMIT ?"  # noqa: S608 -- quoted
    update = f"UPDATE {quoted(name)} SET {sets} WHERE rowid = ?"  # noqa: S608 -- the names are quoted
    last = 0
    while rows := connection.execute(select, (last, _BACKFILL_ROWS)).fetchall():
        for rowid, text in rows:
            connection.execute(update, (*values(items.decoded(text, name)), rowid))
        last = rows[-1][0]


# Names and values in SQL


def quoted(name: str) -> str:
    if "\0" in name:
        raise TableProblem(f"the name {name!r} contains a NUL character, which SQL names cannot")
    return '"' + name.replace('"', '""') + '"'


def column_of(attribute: str) -> str:
    """The column of an attribute that is a key of an index, but not of the table."""
    return quoted(_KEY_PREFIX + attribute)


def index_name(table: str, index: Index) -> str:
    return f"{table}:{index.name}"


def expiry_index_name(table: str) -> str:
    return f"{table}::expires"


def key_columns(partition: str, sort: str | None, index: Index | None = None) -> dict[str, str | None]:
    """The columns, with their attributes, by which a table (with these keys) or its index is searched and ordered.

    An index ends with the table's own keys, which order items with equal index keys.
    """
    own = {"pk": partition, "sk": sort}
    if index is None:
        return own
    names = {partition: "pk", sort: "sk"}
    keys = {names.get(attribute) or column_of(attribute): attribute for attribute in index.key_attributes}
    return keys | own


def optional_columns(columns: Iterable[str]) -> list[str]:
    """The columns that an item may lack."""
    return [column for column in columns if column not in ("pk", "sk")]


def _index_sql(name: str, index: Index, layout: SqliteLayout) -> str:
    columns = key_columns(layout.partition, layout.sort, index)
    present = " AND ".join(f"{column} IS NOT NULL" for column in optional_columns(columns))
    return f"CREATE INDEX {quoted(index_name(name, index))} ON {quoted(name)} ({', '.join(columns)})" + (
        f" WHERE {present}" if present else ""
    )


def key_value(value: Value) -> str | None:
    """The value for the column of an index key. An item older than the index may have another type there."""
    return value if isinstance(value, str) and value else None


def expiry(value: Value) -> int | None:
    """The value for `expires`: whole numbers, clamped to SQLite's range, so that their order is kept."""
    return max(_EXPIRES_LEAST, min(value, _EXPIRES_MOST)) if type(value) is int else None


def _check_name(connection: Connection, table: Table) -> None:
    """SQL names are case-insensitive, and some are reserved by SQLite."""
    taken = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE", (table.name,)
    ).fetchall()
    if taken:
        raise TableProblem(
            f"table {table.name}: the file already has a table {taken[0][0]!r}, which is not ours or differs only in "
            f"case; set {table.setting} to another name"
        )
    if table.name.lower().startswith("sqlite_"):
        raise TableProblem(
            f"table {table.name}: SQLite reserves names that begin with sqlite_; set {table.setting} to another name"
        )


def _check_cases(name: str, attributes: Sequence[str]) -> None:
    if len({attribute.lower() for attribute in attributes}) < len(attributes):
        raise TableProblem(
            f"table {name}: index keys {', '.join(sorted(attributes))} differ only in case, which SQLite ignores"
        )
