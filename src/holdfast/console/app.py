"""The web application: routes, errors and headers. Everything it shows is passed in."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.console.access import Access, Guard
from holdfast.console.answers import NOT_STORED, error_response
from holdfast.console.api import ClusterApi
from holdfast.console.jobs_api import JobsApi
from holdfast.console.metrics import Metrics
from holdfast.console.openapi import openapi
from holdfast.console.pages.console import Console
from holdfast.console.pages.shell import Shell
from holdfast.console.questions import Question
from holdfast.console.status import Status, TablesSeen, TableStatus, TicksProblem
from holdfast.console.webhooks import Webhooks
from holdfast.kernel.errors import HoldfastError, Retryable
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import StoreAddress
from holdfast.ports.clock import Clock

_log = logging.getLogger(__name__)

# Scripts, styles and data of this server alone, nothing inline, and no other site may frame the pages.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not "no-referrer": browsers would then hide the origin of our own forms, and these are judged by it.
    "Referrer-Policy": "same-origin",
}
WEBHOOKS_PATH: Final = "/webhooks/github"
_CODES: Final = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}


@dataclass(frozen=True, slots=True)
class Served:
    """What the pages need. `probe` and `tables` ask the store, and raise a `HoldfastError` when there is no answer."""

    version: str
    clock: Clock
    started: Instant
    store: StoreAddress
    probe: Callable[[], None]
    tables: Callable[[], Sequence[TableStatus]]
    metrics: Metrics
    ticks: Callable[[], TicksProblem | None] | None = None  # what is wrong with them; None: nobody ticks here
    cluster: ClusterApi | None = None
    jobs: JobsApi | None = None
    webhooks: Webhooks | None = None
    console: Console | None = None  # without it there is one page: the system's
    access: Access | None = None  # None: whoever asks is answered
    patience_seconds: float = 2.0  # for each question: a health check that takes longer has failed
    tables_fresh_seconds: float = 10.0  # DynamoDB allows few such calls in a second


def build_app(served: Served) -> ASGIApp:
    pages = _Pages(served)
    app = Starlette(
        routes=[
            Route("/system" if served.console else "/", pages.status),
            Route("/api/status", pages.status_json),
            Route("/api/openapi.json", pages.openapi),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/readyz/store", pages.store_ready),
            Route("/metrics", pages.metrics),
            *(served.cluster.routes() if served.cluster else ()),
            *(served.jobs.routes() if served.jobs else ()),
            *(served.console.routes() if served.console else ()),
            Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
        ],
        exception_handlers={
            HTTPException: pages.http_error,
            ClientDisconnect: _hung_up,
            Exception: _unexpected_error,
        },
    )
    guarded = app if served.access is None else Guard(app, served.access)
    # Around the whole application, so that answers to errors have the headers as well.
    return _WithHeaders(GZipMiddleware(guarded, minimum_size=1024, compresslevel=5), served.webhooks)


class _Pages:
    """Those that ask the store are plain functions: Starlette runs them in threads of its own."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._probe = Question(served.probe, served.clock, patience_seconds=served.patience_seconds)
        self._tables = Question(
            self._look_at_tables,
            served.clock,
            patience_seconds=served.patience_seconds,
            fresh_seconds=served.tables_fresh_seconds,
        )
        self._shell = served.console.shell if served.console else Shell(served.version)

    def status(self, request: Request) -> Response:
        data = {"status": self._status()}
        return self._shell.render(request, "status.html", data, title="System", json_path="/api/status")

    def status_json(self, _request: Request) -> Response:
        return JSONResponse(self._status().as_json(), headers=NOT_STORED)

    async def openapi(self, _request: Request) -> Response:
        return JSONResponse(openapi(self._served.version))

    async def healthz(self, _request: Request) -> Response:
        return PlainTextResponse("ok")

    def readyz(self, request: Request) -> Response:
        """The store answers, and ticks come to something."""
        answer = self.store_ready(request)
        problem = self._ticks_problem() if answer.status_code == 200 else None
        # Anybody may ask. What EC2 said names accounts and roles: that is on the system's page.
        return error_response(503, "ticks_failing", f"{problem.text}; /system says more") if problem else answer

    def store_ready(self, _request: Request) -> Response:
        """The store alone: webhooks can be taken in, whatever becomes of the ticks."""
        error = self._store_error()
        if error is None:
            return PlainTextResponse("ok")
        # Here as well: a refusal of DynamoDB's has the role in it, and the account.
        told = str(error) if isinstance(error, Retryable) else f"{type(error).__name__}; /system and the log say more"
        return error_response(503, "store_unavailable", told)

    def metrics(self, _request: Request) -> Response:
        return Response(self._served.metrics.page(), media_type=Metrics.content_type, headers=NOT_STORED)

    async def http_error(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        messages = {
            404: f"there is nothing at {request.url.path}",
            405: f"{request.method} is not possible at {request.url.path}",
        }
        message = messages.get(error.status_code, error.detail)
        if error.status_code == 404 and "text/html" in request.headers.get("accept", ""):
            data = {"problem": message, "kind": "Not found", "passes": False}
            return self._shell.render(request, "error.html", data, title="Not found", status=404)
        response = error_response(error.status_code, _CODES.get(error.status_code, "failed"), message)
        response.headers.update(error.headers or {})
        return response

    def _status(self) -> Status:
        error, ticks = self._store_error(), self._ticks_problem()
        seen = self._tables_seen()
        return Status(
            version=self._served.version,
            now=self._served.clock.now(),
            started=self._served.started,
            store=self._served.store,
            problem=str(error or ticks) if error or ticks else None,
            seen=seen,
        )

    def _store_error(self) -> HoldfastError | None:
        try:
            self._probe.answer()
        except HoldfastError as error:
            _log.warning("not ready: %s", error)
            return error
        return None

    def _ticks_problem(self) -> TicksProblem | None:
        return self._served.ticks() if self._served.ticks else None

    def _tables_seen(self) -> TablesSeen:
        try:
            return self._tables.answer()
        except HoldfastError as error:
            return TablesSeen(self._served.clock.now(), problem=str(error))

    def _look_at_tables(self) -> TablesSeen:
        return TablesSeen(self._served.clock.now(), tuple(self._served.tables()))


async def _hung_up(_request: Request, _error: Exception) -> Response:
    # Nobody reads it. As an unexpected error, any stranger could fill the log with tracebacks.
    return error_response(400, "bad_request", "the body ended early")


async def _unexpected_error(_request: Request, _error: Exception) -> Response:
    # Starlette raises it again after the answer, so that the server logs its traceback.
    return error_response(500, "internal", "something unexpected went wrong; the log has the details")


class _WithHeaders:
    def __init__(self, app: ASGIApp, webhooks: ASGIApp | None) -> None:
        self._app = app
        self._webhooks = webhooks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._webhooks is not None and scope["type"] == "http" and scope["path"] == WEBHOOKS_PATH:
            await self._webhooks(scope, receive, send)  # past all that pages need: it is called most
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, send_with_headers)
