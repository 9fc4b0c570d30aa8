"""How the tables lie in a SQLite file.

One SQL table for each of ours, under its own name:

    pk, sk           the key; sk is '' where the table has no sort key
    item             the whole item, as JSON
    expires          its TTL attribute, where that is a whole number
    key:NAME         the attribute NAME, which an index has as a key

and an SQL index TABLE:INDEX for each index: its keys, then pk and sk, over the rows that have them all. The names of
the key attributes, the projections and the TTL attribute, which SQL cannot say, are noted in "holdfast:tables". A
colon is in no table's name, so nothing of ours meets a name that a setting gives.
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

APPLICATION_ID: Final = 0x486C6466  # "Hldf", where `file` and other programs look for a file's owner

_KEY_PREFIX: Final = "key:"
_BACKFILL_ROWS: Final = 500
_EXPIRES_LEAST: Final = -(2**63)
_EXPIRES_MOST: Final = 2**63 - 1

Migration = Callable[[Connection], None]


def _make_notes(connection: Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute('CREATE TABLE "holdfast:tables" (name TEXT PRIMARY KEY NOT NULL, layout TEXT NOT NULL)')


# In order, never changed once released. The file's user_version is the number of those that it has been through.
MIGRATIONS: Final[tuple[Migration, ...]] = (_make_notes,)


class Layout(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is noted of a table."""

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
    """Bring the file to our version, one transaction for each step, so that a step is done or not begun."""
    for number in range(version_of(connection), len(migrations)):
        with transaction(connection):
            migrations[number](connection)
            connection.execute(f"PRAGMA user_version = {number + 1}")


def version_of(connection: Connection) -> int:
    [(version,)] = connection.execute("PRAGMA user_version").fetchall()
    return int(version)


# What is there


def layout_of(connection: Connection, name: str) -> Layout | None:
    """What is noted of the table, as far as it is true of the file: an index that is not there is left out."""
    noted = connection.execute('SELECT layout FROM "holdfast:tables" WHERE name = ?', (name,)).fetchall()
    there = _statements_of(connection, name)
    if not noted or name not in there:
        return None
    layout = typed_json.decoded(noted[0][0], Layout)
    true = tuple(
        index for index in layout.indexes if there.get(index_name(name, index)) == _index_sql(name, index, layout)
    )
    return msgspec.structs.replace(layout, indexes=true)


def _statements_of(connection: Connection, name: str) -> dict[str, str]:
    """The statements that made the table and its indexes, by their names: SQLite keeps them word for word."""
    return dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE tbl_name = ?", (name,)).fetchall())


def table_names(connection: Connection) -> list[str]:
    return [name for (name,) in connection.execute('SELECT name FROM "holdfast:tables"').fetchall()]


def attributes_with_columns(connection: Connection, name: str) -> tuple[str, ...]:
    """The attributes that have a column. All of them are kept up, also one whose index nobody declares any more."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({quoted(name)})").fetchall()]
    return tuple(column.removeprefix(_KEY_PREFIX) for column in columns if column.startswith(_KEY_PREFIX))


# How it is made; each within a transaction of the caller's


def create_table(connection: Connection, table: Table) -> None:
    _check_name(connection, table)
    layout = Layout(table.partition, table.sort, table.ttl)
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
    """Make the index, and the columns it needs, from the items that are there."""
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


def _noted(connection: Connection, name: str) -> Layout:
    [(text,)] = connection.execute('SELECT layout FROM "holdfast:tables" WHERE name = ?', (name,)).fetchall()
    return typed_json.decoded(text, Layout)


def _note(connection: Connection, name: str, layout: Layout) -> None:
    text = msgspec.json.encode(layout).decode()
    connection.execute('INSERT OR REPLACE INTO "holdfast:tables" (name, layout) VALUES (?, ?)', (name, text))


def _backfill(
    connection: Connection, name: str, columns: Sequence[str], values: Callable[[Item], list[str | int | None]]
) -> None:
    """Fill columns from the items, some rows at a time: a table may be larger than memory."""
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
        raise TableProblem(f"the name {name!r} holds a NUL character, which no SQL name can")
    return '"' + name.replace('"', '""') + '"'


def column_of(attribute: str) -> str:
    """The column of an attribute that is no key of the table's own, but of an index."""
    return quoted(_KEY_PREFIX + attribute)


def index_name(table: str, index: Index) -> str:
    return f"{table}:{index.name}"


def expiry_index_name(table: str) -> str:
    return f"{table}::expires"


def key_columns(partition: str, sort: str | None, index: Index | None = None) -> dict[str, str | None]:
    """The columns by which a table (with these key attributes) or its index is searched and ordered.

    Each with its attribute. An index ends with the table's own keys, which give an order to items that are alike.
    """
    own = {"pk": partition, "sk": sort}
    if index is None:
        return own
    names = {partition: "pk", sort: "sk"}
    keys = {names.get(attribute) or column_of(attribute): attribute for attribute in index.key_attributes}
    return keys | own


def optional_columns(columns: Iterable[str]) -> list[str]:
    """Those that an item may lack."""
    return [column for column in columns if column not in ("pk", "sk")]


def _index_sql(name: str, index: Index, layout: Layout) -> str:
    columns = key_columns(layout.partition, layout.sort, index)
    present = " AND ".join(f"{column} IS NOT NULL" for column in optional_columns(columns))
    return f"CREATE INDEX {quoted(index_name(name, index))} ON {quoted(name)} ({', '.join(columns)})" + (
        f" WHERE {present}" if present else ""
    )


def key_value(value: Value) -> str | None:
    """What the column of an index key holds. An item from before the index may have something else there."""
    return value if isinstance(value, str) and value else None


def expiry(value: Value) -> int | None:
    """What `expires` holds: the order of whole numbers is kept, also of those that SQLite could not hold."""
    return max(_EXPIRES_LEAST, min(value, _EXPIRES_MOST)) if type(value) is int else None


def _check_name(connection: Connection, table: Table) -> None:
    """SQL names do not tell upper from lower case, and some are SQLite's own."""
    taken = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE", (table.name,)
    ).fetchall()
    if taken:
        raise TableProblem(
            f"table {table.name}: the file has a table {taken[0][0]!r} that is not ours or differs only in case; "
            f"name another one in {table.setting}"
        )
    if table.name.lower().startswith("sqlite_"):
        raise TableProblem(
            f"table {table.name}: SQLite keeps names that begin with sqlite_ for itself; "
            f"name another one in {table.setting}"
        )


def _check_cases(name: str, attributes: Sequence[str]) -> None:
    if len({attribute.lower() for attribute in attributes}) < len(attributes):
        raise TableProblem(
            f"table {name}: index keys {', '.join(sorted(attributes))}: SQLite does not tell upper from lower case"
        )
