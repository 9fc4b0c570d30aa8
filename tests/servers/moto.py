"""moto's server: the shapes of EC2, SSM, SQS and SNS over HTTP, from the virtual environment.

Shapes only. It honours no ClientToken, knows no capacity and shows everything at once: semantics are tested elsewhere.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.servers import processes


def start(log_dir: Path) -> processes.RunningServer:
    """An empty account in each region, ready to answer."""
    return processes.start("moto", _command, log_dir)


def _command(port: int) -> list[str]:
    return [sys.executable, "-m", "moto.server", "-H", processes.HOST, "-p", str(port)]
