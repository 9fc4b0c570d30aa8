"""A process that writes to SQLite is killed at random moments, again and again, on one growing file.

No acknowledged write is ever missing, and no other is half written.
"""

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.adapters.embedded import EmbeddedStore
from holdfast.adapters.sqlite import SqliteRows, sqlite_rows
from holdfast.adapters.system_clock import SystemClock
from holdfast.ports.store import Key, Query, every_item
from tests.real.sqlite_child import COUNTS, DRIVERS, LOG, STATES, TABLES, WRITERS, phase

# One in this many kills comes while the process starts: it opens, recovers or creates the file.
_STARTING_ONE_IN = 4
_STARTING_SECONDS = 0.4
_WRITING_SECONDS = 0.06


class Victim:
    """A process that writes, and its output."""

    def __init__(self, path: Path, driver: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.real.sqlite_child", str(path), driver],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        self._said = b""

    def killed(self, source: random.Random) -> dict[str, int]:
        """Let it run for a while, kill it, and return the last number that each writer had acknowledged."""
        if source.randrange(_STARTING_ONE_IN) == 0:
            self._listen(source.uniform(0, _STARTING_SECONDS))
        else:
            self._said += os.read(self._output, 65536)
            self._listen(source.uniform(0, _WRITING_SECONDS))
        self._process.send_signal(signal.SIGKILL)
        rest, complaints = self._process.communicate()
        assert (self._process.returncode, complaints) == (-signal.SIGKILL, b"")
        return _last_numbers((self._said + rest).decode())

    def _listen(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._output], [], [], left)[0]:
                self._said += os.read(self._output, 65536)


def _last_numbers(said: str) -> dict[str, int]:
    # Text after the last line end was not printed completely.
    words = [line.split() for line in said.split("\n")[:-1]]
    return {writer: int(number) for writer, number in words}


class Checker:
    """Compares the file with what was acknowledged."""

    def __init__(self, path: Path, driver: str) -> None:
        self._path = path
        self._driver = driver
        self._least = dict.fromkeys(WRITERS, 0)  # what was acknowledged, or has been seen
        self._most = dict.fromkeys(WRITERS, 0)  # each life may have left one write that it could not acknowledge

    @property
    def total(self) -> int:
        return sum(self._least.values())

    def hear(self, acknowledged: dict[str, int]) -> None:
        """The output of one process."""
        for writer, number in acknowledged.items():
            # It resumes from what it finds: a lost write would be repeated.
            assert number > self._least[writer], f"{writer}: {number} after {self._least[writer]} was acknowledged"
            self._least[writer] = self._most[writer] = number
        for writer in WRITERS:
            self._most[writer] += 1

    def look(self, *, thoroughly: bool) -> None:
        rows = sqlite_rows(self._path, SystemClock(), tables=TABLES, driver=DRIVERS[self._driver]())
        store = EmbeddedStore(rows, SystemClock())
        for writer in WRITERS:
            self._look_at(store, writer)
            if thoroughly:
                numbers = [int(item["sk"]) for item in every_item(store, Query(LOG, writer))]
                assert numbers == list(range(1, self._least[writer] + 1)), f"{writer}: its log has gaps"
        if thoroughly:
            assert integrity(rows) == [("ok",)]
        store.close()

    def _look_at(self, store: EmbeddedStore, writer: str) -> None:
        state, count = store.get(STATES, Key(writer)), store.get(COUNTS, Key(writer))
        found: int = state["number"] if state else 0
        assert self._least[writer] <= found <= self._most[writer], f"{writer}: acknowledged {self._least[writer]}"
        assert (count["number"] if count else 0) == found, f"{writer}: the second item differs"
        last = store.query(Query(LOG, writer, reverse=True, limit=1)).items
        assert [int(item["sk"]) for item in last] == ([found] if found else []), f"{writer}: the log differs"
        for number in range(found, max(found - 3, 0), -1):
            entries = store.query(Query(STATES, phase(writer, number), index="by-phase")).items
            assert entries == ([state] if number == found else []), f"{writer}: the index differs from its item"
        self._least[writer] = self._most[writer] = found


def integrity(rows: SqliteRows) -> list[tuple[str]]:
    assert rows._writer is not None
    return rows._writer._connection.execute("PRAGMA integrity_check").fetchall()


def kill_again_and_again(path: Path, driver: str, *, kills: int, seed: int) -> Checker:
    source = random.Random(seed)
    checker = Checker(path, driver)
    for kill in range(1, kills + 1):
        checker.hear(Victim(path, driver).killed(source))
        # Not after each: sometimes the next process is the first to open the file.
        if kill == kills or source.random() < 0.7:
            checker.look(thoroughly=kill % 20 == 0 or kill == kills)
    return checker


def fresh_seed() -> int:
    """A new one each time; a failure shows it."""
    seed = random.SystemRandom().randrange(10**6)
    sys.stdout.write(f"seed {seed}\n")
    return seed


@pytest.mark.parametrize("driver", DRIVERS)
def test_kills_lose_nothing_that_was_acknowledged(driver: str, tmp_path: Path) -> None:
    """Several kills on one file."""
    checker = kill_again_and_again(tmp_path / "holdfast.db", driver, kills=8, seed=fresh_seed())
    assert checker.total > 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("driver", DRIVERS)
def test_hundreds_of_kills_lose_nothing_that_was_acknowledged(driver: str, tmp_path: Path) -> None:
    """Hundreds of kills on one growing file."""
    checker = kill_again_and_again(tmp_path / "holdfast.db", driver, kills=300, seed=fresh_seed())
    assert checker.total > 3000
