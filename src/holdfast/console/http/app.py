"""The web application: routes, errors and headers. The data it serves is passed in."""

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
from starlette.routing import Match, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.console.http.access import Access
from holdfast.console.http.answers import NOT_STORED, error_response
from holdfast.console.http.cluster_api import ClusterApi
from holdfast.console.http.guard import Guard
from holdfast.console.http.jobs_api import JobsApi
from holdfast.console.http.probes import StoreProbe
from holdfast.console.http.webhooks import Webhooks
from holdfast.console.metrics.registry import Metrics
from holdfast.console.pages.all_pages import Console
from holdfast.console.pages.shell import ErrorPage, Shell, SystemPage
from holdfast.console.schema.openapi import openapi
from holdfast.control.clock_check import WrongClock
from holdfast.kernel.errors import HoldfastError, Retryable
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import StoreAddress
from holdfast.ports.clock import Clock
from holdfast.views.system_status import SystemStatus, TablesSeen, TableStatus, TicksProblem

_log = logging.getLogger(__name__)

# Scripts, styles and data from this server only, nothing inline, no framing by other sites.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not "no-referrer": browsers would then hide the Origin of our own forms, which the access check needs.
    "Referrer-Policy": "same-origin",
}
WEBHOOKS_PATH: Final = "/webhooks/github"
_CODES: Final = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}


@dataclass(frozen=True, slots=True)
class Served:
    """What the application serves. `probe` and `tables` read the store and raise a `HoldfastError` on failure."""

    version: str
    clock: Clock
    started: Instant
    store: StoreAddress
    probe: Callable[[], None]
    tables: Callable[[], Sequence[TableStatus]]
    metrics: Metrics
    ticks: Callable[[], TicksProblem | None] | None = (
        None  # the problem with ticks, if any; None: this process runs no ticks
    )
    check_clock: Callable[[], None] = lambda: None  # raises WrongClock
    cluster: ClusterApi | None = None
    jobs: JobsApi | None = None
    webhooks: Webhooks | None = None
    console: Console | None = None  # None: only the system page is served
    access: Access | None = None  # None: no access control
    patience_seconds: float = 2.0  # a store check that takes longer has failed
    tables_fresh_seconds: float = 10.0  # DynamoDB allows few such calls per second


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
            Mount("/static", StaticFiles(directory=Path(__file__).parents[1] / "static")),
        ],
        exception_handlers={
            HTTPException: pages.http_error,
            ClientDisconnect: _client_disconnected,
            Exception: _unexpected_error,
        },
    )
    guarded = app if served.access is None else Guard(app, served.access)
    # Outermost, so that error responses have the headers too.
    return _WithHeaders(GZipMiddleware(guarded, minimum_size=1024, compresslevel=5), served.webhooks)


class _Pages:
    """Handlers that read the store are plain functions: Starlette runs them in threads."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._probe = StoreProbe(served.probe, served.clock, patience_seconds=served.patience_seconds)
        self._tables = StoreProbe(
            self._read_tables,
            served.clock,
            patience_seconds=served.patience_seconds,
            fresh_seconds=served.tables_fresh_seconds,
        )
        self._shell = served.console.shell if served.console else Shell(served.version)

    def status(self, request: Request) -> Response:
        page = SystemPage(self._status())
        return self._shell.render(request, "status.html", page, title="System", json_path="/api/status")

    def status_json(self, _request: Request) -> Response:
        return JSONResponse(self._status().as_json(), headers=NOT_STORED)

    async def openapi(self, _request: Request) -> Response:
        return JSONResponse(openapi(self._served.version))

    async def healthz(self, _request: Request) -> Response:
        return PlainTextResponse("ok")

    def readyz(self, request: Request) -> Response:
        """Ready if the store answers, the clock is right and ticks succeed."""
        answer = self.store_ready(request)
        wrong = self._clock_error() if answer.status_code == 200 else None
        if wrong is not None:
            return error_response(503, "wrong_clock", str(wrong))
        problem = self._ticks_problem() if answer.status_code == 200 else None
        # Unauthenticated: EC2's messages name accounts and roles, so they are shown on the system page only.
        return error_response(503, "ticks_failing", f"{problem.text}; see /system") if problem else answer

    def store_ready(self, _request: Request) -> Response:
        """The store only: webhooks can be received even if ticks fail."""
        error = self._store_error()
        if error is None:
            return PlainTextResponse("ok")
        # Unauthenticated too: DynamoDB's refusals name the role and the account.
        message = str(error) if isinstance(error, Retryable) else f"{error.words}; see /system and the log"
        return error_response(503, "store_unavailable", message)

    def metrics(self, _request: Request) -> Response:
        return Response(self._served.metrics.page(), media_type=Metrics.content_type, headers=NOT_STORED)

    async def http_error(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        path = request.scope["path"]
        messages = {404: f"no page at {path}", 405: f"{request.method} is not allowed for {path}"}
        message = messages.get(error.status_code, error.detail)
        if error.status_code == 404 and "text/html" in request.headers.get("accept", ""):
            page = ErrorPage(message, "Not found")
            return self._shell.render(request, "error.html", page, title="Not found", status=404)
        response = error_response(error.status_code, _CODES.get(error.status_code, "failed"), message)
        response.headers.update(error.headers or {})
        if error.status_code == 405:
            response.headers["Allow"] = ", ".join(sorted(_methods_of(request)))
        return response

    def _status(self) -> SystemStatus:
        error, ticks = self._store_error() or self._clock_error(), self._ticks_problem()
        seen = self._tables_seen()
        return SystemStatus(
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

    def _clock_error(self) -> WrongClock | None:
        """At once, without the grace of a failed tick: a wrong clock does not pass by itself."""
        try:
            self._served.check_clock()
        except WrongClock as error:
            return error
        return None

    def _ticks_problem(self) -> TicksProblem | None:
        return self._served.ticks() if self._served.ticks else None

    def _tables_seen(self) -> TablesSeen:
        try:
            return self._tables.answer()
        except HoldfastError as error:
            return TablesSeen(self._served.clock.now(), problem=str(error))

    def _read_tables(self) -> TablesSeen:
        return TablesSeen(self._served.clock.now(), tuple(self._served.tables()))


def _methods_of(request: Request) -> set[str]:
    """What the path allows. Starlette names only the methods of the first route with that path, or none for files."""
    scope = {**request.scope, "root_path": ""}  # as it was before a route changed it
    allowed: set[str] = set()
    for route in request.app.routes:
        if route.matches(scope)[0] is not Match.NONE:
            allowed |= (route.methods or set()) if isinstance(route, Route) else {"GET", "HEAD"}
    return allowed


async def _client_disconnected(_request: Request, _error: Exception) -> Response:
    # The client is gone. Treated as unexpected, it would let anyone fill the log with tracebacks.
    return error_response(400, "bad_request", "the request body is incomplete")


async def _unexpected_error(_request: Request, _error: Exception) -> Response:
    # Starlette raises the error again afterwards, so the server logs its traceback.
    return error_response(500, "internal", "internal error; see the log for details")


class _WithHeaders:
    def __init__(self, app: ASGIApp, webhooks: ASGIApp | None) -> None:
        self._app = app
        self._webhooks = webhooks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._webhooks is not None and scope["type"] == "http" and scope["path"] == WEBHOOKS_PATH:
            await self._webhooks(scope, receive, send)  # bypasses the page middleware: this is the busiest route
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, send_with_headers)
