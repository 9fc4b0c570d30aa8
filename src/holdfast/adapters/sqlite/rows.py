"""Items in a SQLite file.

Writes go through one connection, in groups. Reads have their own connections, and the file is in WAL mode: they never
wait, and see the last commit.
"""

from collections.abc import Callable, Generator, Sequence
from threading import RLock
from typing import Any, Final, TypeVar

from holdfast.adapters.sqlite import items
from holdfast.adapters.sqlite.driver import Connection, Mode
from holdfast.adapters.sqlite.file import SqliteFile
from holdfast.adapters.sqlite.opening import ReadableFile, WritableFile
from holdfast.adapters.sqlite.queries import select_expired, select_in_order, select_item
from holdfast.adapters.sqlite.schema import expiry
from holdfast.adapters.sqlite.transaction import SqliteTransaction
from holdfast.adapters.sqlite.writer import GroupCommit
from holdfast.kernel.errors import StoreRefused
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Query, Table

_READERS_KEPT: Final = 8

T = TypeVar("T")


class SqliteRows:
    """Implements `holdfast.adapters.embedded.Rows`."""

    def __init__(self, file: SqliteFile, held: WritableFile | ReadableFile) -> None:
        self._file = file
        self._held = held
        self._writer = GroupCommit(file, held.connection) if isinstance(held, WritableFile) else None
        self._readers = _Readers(file)
        self._closing = RLock()
        self._is_closed = False

    @property
    def writes(self) -> int:
        """The number of calls whose writes became durable."""
        return self._writer.writes if self._writer else 0

    @property
    def commits(self) -> int:
        """The number of commits, each of which waited for the disk."""
        return self._writer.commits if self._writer else 0

    def read(self, table: Table, key: Key) -> Item | None:
        rows = self._readers.rows(select_item(table.name), (key.partition, key.sort or ""))
        return items.decoded(rows[0][0], table.name, key) if rows else None

    def read_in_order(self, query: Query, after: dict[str, str] | None) -> Generator[Item]:
        sql, parameters = select_in_order(query, after)
        for (text,) in self._readers.each_row(sql, parameters):
            yield items.decoded(text, query.table.name)

    def write(self, work: Callable[[SqliteTransaction], T]) -> T:
        if self._writer is None:
            raise StoreRefused(f"{self._file.path} was opened read-only; nothing was written")
        return self._writer.write(work)

    def expired_keys(self, table: Table, now: Instant, most: int) -> list[Key]:
        rows = self._readers.rows(select_expired(table.name), (expiry(now.epoch_seconds), most))
        return [Key(partition, sort if table.sort else None) for partition, sort in rows]

    def close(self) -> None:
        """Release everything, once. A concurrent second call waits for the first; a nested one returns at once."""
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                self._close()

    def _close(self) -> None:
        # The writer last: the last connection to close checkpoints the log, which a reader cannot do.
        self._readers.close()
        if self._writer:
            self._writer.close()
        self._held.close()


class _Readers:
    """A pool of read-only connections. It opens another one when all are in use, so that readers never wait."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._idle: list[Connection] = []
        self._is_closed = False

    def rows(self, sql: str, parameters: tuple[str | int | None, ...]) -> list[Any]:
        connection = self._taken()
        try:
            return self._file.rows(connection, sql, parameters)
        finally:
            self._give_back(connection)

    def each_row(self, sql: str, parameters: Sequence[str | int]) -> Generator[Any]:
        """Rows, lazily. The snapshot of the file is held until the last row, or until the generator is closed."""
        connection = self._taken()
        try:
            cursor = self._file.retry_while_busy(lambda: connection.execute(sql, parameters))
            try:
                yield from cursor
            except self._file.driver.errors as error:
                raise self._file.translated(error) from error
            finally:
                cursor.close()
        finally:
            self._give_back(connection)

    def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _taken(self) -> Connection:
        if self._is_closed:
            raise StoreRefused(f"{self._file.path} is closed")
        try:
            return self._idle.pop()
        except IndexError:
            return self._file.opened(Mode.READ)

    def _give_back(self, connection: Connection) -> None:
        if self._is_closed or len(self._idle) >= _READERS_KEPT:
            connection.close()
        else:
            self._idle.append(connection)
