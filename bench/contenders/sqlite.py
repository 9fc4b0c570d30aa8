"""SQLite: our store, and Python's sqlite3 with nothing around it. Both have the file in WAL mode, synchronous=FULL."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.contenders.leases import OWNER, TABLE, lease_item, take_from, until_after
from holdfast.adapters.embedded import EmbeddedStore
from holdfast.adapters.sqlite import Driver, sqlite_rows
from holdfast.adapters.system_clock import SystemClock
from holdfast.ports.store import Key


class OurSqlite:
    """Implements `bench.contenders.leases.Side`."""

    def __init__(self, path: Path, driver: Driver) -> None:
        clock = SystemClock()
        self.rows = sqlite_rows(path, clock, tables=[TABLE], driver=driver)
        self._store = EmbeddedStore(self.rows, clock)

    def create(self, names: Sequence[str]) -> None:
        for name in names:
            self._store.put(TABLE, lease_item(name))

    def take(self, name: str, fence: int) -> None:
        take_from(self._store, name, fence)

    def read(self, name: str) -> dict[str, Any]:
        return self._store.get(TABLE, Key(name)) or {}

    def close(self) -> None:
        self._store.close()


class BareSqlite:
    """Implements `bench.contenders.leases.Side`: one connection, one transaction for each update.

    JSON is read and written by msgspec, as ours is: the comparison is not about that.
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE state (pk TEXT PRIMARY KEY NOT NULL, item TEXT NOT NULL)")
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(dict).decode

    def create(self, names: Sequence[str]) -> None:
        rows = [(name, self._encode(lease_item(name)).decode()) for name in names]
        self._connection.executemany("INSERT INTO state VALUES (?, ?)", rows)

    def take(self, name: str, fence: int) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        [(text,)] = execute("SELECT item FROM state WHERE pk = ?", (name,)).fetchall()
        item = self._decode(text)
        if item["fence"] != fence or item["lockOwner"] != OWNER:
            raise RuntimeError(f"{name}: expected fence {fence}, found {item['fence']}")
        item["fence"] += 1
        item["lockUntilEpoch"] = until_after(fence)
        execute("UPDATE state SET item = ? WHERE pk = ?", (self._encode(item).decode(), name))
        execute("COMMIT")

    def read(self, name: str) -> dict[str, Any]:
        [(text,)] = self._connection.execute("SELECT item FROM state WHERE pk = ?", (name,)).fetchall()
        item: dict[str, Any] = self._decode(text)
        return item

    def close(self) -> None:
        self._connection.close()
