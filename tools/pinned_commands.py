"""Run commands of Holdfast such that they print the same every time: `python -m tools.pinned_commands < requests.json`.

The clock stands still, ids are fixed, and each command runs in a simulated world of its own, some ticks old. It is a
process of its own because it replaces functions of the standard library.
"""

import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from click.testing import CliRunner

ROOT: Final = Path(__file__).resolve().parent.parent
MORNING_SECONDS: Final = 1_768_467_600  # 2026-01-15T09:00:00Z


def pin() -> None:
    """Fix everything that differs from run to run; the environment holds nothing but what is needed to run."""
    time.time_ns = lambda: MORNING_SECONDS * 1_000_000_000
    time.monotonic = lambda: 0.0
    os.getpid = lambda: 4711
    socket.gethostname = lambda: "laptop"
    secrets.token_hex = lambda nbytes=None: "5eed" * ((nbytes or 4) // 2)
    for name in [*os.environ]:
        if name not in ("PATH", "HOME", "LANG", "PYTHONHASHSEED"):
            del os.environ[name]


def printed(command: str, ticks: int, config: str, exit_code: int) -> str:
    """What the command prints in a new world, after so many ticks, with a copy of that file as its settings."""
    from holdfast.cli.main import cli

    runner = CliRunner()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        if config:
            shutil.copy(ROOT / config, "holdfast.toml")
        for arguments in [*["tick"] * ticks, command.removeprefix("holdfast ")]:
            result = runner.invoke(cli, arguments, catch_exceptions=False)
            if result.exit_code not in (0, exit_code):
                raise SystemExit(f"docs: {arguments!r} failed with exit code {result.exit_code}: {result.stderr}")
        os.chdir(Path(__file__).parent)
        return result.stdout


if __name__ == "__main__":
    pin()
    json.dump([printed(*request) for request in json.load(sys.stdin)], sys.stdout)
