"""The web application over a small world, called without a server in between."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from holdfast.console.http.app import Served, build_app
from holdfast.console.metrics.registry import Metrics
from holdfast.kernel.settings import StoreAddress
from holdfast.views.system_status import TableStatus
from tests.clocks import StillClock


@dataclass
class ServedWorld:
    """What the pages show; a test changes the part that it is about."""

    clock: StillClock = field(default_factory=StillClock)
    path: str = ".holdfast/holdfast.db"
    probe: Callable[[], None] = lambda: None
    tables: list[TableStatus] = field(default_factory=lambda: [TableStatus("deployments", "deployments")])
    looks: int = 0
    failure: Exception | None = None

    def look(self) -> list[TableStatus]:
        self.looks += 1
        if self.failure:
            raise self.failure
        return self.tables

    def served(self) -> Served:
        return Served(
            version="1.2.3",
            clock=self.clock,
            started=self.clock.now(),
            store=StoreAddress("sqlite", Path(self.path)),
            probe=lambda: self.probe(),
            tables=self.look,
            metrics=Metrics("1.2.3"),
        )


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(served: Served, path: str, method: str = "GET", app: ASGIApp | None = None) -> Answer:
    """One request to the application, without a server in between."""
    app = app or build_app(served)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"test")],
        "server": ("test", 80),
        "client": ("test", 1),
        "http_version": "1.1",
    }
    with suppress(ZeroDivisionError):  # raised again after the answer, for the server's log
        asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], headers, body.decode())


def fail_with(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail
