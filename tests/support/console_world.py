"""The console over a small simulated cluster and a store with webhooks in it, without a server in between."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

from holdfast.console.http.access import Access
from holdfast.console.http.app import build_app
from holdfast.console.http.jobs_api import JobsApi
from holdfast.console.http.live import Live
from holdfast.console.pages.all_pages import Console, Pages
from holdfast.console.pages.checks import CheckPages
from holdfast.console.pages.cluster import ClusterPages
from holdfast.console.pages.job_list import JobListPages
from holdfast.console.pages.jobs import JobPages
from holdfast.console.pages.session import SessionPages
from holdfast.console.pages.shell import MenuEntry, Shell
from holdfast.console.pages.simulator import SimulatorControls, SimulatorPages
from holdfast.control.pause import PauseSwitch
from holdfast.entrypoints.webhook_receiver import record_internal_event
from holdfast.jobs.cost.prices import shipped_prices
from holdfast.jobs.figures.counting import Counting
from holdfast.jobs.intake.tracker import Tracker, installations
from holdfast.jobs.intake.webhook import Delivery
from holdfast.jobs.read.item_views import Viewing
from holdfast.jobs.read.stuck import StuckLimits
from holdfast.kernel.settings import load_settings
from holdfast.views.check_findings import CheckFinding
from holdfast.views.cluster_history import ClusterHistory
from holdfast.views.dashboards import Dashboards
from holdfast.views.job_views import JobViews
from holdfast.views.latest_tick import LatestTick
from tests.payloads import CREATED, delivery, job_payload
from tests.simulation.harness import Stage
from tests.support.application import ServedWorld
from tests.support.figure_stories import count_until_done

OPERATOR = "operator-token-0123456789"
READER = "reader-token-0123456789"
OWN = "own-token-0123456789"
LOCAL = {"host": "127.0.0.1:8080"}
ORIGIN = {"origin": "http://127.0.0.1:8080"}


@dataclass(frozen=True)
class Page:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class ConsoleWorld:
    """With `access` None there is no access check, and visitors have no name."""

    stage: Stage = field(default_factory=lambda: Stage(workers=3, start=CREATED))
    access: Access | None = None
    controls: SimulatorControls | None = None
    runs_ticks: bool = True
    findings: Sequence[CheckFinding] = ()

    def __post_init__(self) -> None:
        stage = self.stage
        self.look, self.live = LatestTick(runs_ticks=self.runs_ticks), Live(look_seconds=0.001)
        self.tracker = Tracker(stage.store, stage.clock, "here")
        settings = load_settings({})
        tracking = JobViews(stage.store, stage.clock, Viewing(shipped_prices()), StuckLimits())
        history = ClusterHistory(stage.store, stage.name)
        self.boards = Dashboards(settings, stage.store, stage.clock, self.look, tracking, shipped_prices(), history)
        shell = Shell("1.2.3", (MenuEntry("/", "Overview"), MenuEntry("/jobs", "Jobs")))
        switches = PauseSwitch(stage.store, stage.clock, stage.name)
        known = partial(installations, stage.store)
        self.pages: list[Pages] = [
            ClusterPages(shell, self.boards, switches.pause, switches.resume),
            JobListPages(shell, tracking, known, stage.clock.now),
            JobPages(shell, tracking, known, stage.clock.now),
            CheckPages(shell, lambda: self.findings),
            *([SessionPages(shell, self.access)] if self.access else []),
            *([SimulatorPages(shell, self.controls)] if self.controls else []),
        ]
        self.api = JobsApi(tracking, partial(record_internal_event, self.tracker), OWN)
        console = Console(shell, self.pages, self.live)
        served = replace(ServedWorld().served(), console=console, access=self.access, jobs=self.api)
        self.app = build_app(served)

    def tick(self, times: int = 1, seconds: float = 60) -> None:
        for _ in range(times):
            ticked = self.stage.tick(seconds=seconds)
            if ticked is not None:
                self.look.ticked(ticked)

    def job(self, action: str, number: int = 1, **fields: Any) -> None:
        at = CREATED.plus(10)
        payload = job_payload(action, at=at, job_id=number, **fields)
        self.take(delivery("workflow_job", payload, at, number))

    def count(self) -> None:
        """Count the jobs that have ended, as the daemon does every minute."""
        for installation in installations(self.stage.store):
            count_until_done(Counting(self.stage.store, self.stage.clock, installation))

    def take(self, sent: Delivery) -> None:
        self.tracker.receive(sent)

    def get(self, path: str, headers: Mapping[str, str] | None = None, /, **query: str) -> Page:
        return self.ask("GET", path, headers, urlencode(query).encode())

    def post(self, path: str, form: dict[str, str], headers: Mapping[str, str] | None = None) -> Page:
        return self.ask("POST", path, headers, body=urlencode(form).encode())

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        query: bytes = b"",
        body: bytes = b"",
        client: str = "127.0.0.1",
        more_headers: Sequence[tuple[str, str]] = (),
    ) -> Page:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        given = {**LOCAL, **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "root_path": "",
            "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in [*more_headers, *given.items()]],
            "server": ("test", 80),
            "client": (client, 1),
            "http_version": "1.1",
        }
        asyncio.run(self.app(scope, receive, send))  # type: ignore[arg-type]
        answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        text = b"".join(message.get("body", b"") for message in sent[1:]).decode()
        return Page(sent[0]["status"], answered, text)
