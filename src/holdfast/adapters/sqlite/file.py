"""One SQLite file: how connections to it are opened, and how long one waits for others who use it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holdfast.adapters.sqlite.driver import Connection, Driver, Mode, is_busy, translated
from holdfast.kernel.errors import StoreRefused
from holdfast.ports.clock import Clock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tuning:
    """How SQLite is run. The defaults are what we promise; tests take others to show what those are for."""

    synchronous: str = "FULL"  # a commit is on the disk before it is acknowledged
    checkpoint_pages: int = 1000  # 4 MB of log are written back at once
    busy_seconds: float = 5.0  # SQLite's own waiting within one statement
    give_up_seconds: float = 15.0  # where SQLite does not wait itself, or not long enough
    pause_seconds: float = 0.005


class SqliteFile:
    """Opens connections, and turns SQLite's errors into ours."""

    def __init__(self, path: Path, driver: Driver, clock: Clock, tuning: Tuning) -> None:
        # A link would have its own log and its own lock beside it, and another picture of the file.
        self.path = path.resolve()
        self.driver = driver
        self.clock = clock
        self._tuning = tuning

    def opened(self, mode: Mode, path: Path | None = None) -> Connection:
        connection = self.patiently(lambda: self.driver.open(path or self.path, mode))
        connection.execute(f"PRAGMA busy_timeout = {int(self._tuning.busy_seconds * 1000)}").fetchall()
        return connection

    def opened_for_writing(self) -> Connection:
        connection = self.opened(Mode.WRITE)
        self.use_log(connection)
        self.set_pragmas(
            connection,
            f"synchronous = {self._tuning.synchronous}",
            "fullfsync = ON",  # macOS: its fsync leaves data in the drive's own cache
            "checkpoint_fullfsync = ON",
            f"wal_autocheckpoint = {self._tuning.checkpoint_pages}",
            "journal_size_limit = 67108864",  # a log that grew under a long read is cut again
            "cache_size = -16384",
        )
        return connection

    def use_log(self, connection: Connection) -> None:
        [(mode,)] = self.rows(connection, "PRAGMA journal_mode = WAL")
        if mode != "wal":
            raise StoreRefused(f"{self.path}: this file system cannot hold SQLite's log (WAL); name a file elsewhere")

    def set_pragmas(self, connection: Connection, *pragmas: str) -> None:
        for pragma in pragmas:
            self.rows(connection, f"PRAGMA {pragma}")

    def rows(self, connection: Connection, sql: str, parameters: tuple[str | int | None, ...] = ()) -> list[Any]:
        """All rows of a statement, which is then finished: one left half-read would hold its old view of the file."""
        return self.patiently(lambda: connection.execute(sql, parameters).fetchall())

    def patiently(self, action: Callable[[], T]) -> T:
        """Do it, again and again while others are in the way, until it is time to give up."""
        deadline = None
        while True:
            try:
                return action()
            except self.driver.errors as error:
                now = self.clock.monotonic_seconds()
                deadline = now + self._tuning.give_up_seconds if deadline is None else deadline
                if not is_busy(self.driver, error) or now >= deadline:
                    raise self.translated(error) from error
            self.clock.sleep(self._tuning.pause_seconds)

    def translated(self, error: Exception) -> Exception:
        return translated(self.driver, error, self.path)
