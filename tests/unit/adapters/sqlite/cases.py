"""Shared by the tests of the SQLite store: both drivers, a table with indexes, and ways to open a file."""

from pathlib import Path
from typing import Any, Final

from holdfast.adapters.embedded import EmbeddedStore
from holdfast.adapters.sqlite import ApswDriver, Driver, StandardDriver, Tuning, sqlite_rows
from holdfast.adapters.sqlite.driver import Connection
from holdfast.adapters.sqlite.rows import SqliteRows
from holdfast.ports.clock import Clock
from holdfast.ports.store import Index, Projection, Table
from tests.clocks import StillClock

DRIVERS: Final[tuple[Driver, ...]] = (StandardDriver(), ApswDriver())

THINGS: Final = Table(
    name="some.things-1",
    setting="THINGS_TABLE",
    purpose="a table with everything",
    partition="PK",
    sort="SK",
    indexes=(
        Index("by-kind", "kind", "at"),
        Index("by-owner", "owner", projection=Projection.KEYS_ONLY),
        Index("by-sort", "SK", "at"),
    ),
    ttl="ttl",
)
FLAGS: Final = Table(name="flags", setting="FLAGS_TABLE", purpose="a table with nothing but a key", partition="pk")


class OpenStore:
    """A store on a file, with access to its rows."""

    def __init__(
        self,
        path: Path,
        driver: Driver,
        *,
        tables: tuple[Table, ...] = (THINGS, FLAGS),
        clock: Clock | None = None,
        tuning: Tuning | None = None,
        writable: bool = True,
    ) -> None:
        clock = clock or StillClock()
        self.rows: SqliteRows = sqlite_rows(path, clock, tables=tables, driver=driver, tuning=tuning, writable=writable)
        self.store = EmbeddedStore(self.rows, clock)

    def __enter__(self) -> "OpenStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    @property
    def connection(self) -> Connection:
        """The connection that writes."""
        assert self.rows._writer is not None
        return self.rows._writer._connection

    def sql(self, statement: str, *parameters: str | int) -> list[Any]:
        return self.connection.execute(statement, parameters).fetchall()


def thing(partition: str, sort: str, **attributes: Any) -> dict[str, Any]:
    return {"PK": partition, "SK": sort, **attributes}
