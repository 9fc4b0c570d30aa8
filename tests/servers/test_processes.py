"""The helper that starts servers: tests rely on it to clean up, so it has tests of its own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import dynamodb_local, processes
from tests.support.web_server import web_server

ROOT = Path(__file__).parents[2]


def test_a_started_server_responds_until_it_is_stopped(tmp_path: Path) -> None:
    server = processes.start("web", web_server, tmp_path)
    assert processes.answers_http(server.port)
    assert server.url == f"http://127.0.0.1:{server.port}"
    server.stop()
    assert not processes.accepts_connections(server.port)
    server.stop()  # twice is fine


def test_a_server_that_ends_early_shows_the_end_of_its_log(tmp_path: Path) -> None:
    failing = [sys.executable, "-c", "print('no room left'); raise SystemExit(3)"]
    with pytest.raises(processes.ServerFailed, match=r"(?s)web ended with exit code 3.*no room left"):
        processes.start("web", lambda _: failing, tmp_path)


def test_a_server_that_never_responds_is_stopped_at_the_time_limit(tmp_path: Path) -> None:
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    script = f"import os, time; print(os.getpid(), file=open({str(fifo)!r}, 'w'), flush=True); time.sleep(600)"
    seen: list[int] = []

    def never(_: int) -> bool:
        seen.append(int(fifo.read_text()))
        return False

    with pytest.raises(processes.ServerFailed, match="web was not ready after 0 s"):
        processes.start("web", lambda _: [sys.executable, "-c", script], tmp_path, ready=never, limit_seconds=0)
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], 0)


def test_if_a_port_was_taken_meanwhile_another_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = processes.start("web", web_server, tmp_path)
    ports = iter([first.port, processes.free_port()])
    monkeypatch.setattr(processes, "free_port", lambda: next(ports))

    def ours(port: int) -> bool:
        return port != first.port and processes.answers_http(port)

    second = processes.start("web", web_server, tmp_path, ready=ours)
    assert second.port != first.port
    second.stop()
    first.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a server with the process that started it")
def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT)
    with starter:
        assert starter.stdout is not None
        watched = os.pidfd_open(int(starter.stdout.readline()))
        starter.kill()
    ended, _, _ = select.select([watched], [], [], 60)
    os.close(watched)
    assert ended


STARTER = """
import pathlib, sys, time
from tests.servers import processes
from tests.support.web_server import web_server
server = processes.start("web", web_server, pathlib.Path(sys.argv[1]))
print(server.process.pid, flush=True)
time.sleep(600)
"""


def test_without_java_dynamodb_local_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(dynamodb_local.Unavailable, match=r"needs Java 17 or newer, and there is no java"):
        dynamodb_local.start(tmp_path)


def test_an_old_java_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path / "java", """echo 'openjdk version "1.8.0_392"' >&2""")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(dynamodb_local.Unavailable, match=r"needs Java 17 or newer, and .* is of version 1\."):
        dynamodb_local.start(tmp_path)


def test_a_failed_download_says_why_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path / "mvn", "echo '[ERROR] the network is unreachable'; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(dynamodb_local.Unavailable, match="could not be fetched: the network is unreachable"):
        dynamodb_local.fetch()
    assert [path.suffix for path in (tmp_path / "cache" / "holdfast").iterdir()] == [".lock"]


def pretend(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
