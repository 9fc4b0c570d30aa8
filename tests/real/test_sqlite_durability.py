"""A process that writes to SQLite is killed at random moments, again and again, on one growing file.

Nothing that it acknowledged is ever missing, and nothing else is half there.
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

from holdfast.adapters.sqlite import sqlite_rows
from holdfast.adapters.embedded import EmbeddedStore
from holdfast.adapters.system_clock import SystemClock
from holdfast.ports.store import Key, Query
from tests.real.sqlite_child import COUNTS, DRIVERS, LOG, STATES, TABLES, WRITERS, phase

# Of the kills, one in so many comes while the process only starts: it opens, recovers or makes the file.
_STARTING_ONE_IN = 4
_STARTING_SECONDS = 0.4
_WRITING_SECONDS = 0.06


class Victim:
    """A process that writes, and what it has said."""

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
        """Let it live for a while, kill it, and return the last number that each writer had acknowledged."""
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
    # What stands after the last line's end was not said to the end.
    words = [line.split() for line in said.split("\n")[:-1]]
    return {writer: int(number) for writer, number in words}


class Checker:
    """What must be in the file, by what was acknowledged so far."""

    def __init__(self, path: Path, driver: str) -> None:
        self._path = path
        self._driver = driver
        self._least = dict.fromkeys(WRITERS, 0)
        self.lives = 0

    def acknowledged(self, numbers: dict[str, int]) -> None:
        self.lives += 1
        for writer, number in numbers.items():
            assert number >= self._least[writer], f"{writer}: {number} after {self._least[writer]}"
            self._least[writer] = number

    def look(self, *, thoroughly: bool) -> None:
        rows = sqlite_rows(self._path, SystemClock(), tables=TABLES, driver=DRIVERS[self._driver]())
        store = EmbeddedStore(rows, SystemClock())
        try:
            for writer in WRITERS:
                self._look_at(store, writer)
            if thoroughly:
                self._look_through(rows)
        finally:
            store.close()

    def _look_at(self, store: EmbeddedStore, writer: str) -> None:
        ...
