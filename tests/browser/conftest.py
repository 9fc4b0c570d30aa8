"""A Chromium, and Holdfast as `make run` starts it: in the simulated world, on an empty directory."""

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

import pytest
from playwright.sync_api import Browser

from holdfast.jobs.webhook import WebhookSecrets
from tests.browser.browsing import NO_CHROMIUM, Visitor, found_chromium, running_chromium

PICTURES = Path(__file__).parents[2] / "build" / "pictures"
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
        """As GitHub sends it, signed with the secret that this world made for itself."""
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
        """Asked again until it is so: the simulated world lives by the clock of this machine."""
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


@pytest.fixture(scope="session")
def chromium() -> str:
    """Looked for before anything is started. Where it may be missing, the tests are not even collected."""
    program = found_chromium()
    if program is None:
        pytest.fail(NO_CHROMIUM)
    return program


@pytest.fixture(scope="module")
def holdfast(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHoldfast]:
    """One for all tests that only look, or put back what they changed."""
    with running_holdfast(tmp_path_factory.mktemp("console") / "data") as running:
        running.until("/api/overview", lambda data: data["jobs"]["installations"] and data["latest"])
        running.until("/api/jobs?status=completed", lambda found: len(found.get("items", ())) >= 3)
        yield running


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with running_chromium(chromium) as browser:
        yield browser


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    """Whose browser has nothing to complain of, or the test has failed."""
    visitor = Visitor(browser)
    yield visitor
    visitor.leaves()
    assert visitor.problems == []


@pytest.fixture(scope="session")
def pictures() -> Path:
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES
