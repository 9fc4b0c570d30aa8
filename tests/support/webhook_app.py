"""The whole web application around the store of a test, called without a server in between."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.adapters.memory import memory_store
from holdfast.console.http.app import WEBHOOKS_PATH, Served, build_app
from holdfast.console.http.webhooks import Webhooks
from holdfast.console.metrics.registry import Metrics
from holdfast.entrypoints.server import _webhook_taker
from holdfast.jobs.intake.json_limits import BODY_BYTES_MOST
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import WebhookSecrets
from holdfast.kernel.settings import StoreAddress
from holdfast.ports.store import Store
from tests.clocks import StillClock
from tests.payloads import CREATED, delivery_id, job_payload

SECRET = "hush-hush-one"
DELIVERY = delivery_id(CREATED)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    raw: bytes
    chunks_read: int

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


@dataclass
class Endpoint:
    """The application, and the store behind it."""

    store: Store = field(default_factory=lambda: memory_store(StillClock()))
    secret: str = SECRET

    def __post_init__(self) -> None:
        clock = StillClock()
        metrics = Metrics("1.2.3")
        tracker = Tracker(self.store, clock, "here")
        known = WebhookSecrets.from_text(self.secret)
        self.metrics = metrics
        self._app = build_app(
            Served(
                version="1.2.3",
                clock=clock,
                started=clock.now(),
                store=StoreAddress("sqlite", Path("x.db")),
                probe=lambda: None,
                tables=list,
                metrics=metrics,
                webhooks=Webhooks(_webhook_taker(known, tracker, metrics), BODY_BYTES_MOST),
            )
        )

    def send(self, body: bytes, headers: Mapping[str, str | None] | None = None, **more: Any) -> Answer:
        """A delivery, signed unless `headers` override it; None leaves a header out."""
        return self.ask([body], {**signed(body), **(headers or {})}, **more)

    def send_job(self, action: str = "queued", **fields: Any) -> Answer:
        return self.send(json.dumps(job_payload(action, **fields)).encode())

    def ask(
        self,
        chunks: Iterable[bytes],
        headers: Mapping[str, str | None],
        *,
        method: str = "POST",
        path: str = WEBHOOKS_PATH,
    ) -> Answer:
        """One request whose body arrives in these chunks; as many are read as the application requests."""
        coming = iter([*_more(chunks)])
        sent: list[dict[str, Any]] = []
        read = 0

        async def receive() -> dict[str, Any]:
            nonlocal read
            read += 1
            return next(coming, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            sent.append(message)

        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [
                (name.encode(), value.encode("latin-1")) for name, value in headers.items() if value is not None
            ],
            "server": ("test", 80),
            "client": ("test", 1),
            "http_version": "1.1",
        }
        asyncio.run(self._app(scope, receive, send))  # type: ignore[arg-type]
        answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(sent[0]["status"], answered, body, read)


def _more(chunks: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    held = list(chunks)
    for number, chunk in enumerate(held, 1):
        yield {"type": "http.request", "body": chunk, "more_body": number < len(held)}


def signed(body: bytes, secret: str = SECRET, event: str = "workflow_job", delivery: str = DELIVERY) -> dict[str, str]:
    """The headers that GitHub sends."""
    return {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "user-agent": "GitHub-Hookshot/044aadd",
        "x-github-event": event,
        "x-github-delivery": delivery,
        "x-github-hook-installation-target-id": "99",
        "x-hub-signature-256": WebhookSecrets.from_text(secret).signature_of(body),
    }
