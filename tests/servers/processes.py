"""Start a server for tests: on a free port, with its log in a file, and never outliving the test run."""

from __future__ import annotations

import atexit
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"

_LEASH = Path(__file__).with_name("leash.py")
_ATTEMPTS = 3
_POLL_SECONDS = 0.05
_STOP_SECONDS = 10.0


class ServerFailed(Exception):
    """The server exited, or did not answer in time; the message ends with the tail of its log."""


class _PortTaken(Exception):
    """Another process took the port between our choice and the server's start."""


@dataclass(frozen=True)
class RunningServer:
    """A server that has responded. Stop it when done; it is stopped anyway when this process ends, however it ends."""

    name: str
    port: int
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def stop(self) -> None:
        """End the server and whatever it started. Stopping twice is fine."""
        atexit.unregister(self.stop)
        _end(self.process, signal.SIGTERM)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            _end(self.process, signal.SIGKILL)
            self.process.wait()


def start(
    name: str,
    command: Callable[[int], list[str]],
    log_dir: Path,
    *,
    ready: Callable[[int], bool] | None = None,
    limit_seconds: float = 120.0,
    environment: Mapping[str, str] | None = None,
) -> RunningServer:
    """Start `command(port)` and return when `ready(port)`; by default, when it answers HTTP.

    The limit is generous: two test workers may be starting theirs on a machine of two cores. Call it from the main
    thread, because the kernel ties the server's life to the thread that started it.
    """
    for _ in range(_ATTEMPTS):
        port = free_port()
        with contextlib.suppress(_PortTaken):
            return _start_on(port, name, command(port), log_dir, ready or answers_http, limit_seconds, environment)
    raise ServerFailed(f"{name}: {_ATTEMPTS} free ports in a row were taken before it could use them")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def answers_http(port: int) -> bool:
    """Whether something on the port speaks HTTP; an error status is an answer too."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def accepts_connections(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=5):
        return True
    return False


def _start_on(
    port: int,
    name: str,
    command: list[str],
    log_dir: Path,
    ready: Callable[[int], bool],
    limit_seconds: float,
    environment: Mapping[str, str] | None,
) -> RunningServer:
    log = log_dir / f"{name}-{port}.log"
    leashed = [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), *command]
    with log.open("wb") as output:
        # A new session: Ctrl-C reaches only the tests, which then stop the server after their last requests.
        process = subprocess.Popen(
            leashed,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
    server = RunningServer(name, port, log, process)
    atexit.register(server.stop)
    try:
        _wait_until_ready(server, ready, limit_seconds)
    except BaseException:
        server.stop()
        raise
    return server


def _wait_until_ready(server: RunningServer, ready: Callable[[int], bool], limit_seconds: float) -> None:
    give_up_at = time.monotonic() + limit_seconds
    while True:
        answered = ready(server.port)
        # In this order: a response counts only if our process is alive after it; otherwise another process sent it.
        code = server.process.poll()
        if code is not None:
            if answered or accepts_connections(server.port):
                raise _PortTaken
            raise ServerFailed(f"{server.name} ended with exit code {code} before it was ready\n{_tail(server.log)}")
        if answered:
            return
        if time.monotonic() > give_up_at:
            raise ServerFailed(f"{server.name} was not ready after {limit_seconds:.0f} s\n{_tail(server.log)}")
        time.sleep(_POLL_SECONDS)


def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Signal the whole group. Only while we have not waited for its leader: after that the number may be another's."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)


def _tail(log: Path, lines: int = 30) -> str:
    last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    return "\n".join([f"the end of {log}:", *last])
