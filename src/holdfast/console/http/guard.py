"""Applies the rules of `access.py` to every request.

Webhooks, EC2 events and health checks bypass this: they have their own secrets, or reveal nothing.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.console.http.access import (
    LOGIN_PATH,
    LOGOUT_PATH,
    TOO_MANY_ATTEMPTS,
    Access,
    Role,
    Session,
    Visitor,
    is_same_origin,
    operators_only,
    with_query,
)
from holdfast.console.http.answers import error_response

_UNGUARDED: Final = frozenset({"/webhooks/github", "/events/aws", "/healthz", "/readyz", "/readyz/store", LOGIN_PATH})
_READS: Final = frozenset({"GET", "HEAD"})


class Guard:
    """Middleware that rejects unauthorised requests: pages redirect to the sign-in, the API answers 401."""

    def __init__(self, app: ASGIApp, access: Access, unguarded: Iterable[str] = _UNGUARDED) -> None:
        self._app = app
        self._access = access
        self._unguarded = frozenset(unguarded)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._unguarded or scope["path"].startswith("/static/"):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        visitor = self._access.visitor(request)
        if visitor is not None and visitor.session is not None and await self._is_signed_out(visitor.session):
            visitor = None
        refusal = self._refusal(request, visitor)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        scope["visitor"] = visitor
        await self._app(scope, receive, send)

    async def _is_signed_out(self, session: Session) -> bool:
        ended, now = self._access.signed_out, self._access.clock.now()
        if ended.is_known(session.id, now):
            return ended.is_ended(session.id, now)
        return await run_in_threadpool(ended.is_ended, session.id, now)

    def _refusal(self, request: Request, visitor: Visitor | None) -> Response | None:
        if visitor is None:
            return self._unknown_visitor(request)
        if request.method in _READS:
            return None
        if visitor.is_browser and not is_same_origin(request):
            return error_response(
                403, "forbidden", "the request must come from a page of this server, or carry a bearer token"
            )
        if visitor.role is not Role.OPERATOR and request.scope["path"] != LOGOUT_PATH:  # anyone may sign out
            return operators_only()
        return None

    def _unknown_visitor(self, request: Request) -> Response:
        path = request.scope["path"]
        seconds = self._access.refused_seconds(request)
        if seconds and "authorization" in request.headers:
            return error_response(429, "too_many_attempts", TOO_MANY_ATTEMPTS, {"Retry-After": str(seconds)})
        if self._access.is_closed:
            message = "access is disabled: beyond localhost, set CONSOLE_TOKEN or CONSOLE_USER_HEADER"
            return error_response(403, "forbidden", message)
        if self._access.is_open:
            message = "the Host header does not name this machine; use http://localhost, or set CONSOLE_TOKEN"
            return error_response(403, "forbidden", message)
        is_page = request.method in _READS and not path.startswith(("/api/", "/live", "/metrics"))
        if is_page and self._access.has_tokens:
            return RedirectResponse(f"{LOGIN_PATH}?next={quote(with_query(path, request))}", 303)
        message = "send the header 'Authorization: Bearer …' with CONSOLE_TOKEN or CONSOLE_READ_TOKEN"
        return error_response(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})
