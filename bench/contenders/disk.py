"""The disk itself: how long one wait for it takes."""

import os
from pathlib import Path

from bench.contenders.leases import Size
from bench.harness.measuring import Sample, timed

_PAGE = bytes(4096)


class Disk:
    """A file that is written 4 KB at a time, as SQLite's log is, and waited for each time."""

    def __init__(self, path: Path, size: Size) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT)
        self._times = size.updates_each[1]
        # Where there is no fdatasync, as on macOS, SQLite uses fsync too.
        self._sync = getattr(os, "fdatasync", os.fsync)

    def waited_for(self) -> Sample:
        return timed([self._write], self._times)

    def close(self) -> None:
        os.close(self._file)

    def _write(self) -> None:
        os.lseek(self._file, 0, os.SEEK_SET)
        for _ in range(self._times):
            os.write(self._file, _PAGE)
            self._sync(self._file)
