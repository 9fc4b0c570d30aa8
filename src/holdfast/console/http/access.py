"""Access control for the pages and the API: who may read, and who may act.

    listens on          settings             access
    localhost           none                 everyone, as operator; the Host header must name this machine
    anywhere            a token              bearer token, or sign-in with the token (a cookie)
    anywhere            a user header        the user named by a known proxy with its secret, under an allowed Host;
                                             listed operators, all others readers
    other addresses     none                 none

A command (anything but reading and signing out) needs an operator. From a browser it must also come from one of our
pages, so that another site cannot send commands through a user's browser: the Origin must match the Host, and the
cookie is SameSite=strict.
Without tokens the Host header is checked, which defeats a foreign name that resolves to 127.0.0.1.

Webhooks, EC2 events and health checks bypass this: they have their own secrets, or reveal nothing.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.console.http.answers import error_response, has_token, unauthorized
from holdfast.ports.clock import Clock

COOKIE: Final = "holdfast"
PROXY_HEADER: Final = "X-Holdfast-Proxy"
SESSION_SECONDS: Final = 12 * 3600
LOGIN_PATH: Final = "/login"
LOGOUT_PATH: Final = "/logout"
_UNGUARDED: Final = frozenset({"/webhooks/github", "/events/aws", "/healthz", "/readyz", "/readyz/store", LOGIN_PATH})
_READS: Final = frozenset({"GET", "HEAD"})
_OURS: Final = frozenset({"same-origin", "none"})


class Role(StrEnum):
    READER = "reader"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who sent the request. `is_browser`: authenticated by something a browser adds by itself, so it may be forged."""

    name: str
    role: Role
    is_browser: bool = True
    may_sign_out: bool = False


@dataclass(frozen=True)
class Access:
    """The rules above, configured. `own_token` is created by the process; the command line reads it from a file."""

    clock: Clock
    listens_on: str
    own_token: str = field(repr=False)
    operator_token: str | None = field(default=None, repr=False)
    reader_token: str | None = field(default=None, repr=False)
    user_header: str | None = None
    operators: frozenset[str] = frozenset()
    proxies: frozenset[str] = frozenset()
    proxy_secret: str | None = field(default=None, repr=False)
    hosts: frozenset[str] = frozenset()  # in lower case

    @property
    def is_open(self) -> bool:
        """No access settings, and only this machine can connect."""
        return not self._is_set and is_loopback(self.listens_on)

    @property
    def is_closed(self) -> bool:
        return not self._is_set and not is_loopback(self.listens_on)

    @property
    def has_tokens(self) -> bool:
        return self.operator_token is not None or self.reader_token is not None

    @property
    def _is_set(self) -> bool:
        return self.has_tokens or self.user_header is not None

    def visitor(self, request: Request) -> Visitor | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            role = self.role_of_token(token.strip())
            if role is not None:
                return Visitor("token", role, is_browser=False)
        name = self._name_by_proxy(request)
        if name:
            return Visitor(name, Role.OPERATOR if name in self.operators else Role.READER)
        role = self._role_of_session(request.cookies.get(COOKIE, ""))
        if role is not None:
            return Visitor(role, role, may_sign_out=True)
        if self.is_open and is_local_name(request.headers.get("host", "")):
            return Visitor("this machine", Role.OPERATOR)
        return None

    def _name_by_proxy(self, request: Request) -> str:
        """The user that the proxy names, or "".

        Its address is not enough: any process on its machine has that, too. Neither is its secret: a page under another
        name that resolves to the proxy could send requests through a signed-in user's browser.
        """
        if self.user_header is None or request.client is None or request.client.host not in self.proxies:
            return ""
        secret, expected = _only(request, PROXY_HEADER), self.proxy_secret or ""
        if not expected or not hmac.compare_digest(secret.encode(), expected.encode()):
            return ""
        if request.headers.get("host", "").lower() not in self.hosts:
            return ""
        return _only(request, self.user_header).strip()[:256]

    def role_of_token(self, candidate: str) -> Role | None:
        # Compare all of them in constant time.
        tokens = (
            (self.own_token, Role.OPERATOR),
            (self.operator_token, Role.OPERATOR),
            (self.reader_token, Role.READER),
        )
        found = [role for token, role in tokens if token and hmac.compare_digest(candidate.encode(), token.encode())]
        return found[0] if found else None

    def session(self, role: Role) -> str:
        """The cookie's value: role and expiry, signed. Valid in every process with the same tokens."""
        until = self.clock.now().epoch_seconds + SESSION_SECONDS
        return f"{role}.{until}.{self._signature(role, until)}"

    def _role_of_session(self, text: str) -> Role | None:
        role, _, rest = text.partition(".")
        until, _, signature = rest.partition(".")
        if role not in set(Role) or not (until.isascii() and until.isdigit() and len(until) < 13):
            return None
        is_ours = hmac.compare_digest(signature.encode(), self._signature(Role(role), int(until)).encode())
        is_set = self.operator_token if role == Role.OPERATOR else self.reader_token
        return Role(role) if is_ours and is_set and self.clock.now().epoch_seconds < int(until) else None

    def _signature(self, role: Role, until: int) -> str:
        # Signed with the role's token, so changing the token ends its sessions.
        token = self.operator_token if role is Role.OPERATOR else self.reader_token
        key = hashlib.sha256(f"holdfast session {token}".encode()).digest()
        return hmac.new(key, f"{role}.{until}".encode(), hashlib.sha256).hexdigest()


def _only(request: Request, header: str) -> str:
    """The header's value; "" if it is missing, or sent twice: one of the two may be forged."""
    values = request.headers.getlist(header)
    return values[0] if len(values) == 1 else ""


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_local_name(host: str) -> bool:
    """Whether a Host header names this machine, with any port."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)


def is_same_origin(request: Request) -> bool:
    """Whether the browser says that one of our pages sent it."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in _OURS:
        return False
    origin = request.headers.get("origin", "")
    try:
        return bool(origin) and urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    except ValueError:
        return False


def refusal_without_token(request: Request, own_token: str) -> Response | None:
    """The refusal of a command without the process's own or an operator's token; None if it is allowed.

    A cookie or a user header is not enough: another site's page could make a browser send the command.
    """
    visitor = request.scope.get("visitor")
    is_operator = isinstance(visitor, Visitor) and visitor.role is Role.OPERATOR and not visitor.is_browser
    if is_operator or has_token(request, own_token):
        return None
    return unauthorized("CONSOLE_TOKEN, or the token from daemon.json in the data directory")


def command_route(path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
    """A route that changes something. It checks the role again, in case the guard is bypassed."""

    async def checked(request: Request) -> Response:
        visitor = request.scope.get("visitor")
        if not isinstance(visitor, Visitor) or visitor.role is not Role.OPERATOR:
            return _operators_only()
        return await handler(request)

    return Route(path, checked, methods=["POST"])


def _operators_only() -> Response:
    return error_response(403, "forbidden", "operators only; you have read access")


def with_query(path: str, request: Request) -> str:
    """The path with the request's query. Not from `request.url`, which older Starlettes build from the Host header."""
    query = request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def next_path(path: str) -> str:
    """The path if it stays on this server, otherwise the front page."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"


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
        refusal = self._refusal(request, visitor)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        scope["visitor"] = visitor
        await self._app(scope, receive, send)

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
            return _operators_only()
        return None

    def _unknown_visitor(self, request: Request) -> Response:
        path = request.scope["path"]
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
