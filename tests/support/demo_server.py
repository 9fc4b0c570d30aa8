"""Holdfast as `make run` starts it: in the simulated world, on an empty directory."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from holdfast.jobs.intake.webhook import WebhookSecrets

READY_SECONDS = 60.0


@dataclass
class RunningHoldfast:
    process: "subprocess.Popen[str]"
    port: int
    data: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def webhook(self, event: str, payload: dict[str, Any], delivery: str) -> int:
        """As GitHub sends it, signed with the secret that this world generated."""
        body = json.dumps(payload).encode()
        secrets = WebhookSecrets.from_text((self.data / "webhook-secret").read_text())
        headers = {
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": delivery,
            "X-Hub-Signature-256": secrets.signature_of(body),
            "Content-Type": "application/json",
        }
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", "/webhooks/github", body, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def until(self, path: str, is_true: Any, seconds: float = READY_SECONDS) -> Any:
        """Poll until it is so: the simulated world uses the clock of this machine."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.get(path)
            if is_true(found):
                return found
            time.sleep(0.1)
        raise AssertionError(f"{path}: not within {seconds:g} s")


@contextmanager
def running_holdfast(
    data: Path, port: int = 0, speed: int = 240, settings: Mapping[str, str] | None = None
) -> Iterator[RunningHoldfast]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "CONSOLE_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli.main", "run", "--port", str(port), "--data", str(data)],
        env={**own, "SIM_SPEED": str(speed), "LOG_LEVEL": "error", **(settings or {})},
        cwd=data.parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:([0-9]+)", line)
        assert found, line
        yield RunningHoldfast(process, int(found[1]), data)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
