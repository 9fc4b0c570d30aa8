"""Prometheus: the real one, from Debian's package `prometheus`, scraping what a test serves.

`python -m tests.servers.prometheus` says whether this machine has it, before the tests take half an hour.
"""

from __future__ import annotations

import http.client
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.servers import processes


class Unavailable(Exception):
    """Prometheus cannot run here; the message is one sentence that says why."""


def start(directory: Path, targets: Mapping[str, str], *, honor_labels: bool = False) -> processes.RunningServer:
    """A server that scrapes each target (job name to host:port) twice a second; its files are in the directory.

    With `honor_labels` a page can speak for several instances.
    """
    program = find_program()
    file = directory / "prometheus.yml"
    file.write_text(_configuration(targets, honor_labels=honor_labels), encoding="utf-8")
    return processes.start("prometheus", lambda port: _command(program, file, port), directory, ready=_is_ready)


def find_program() -> str:
    program = shutil.which("prometheus")
    if program is None:
        raise Unavailable("there is no prometheus on this machine; Debian's package has that name.")
    return program


def _command(program: str, file: Path, port: int) -> list[str]:
    return [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={file.parent / 'data'}-{port}",
        f"--web.listen-address={processes.HOST}:{port}",
    ]


def _configuration(targets: Mapping[str, str], *, honor_labels: bool) -> str:
    jobs = "".join(
        f"  - job_name: {name}\n    honor_labels: {str(honor_labels).lower()}\n"
        f"    static_configs:\n      - targets: ['{target}']\n"
        for name, target in targets.items()
    )
    return f"global:\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\nscrape_configs:\n{jobs}"


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(processes.HOST, port, timeout=5)
    try:
        connection.request("GET", "/-/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main() -> None:
    try:
        find_program()
    except Unavailable as reason:
        sys.exit(f"tests: {reason}")


if __name__ == "__main__":
    main()
