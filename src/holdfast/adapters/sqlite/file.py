"""One SQLite file: opening connections to it, and retrying while it is busy."""

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
    """SQLite's settings. Our promises rest on the defaults; tests use others to show why."""

    synchronous: str = "FULL"  # a commit is on the disk before it is acknowledged
    checkpoint_pages: int = 1000  # checkpoint after 4 MB of log
    busy_seconds: float = 5.0  # SQLite's own wait within one statement
    retry_seconds: float = 15.0  # where SQLite does not wait itself, or not long enough
    pause_seconds: float = 0.005


class SqliteFile:
    """Opens connections, and translates SQLite's errors."""

    def __init__(self, path: Path, driver: Driver, clock: Clock, tuning: Tuning) -> None:
        # Resolve links: through a link, the log and the lock would be different files.
        self.path = path.resolve()
        self.driver = driver
        self.clock = clock
        self._tuning = tuning

    def opened(self, mode: Mode, path: Path | None = None) -> Connection:
        connection = self.retry_while_busy(lambda: self.driver.open(path or self.path, mode))
        connection.execute(f"PRAGMA busy_timeout = {int(self._tuning.busy_seconds * 1000)}").fetchall()
        return connection

    def opened_for_writing(self) -> Connection:
        connection = self.opened(Mode.WRITE)
        self.use_log(connection)
        self.set_pragmas(
            connection,
            f"synchronous = {self._tuning.synchronous}",
            "fullfsync = ON",  # macOS: a plain fsync leaves data in the drive's cache
            "checkpoint_fullfsync = ON",
            f"wal_autocheckpoint = {self._tuning.checkpoint_pages}",
            "journal_size_limit = 67108864",  # truncate a log that grew during a long read
            "cache_size = -16384",
        )
        return connection

    def use_log(self, connection: Connection) -> None:
        [(mode,)] = self.rows(connection, "PRAGMA journal_mode = WAL")
        if mode != "wal":
            raise StoreRefused(f"{self.path}: this file system does not support SQLite's WAL mode; use another one")

    def set_pragmas(self, connection: Connection, *pragmas: str) -> None:
        for pragma in pragmas:
            self.rows(connection, f"PRAGMA {pragma}")

    def rows(self, connection: Connection, sql: str, parameters: tuple[str | int | None, ...] = ()) -> list[Any]:
        """All rows of a statement. Reading them all ends it: otherwise it would keep its old snapshot of the file."""
        return self.retry_while_busy(lambda: connection.execute(sql, parameters).fetchall())

    def retry_while_busy(self, action: Callable[[], T]) -> T:
        """Run `action`, and retry it while other connections are in the way, up to a deadline."""
        deadline = None
        while True:
            try:
                return action()
            except self.driver.errors as error:
                now = self.clock.monotonic_seconds()
                deadline = now + self._tuning.retry_seconds if deadline is None else deadline
                if not is_busy(self.driver, error) or now >= deadline:
                    raise self.translated(error) from error
            self.clock.sleep(self._tuning.pause_seconds)

    def translated(self, error: Exception) -> Exception:
        return translated(self.driver, error, self.path)
