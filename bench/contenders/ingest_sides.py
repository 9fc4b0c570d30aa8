"""Webhook servers as processes, and what it takes to send deliveries to one: 16 in flight, each on its own connection.

CPU is the server's, user and system, as the system counts it; ours, the sender's, is not in it.
"""

import os
import re
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.contenders.ingest_deliveries import SECRET, blocks
from bench.harness.measuring import Sample
from tests.servers import processes
from tests.servers.processes import RunningServer

IN_FLIGHT: Final = 16
TIMEOUT_SECONDS: Final = 30.0
_PROGRAMS: Final = Path(sys.executable).parent


class WrongAnswer(Exception):
    """The server did not say 200."""


@dataclass
class Side:
    """A server under measurement, and how long each delivery took it once it was warm."""

    server: RunningServer
    count: int
    sent_blocks: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    def round(self) -> Sample:
        """Send so many blocks that were not sent before."""
        requests = [each for block in blocks(self.count, self.sent_blocks) for each in block]
        if self.sent_blocks == self.count:
            self.latencies_ms.clear()  # of the first round
        self.sent_blocks += self.count
        cpu_before, begun = cpu_seconds(self.server.process.pid), time.perf_counter()
        self.latencies_ms += send(self.server.port, requests)
        seconds = time.perf_counter() - begun
        return Sample(len(requests), seconds, cpu_seconds(self.server.process.pid) - cpu_before)


def ours(directory: Path, store: str, **settings: str) -> RunningServer:
    """`holdfast serve` with its own data directory."""
    directory.mkdir(exist_ok=True)
    environment = {
        "HOLDFAST_STORE": store,
        "HOLDFAST_DATA": str(directory),
        "GITHUB_WEBHOOK_SECRET": SECRET,
        **settings,
    }
    named = [f"{name}={value}" for name, value in environment.items()]
    program = ["env", *named, str(_PROGRAMS / "holdfast"), "serve", "--host", processes.HOST, "--port"]
    return processes.start("holdfast", lambda port: [*program, str(port)], directory)


def bare(directory: Path) -> RunningServer:
    directory.mkdir()
    program = [sys.executable, "-m", "bench.contenders.ingest_bare"]
    return processes.start("bare", lambda port: [*program, str(port), str(directory / "bare.db")], directory)


def cpu_seconds(process: int) -> float:
    """User and system time of all threads of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def send(port: int, requests: Sequence[bytes]) -> list[float]:
    """Send all, 16 at a time from one thread; how many milliseconds each took."""
    todo = iter(requests)
    took: list[float] = []
    with selectors.DefaultSelector() as selector, ExitStack() as opened:
        for _ in range(min(IN_FLIGHT, len(requests))):
            connection = opened.enter_context(socket.create_connection((processes.HOST, port), TIMEOUT_SECONDS))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ, _Exchange(connection, next(todo)))
        while selector.get_map():
            ready = selector.select(TIMEOUT_SECONDS)
            if not ready:
                raise WrongAnswer(f"no answer in {TIMEOUT_SECONDS} s")
            for key, _ in ready:
                exchange: _Exchange = key.data
                if not exchange.is_answered():
                    continue
                took.append(exchange.took_ms)
                if (request := next(todo, None)) is None:
                    selector.unregister(exchange.connection)
                else:
                    exchange.begin(request)
    return took


class _Exchange:
    """A connection with one request under way."""

    def __init__(self, connection: socket.socket, request: bytes) -> None:
        self.connection = connection
        self.begin(request)

    def begin(self, request: bytes) -> None:
        self._answer = b""
        self._begun = time.perf_counter()
        self.connection.sendall(request)

    @property
    def took_ms(self) -> float:
        return (time.perf_counter() - self._begun) * 1000

    def is_answered(self) -> bool:
        """Read what is there; whether that was the rest of a good answer."""
        received = self.connection.recv(65_536)
        self._answer += received
        if not received or not self._answer.startswith(b"HTTP/1.1 200 "[: len(self._answer)]):
            raise WrongAnswer(self._answer[:500].decode(errors="replace") or "the connection was closed")
        head, blank, body = self._answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        return bool(blank) and length is not None and len(body) == int(length[1])
