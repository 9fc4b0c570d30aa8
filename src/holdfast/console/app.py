"""The web application: routes, errors and headers. Everything it shows is passed in."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.console.metrics import Metrics
from holdfast.console.questions import Question
from holdfast.console.status import Status, TablesSeen, TableStatus, age
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import StoreAddress
from holdfast.ports.clock import Clock

_log = logging.getLogger(__name__)

# No scripts at all, nothing from elsewhere, and no other site may frame the pages.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_NOT_STORED: Final = {"Cache-Control": "no-store"}
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
    patience_seconds: float = 2.0  # for each question: a health check that takes longer has failed
    tables_fresh_seconds: float = 10.0  # DynamoDB allows few such calls in a second


def build_app(served: Served) -> ASGIApp:
    pages = _Pages(served)
    app = Starlette(
        routes=[
            Route("/", pages.status),
            Route("/api/status", pages.status_json),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/metrics", pages.metrics),
            Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _unexpected_error},
    )
    # Around the whole application, so that answers to errors have the headers as well.
    return _WithHeaders(app)


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
        templates = Environment(
            loader=PackageLoader("holdfast.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        templates.filters["age"] = age
        self._status_template = templates.get_template("status.html")

    def status(self, _request: Request) -> Response:
        return HTMLResponse(self._status_template.render(status=self._status()), headers=_NOT_STORED)

    def status_json(self, _request: Request) -> Response:
        return JSONResponse(self._status().as_json(), headers=_NOT_STORED)

    async def healthz(self, _request: Request) -> Response:
        return PlainTextResponse("ok")

    def readyz(self, _request: Request) -> Response:
        problem = self._store_problem()
        return error_response(503, "store_unavailable", problem) if problem else PlainTextResponse("ok")

    def metrics(self, _request: Request) -> Response:
        return Response(self._served.metrics.page(), media_type=Metrics.content_type)

    def _status(self) -> Status:
        problem = self._store_problem()
        seen = self._tables_seen()
        return Status(
            version=self._served.version,
            now=self._served.clock.now(),
            started=self._served.started,
            store=self._served.store,
            problem=problem,
            seen=seen,
        )

    def _store_problem(self) -> str | None:
        try:
            self._probe.answer()
        except HoldfastError as error:
            _log.warning("not ready: %s", error)
            return str(error)
        return None

    def _tables_seen(self) -> TablesSeen:
        try:
            return self._tables.answer()
        except HoldfastError as error:
            return TablesSeen(self._served.clock.now(), problem=str(error))

    def _look_at_tables(self) -> TablesSeen:
        return TablesSeen(self._served.clock.now(), tuple(self._served.tables()))


def error_response(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "message": message}}, status)


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    messages = {
        404: f"there is nothing at {request.url.path}",
        405: f"{request.method} is not possible at {request.url.path}",
    }
    message = messages.get(error.status_code, error.detail)
    response = error_response(error.status_code, _CODES.get(error.status_code, "failed"), message)
    response.headers.update(error.headers or {})
    return response


async def _unexpected_error(_request: Request, _error: Exception) -> Response:
    # Starlette raises it again after the answer, so that the server logs its traceback.
    return error_response(500, "internal", "something unexpected went wrong; the log has the details")


class _WithHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)
