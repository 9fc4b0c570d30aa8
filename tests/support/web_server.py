"""A web server that serves an empty directory, as a process."""

from __future__ import annotations

import os
import sys

from tests.servers import processes


def web_server(port: int) -> list[str]:
    return [sys.executable, "-m", "http.server", "--bind", processes.HOST, "--directory", os.devnull, str(port)]
