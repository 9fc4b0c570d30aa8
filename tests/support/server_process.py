"""`holdfast run` as a separate process."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any

START_SECONDS_MOST = 30


@dataclass(frozen=True)
class Running:
    """`holdfast run` as a user starts it."""

    process: subprocess.Popen[str]
    first_line: str
    port: int

    def get(self, path: str) -> tuple[int, str]:
        return self._call("GET", path, b"", {})

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        return self._call("POST", path, body, headers)

    def _call(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS_MOST)
        try:
            connection.request(method, path, body or None, dict(headers))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def stopped_by(self, number: signal.Signals) -> tuple[int, str]:
        """Exit code and stderr after the signal."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=START_SECONDS_MOST)
        return self.process.returncode, errors


def environment(**changes: str) -> dict[str, str]:
    """Our environment without settings, so that those of the machine have no effect."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    # A crash of the interpreter itself prints a traceback.
    return ours | {"PYTHONFAULTHANDLER": "1"} | changes


def start(*arguments: str, cwd: Path, **changes: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "holdfast.cli.main", "run", *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=cwd, env=environment(**changes), **pipes)


@contextmanager
def running(cwd: Path, *arguments: str, **changes: str) -> Iterator[Running]:
    process = start("--port", "0", *arguments, cwd=cwd, **changes)
    try:
        line = next_line(process.stdout)
        found = re.search(r"http://127\.0\.0\.1:([0-9]+)", line)
        assert found, f"{line!r} {process.stderr.read() if process.stderr else ''}"
        yield Running(process, line, int(found[1]))
    finally:
        process.kill()
        process.communicate()


def next_line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()
