"""The writer lock of a SQLite file: one process, or several if each has a recent SQLite.

The lock is an flock on a file next to it, so it is released however its process ends. The text in that file, the
holders' process ids, is only for people.

    SQLite of the process      lock while it writes      other writers
    older than 3.51.3          exclusive                 none
    3.51.3 or newer            shared                    processes with 3.51.3 or newer

Tables and layout are changed only under the exclusive lock, which every process tries first. So no process writes with
an outdated idea of the tables.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

from holdfast.adapters.sqlite.driver import MANY_WRITERS_SINCE, Driver, version_text
from holdfast.kernel.errors import StoreRefused
from holdfast.ports.clock import Clock

# How long a process that may share waits for one that is setting up the file exclusively.
_SHARE_TIMEOUT_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.02


class WriterLock:
    """Held from construction until `release`."""

    def __init__(self, path: Path, driver: Driver, clock: Clock) -> None:
        self._path = path
        self._driver = driver
        self._clock = clock
        self._can_share = driver.version >= MANY_WRITERS_SINCE
        self._file = os.open(lock_path(path), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.is_exclusive = False
        try:
            self._take_best()
        except BaseException:
            os.close(self._file)
            raise

    def share(self) -> None:
        """Let other processes write as well, if this process's SQLite supports it."""
        # flock releases the exclusive lock before it takes the shared one: wait for a process that gets in between.
        if self._can_share and self.is_exclusive:
            self.is_exclusive = False
            if not self._wait_for_shared():
                raise self.refusal("write it")

    def release(self) -> None:
        os.close(self._file)

    def refusal(self, purpose: str) -> StoreRefused:
        why = (
            ""
            if self._can_share
            else f"; SQLite {version_text(self._driver)} allows one writer per file, "
            f"{'.'.join(map(str, MANY_WRITERS_SINCE))} and newer allow several: "
            "pip install '.[sqlite]', in the directory of Holdfast's source"
        )
        return StoreRefused(
            f"{self._path}: cannot {purpose}: {_holders(self._path)} has it open for writing. "
            f"Stop that process and try again, or use another file{why}"
        )

    def _take_best(self) -> None:
        self.is_exclusive = self._take(fcntl.LOCK_EX)
        if not self.is_exclusive and not (self._can_share and self._wait_for_shared()):
            raise self.refusal("write it")
        self._write_process_id()

    def _take(self, kind: int) -> bool:
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait_for_shared(self) -> bool:
        deadline = self._clock.monotonic_seconds() + _SHARE_TIMEOUT_SECONDS
        while not self._take(fcntl.LOCK_SH):
            if self._clock.monotonic_seconds() >= deadline:
                return False
            self._clock.sleep(_PAUSE_SECONDS)
        return True

    def _write_process_id(self) -> None:
        if self.is_exclusive:
            os.ftruncate(self._file, 0)
        os.write(self._file, f"{os.getpid()}\n".encode())


def lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _holders(path: Path) -> str:
    """The processes that took the lock since it was last free, without those that have ended."""
    noted = dict.fromkeys(int(word) for word in lock_path(path).read_text().split() if word.isdecimal())
    running = [str(pid) for pid in noted if _may_be_running(pid)]
    if not running:
        return "another process"
    return f"process {running[0]}" if len(running) == 1 else f"one of the processes {', '.join(running)}"


def _may_be_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
