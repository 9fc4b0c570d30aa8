"""A store with deliveries in it, signed as GitHub signs them, and the application over it."""

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from holdfast.console.http.app import build_app
from holdfast.console.http.jobs_api import JobsApi
from holdfast.entrypoints.webhook_receiver import record_internal_event, take_webhook
from holdfast.jobs.cost.prices import shipped_prices
from holdfast.jobs.figures.counting import Counting
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType
from holdfast.jobs.intake.tracker import Tracker, installations
from holdfast.jobs.intake.webhook import Delivery, WebhookSecrets
from holdfast.jobs.model.keys import JobKey
from holdfast.jobs.read.item_views import Viewing
from holdfast.jobs.read.stuck import StuckLimits
from holdfast.kernel.ids import InstallationId, InstanceId, JobId
from holdfast.kernel.settings import SETTINGS
from holdfast.ports.store import Store
from holdfast.views.job_views import JobViews
from tests.clocks import StillClock
from tests.payloads import CREATED, INSTALLATION_ID, JOB_ID, delivery, job_payload, sample
from tests.support.application import ServedWorld
from tests.support.figure_stories import count_until_done

TOKEN = "t" * 43
SECRETS = WebhookSecrets.from_text("It's a Secret to Everybody")
NOW = CREATED.plus(7 * 3600)
# Unlikely names that will occur.
HOSTILE = (
    "<script>alert(1)</script>",
    "\x1b[2J\x00\r\nholdfast: all is well",
    "\u202egnp.exe\u2066",
    "x" * 10_000,
    "[red]markup[/red] | pipe",
    "名前" * 40,
)


@dataclass
class JobWorld:
    """Its jobs were created at ten in the morning; it is five in the afternoon."""

    store: Store
    clock: StillClock

    def __post_init__(self) -> None:
        self.tracker = Tracker(self.store, self.clock, "here")
        questions = JobViews(self.store, self.clock, Viewing(shipped_prices()), StuckLimits())
        api = JobsApi(questions, partial(record_internal_event, self.tracker), TOKEN)
        self.app = build_app(replace(ServedWorld().served(), jobs=api))

    def take(self, sent: Delivery) -> None:
        """As the endpoint does it, including the signature."""
        headers = {
            "x-github-event": sent.event,
            "x-github-delivery": sent.id,
            "x-github-hook-installation-target-id": sent.target,
            "x-hub-signature-256": SECRETS.signature_of(sent.body),
            "content-type": "application/json",
        }
        outcome = take_webhook(headers, sent.body, SECRETS, self.tracker)
        assert (outcome.status, outcome.result) == (200, "stored"), outcome.body

    def job(self, job_id: int, *actions: str, after: float = 0, **fields: Any) -> None:
        """Send these events of a job, ten seconds apart; it was created that many seconds after ten."""
        begin = CREATED.plus(after)
        for number, action in enumerate(actions):
            at = begin.plus(10 * number)
            started = begin.plus(10) if action == "completed" else None
            given = {"created_at": begin.iso_seconds(), **fields}
            self.take(
                delivery(
                    "workflow_job", job_payload(action, at=at, job_id=job_id, started=started, **given), at, job_id
                )
            )

    def count(self) -> None:
        """Count the jobs that have ended, as the daemon does every minute."""
        for installation in installations(self.store):
            count_until_done(Counting(self.store, self.clock, installation))

    def run(self, **fields: Any) -> None:
        payload = sample("workflow_run")
        payload["workflow_run"] |= fields
        self.take(delivery("workflow_run", payload, CREATED))

    def schedule(self, job_id: int = JOB_ID, after: float = 2, **attributes: str) -> None:
        key = JobKey(InstallationId(INSTALLATION_ID), JobId(job_id))
        plan = {"instance_type": "m7i.xlarge", "instance_lifecycle": "spot", "pool_name": "small", **attributes}
        self.tracker.record_event(InternalEvent(key, InternalType.SCHEDULED, CREATED.plus(after), attributes=plan))
        instance = InstanceId("i-0123456789abcde01")
        self.tracker.record_event(
            InternalEvent(key, InternalType.ATTACHED, CREATED.plus(after + 2), instance_id=instance)
        )

    def get(self, path: str, **query: object) -> tuple[int, Any]:
        return self.call("GET", path, query=urlencode(query).encode())

    def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        query: bytes = b"",
        token: str | None = None,
    ) -> tuple[int, Any]:
        sent: list[Mapping[str, Any]] = []
        parts = [body[start : start + 8192] for start in range(0, len(body), 8192)] or [b""]

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"test")]
        if token is not None:
            headers.append((b"authorization", b"Bearer " + token.encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "root_path": "",
            "scheme": "http",
            "headers": headers,
            "server": ("test", 80),
            "client": ("test", 1),
            "http_version": "1.1",
        }
        asyncio.run(self.app(scope, receive, send))  # type: ignore[arg-type]
        return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def in_the_afternoon(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in this directory, with only the settings of the test, and a clock that stands still."""
    monkeypatch.chdir(directory)
    for name in [*os.environ]:
        if name.startswith("HOLDFAST_") or name in {row.name for row in SETTINGS}:
            monkeypatch.delenv(name)
    for place in ("holdfast.entrypoints.wiring.jobs.world_clock", "holdfast.entrypoints.wiring.world.world_clock"):
        monkeypatch.setattr(place, lambda _settings: StillClock(NOW))
    monkeypatch.setattr("holdfast.entrypoints.wiring.stores.SystemClock", lambda: StillClock(NOW))
