"""Who may write a SQLite file: one process, or several where each brings a SQLite that can.

The lock is an flock on a file beside it, so it goes with its process however that ends. The text in that file, the
process ids of the holders, is for people only.

    SQLite of the process      lock while it writes      beside it may write
    older than 3.51.3          exclusive                 nobody
    3.51.3 or newer            shared                    others of 3.51.3 or newer

Tables and layout are changed under the exclusive lock only, which every process takes first if it can. So nobody
writes with a picture of the tables that is out of date.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

from holdfast.adapters.sqlite.driver import MANY_WRITERS_SINCE, Driver, version_text
from holdfast.kernel.errors import StoreRefused
from holdfast.ports.clock import Clock

# How long a process that may share waits for one that is just setting the file up, alone.
_PATIENCE_SECONDS: Final = 2.0
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
            self._take_what_it_can()
        except BaseException:
            os.close(self._file)
            raise

    def share(self) -> None:
        """Let others write as well, if this process's SQLite can bear it."""
        # flock gives up the one lock before it takes the other: somebody may come between, and is waited for.
        if self._can_share and self.is_exclusive:
            self.is_exclusive = False
            if not self._take_shared_patiently():
                raise self.refusal("write it")

    def release(self) -> None:
        os.close(self._file)

    def refusal(self, purpose: str) -> StoreRefused:
        why = (
            ""
            if self._can_share
            else f"; SQLite {version_text(self._driver)} lets one process write a file, "
            f"{'.'.join(map(str, MANY_WRITERS_SINCE))} and newer several: pip install 'holdfast[sqlite]'"
        )
        return StoreRefused(
            f"{self._path}: cannot {purpose}: {_holders(self._path)} writes it. "
            f"Stop it and try again, or use another file{why}"
        )

    def _take_what_it_can(self) -> None:
        self.is_exclusive = self._take(fcntl.LOCK_EX)
        if not self.is_exclusive and not (self._can_share and self._take_shared_patiently()):
            raise self.refusal("write it")
        self._sign()

    def _take(self, kind: int) -> bool:
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _take_shared_patiently(self) -> bool:
        deadline = self._clock.monotonic_seconds() + _PATIENCE_SECONDS
        while not self._take(fcntl.LOCK_SH):
            if self._clock.monotonic_seconds() >= deadline:
                return False
            self._clock.sleep(_PAUSE_SECONDS)
        return True

    def _sign(self) -> None:
        if self.is_exclusive:
            os.ftruncate(self._file, 0)
        os.write(self._file, f"{os.getpid()}\n".encode())


def lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _holders(path: Path) -> str:
    """The processes that signed since the lock was last free, without those that are known to be gone."""
    signed = dict.fromkeys(int(word) for word in lock_path(path).read_text().split() if word.isdecimal())
    living = [str(pid) for pid in signed if _may_live(pid)]
    if not living:
        return "another process"
    return f"process {living[0]}" if len(living) == 1 else f"one of the processes {', '.join(living)}"


def _may_live(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
