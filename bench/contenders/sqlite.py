"""SQLite: our store, and Python's sqlite3 with nothing around it. Both have the file in WAL mode, synchronous=FULL."""

import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from threading import Lock
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
        self._connection.execute("BEGIN IMMEDIATE")
        self._take(name, fence)
        self._connection.execute("COMMIT")

    def _take(self, name: str, fence: int) -> None:
        execute = self._connection.execute
        [(text,)] = execute("SELECT item FROM state WHERE pk = ?", (name,)).fetchall()
        item = self._decode(text)
        if item["fence"] != fence or item["lockOwner"] != OWNER:
            raise RuntimeError(f"{name}: expected fence {fence}, found {item['fence']}")
        item["fence"] += 1
        item["lockUntilEpoch"] = until_after(fence)
        execute("UPDATE state SET item = ? WHERE pk = ?", (self._encode(item).decode(), name))

    def read(self, name: str) -> dict[str, Any]:
        [(text,)] = self._connection.execute("SELECT item FROM state WHERE pk = ?", (name,)).fetchall()
        item: dict[str, Any] = self._decode(text)
        return item

    def close(self) -> None:
        self._connection.close()


class _Waiting:
    """A thread that takes a lease together with others."""

    following: "_Waiting | None" = None
    is_done = False

    def __init__(self, name: str, fence: int) -> None:
        self.name = name
        self.fence = fence
        self.turn = Lock()
        self.turn.acquire()


class BareGroups(BareSqlite):
    """Implements `bench.contenders.leases.Side`: the same work as bare sqlite3's, in groups that share a commit.

    The smallest possible group commit, without handling of failures, interrupts or closing: it shows what many threads
    can gain from sharing a commit on this machine, in Python.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock = Lock()
        self._queue: list[_Waiting] = []
        self._leader: _Waiting | None = None

    def take(self, name: str, fence: int) -> None:
        mine = _Waiting(name, fence)
        with self._lock:
            self._queue.append(mine)
            leads = self._leader is None
            if leads:
                self._leader = mine
        if not leads:
            mine.turn.acquire()
        if not mine.is_done:
            self._lead()
        if self._leader is mine:
            with self._lock:
                self._leader = mine.following = self._queue[0] if self._queue else None
        if mine.following is not None:
            mine.following.turn.release()

    def _lead(self) -> None:
        with self._lock:
            group, self._queue = self._queue, []
        self._connection.execute("BEGIN IMMEDIATE")
        for each in group:
            self._take(each.name, each.fence)
        self._connection.execute("COMMIT")
        for each, following in pairwise(group):
            each.following = following
        self._leader = group[-1]
        for each in group:
            each.is_done = True
