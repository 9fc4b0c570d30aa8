"""Commands run on a pseudo-terminal of a chosen width."""

import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import ioctl
from typing import Final

WAIT_SECONDS: Final = 60


@dataclass
class Shown:
    """A command on its own terminal."""

    process: "subprocess.Popen[bytes]"
    screen: int
    text: str = ""

    def until(self, words: str) -> str:
        while words not in self.text:
            assert self._read(), f"{words!r} was never shown: {self.text!r}"
        return self.text

    def end(self) -> int:
        while self._read():
            pass
        return self.process.wait(WAIT_SECONDS)

    def _read(self) -> bool:
        try:
            chunk = os.read(self.screen, 65536)
        except OSError:
            return False  # how Linux reports that the other side is gone
        self.text += chunk.decode()
        return bool(chunk)


@contextmanager
def on_terminal(
    *arguments: str, columns: int = 80, lines: int = 40, own_group: bool = False, **environment: str
) -> Iterator[Shown]:
    """`own_group` puts the command at the head of a process group, as a shell does."""
    controller, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    command = [sys.executable, "-m", "holdfast.cli.main", *arguments]
    process = subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", **environment},
        process_group=0 if own_group else None,
    )
    os.close(terminal)
    try:
        yield Shown(process, controller)
    finally:
        process.kill()
        process.wait()
        os.close(controller)
