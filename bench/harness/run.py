"""One run of a benchmark: how thorough it is, where its files go, and how it reports progress."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.harness.machine import Neighbours, filesystem_of

# In the working directory, which is on a disk more often than /tmp is. `make clean` removes what a killed run leaves.
DATA: Final = Path("build")

_MEMORY_ONLY: Final = frozenset({"tmpfs", "ramfs"})
_CALM_SHARE: Final = 0.1  # of the machine's CPU; a machine that does nothing else has services too


class Progress:
    """Reports progress on stderr: a line for each step, or on a terminal one line that changes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_live = sys.stderr.isatty()
        self._started = time.monotonic()

    def step(self, what: str) -> None:
        self._show(what, end="" if self._is_live else "\n")

    def detail(self, what: str) -> None:
        """Too small for a line of its own."""
        if self._is_live:
            self._show(what, end="")

    def done(self) -> None:
        self._show("done", end="\n")

    def line(self, text: str) -> None:
        """Something that stays on the screen."""
        self._show(text, end="\n")

    def _show(self, text: str, *, end: str) -> None:
        seconds = f"{time.monotonic() - self._started:5.1f} s"
        start = "\r\x1b[K" if self._is_live else ""
        width = os.get_terminal_size(sys.stderr.fileno()).columns - 1 if self._is_live and not end else None
        print(f"{start}{f'{self._name} {seconds}  {text}'[:width]}", end=end, file=sys.stderr, flush=True)


@dataclass
class Run:
    """What a benchmark receives. `notes` appear with its figures: what was left out, and why."""

    quick: bool
    directory: Path
    progress: Progress
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.progress.line(text)


@contextmanager
def prepared(name: str, *, quick: bool) -> Iterator[Run]:
    """A run with its own directory on the disk, which is removed at the end."""
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=DATA) as directory:
        run = Run(quick, Path(directory).absolute(), Progress(name))
        filesystem = filesystem_of(run.directory)
        if filesystem in _MEMORY_ONLY:
            run.note(f"The data is on {filesystem}: nothing reaches a disk, and rates of durable writes say nothing.")
        neighbours = Neighbours()
        yield run
        share = neighbours.cpu_share()
        if share is not None:
            advice = "; measure again when it is calm" if share > _CALM_SHARE else ""
            run.note(f"Others used {share:.0%} of the machine's CPU meanwhile{advice}.")
        run.progress.done()
