"""Who may look at the pages and the API, and who may act through them.

    where it listens, and what is set        who is let in
    on this machine, nothing set             everybody, as operator; only under a name of this machine (Host)
    anywhere, a token set                    who shows it: as bearer token, or by signing in (a cookie)
    anywhere, a user header set              whom a known proxy names; operators are listed, the others are readers
    beyond this machine, nothing set         nobody

An order (anything but reading and signing out) needs an operator. One that a browser sends must also come from a page
of ours, so no other site can give orders through somebody's browser: its Origin is compared with the Host, and the
cookie is strict.
The Host is checked where nothing else tells strangers apart: a name that another site has bound to 127.0.0.1 is not
one of this machine's.

Webhooks, EC2's events and health checks do not come through here: they have secrets of their own, or tell nothing.
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.console.answers import error_response, has_token, unauthorized
from holdfast.ports.clock import Clock

COOKIE: Final = "holdfast"
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
    """Who asks. `is_browser`: let in by something that a browser adds by itself, so an order may be forged."""

    name: str
    role: Role
    is_browser: bool = True
    may_sign_out: bool = False


@dataclass(frozen=True)
class Access:
    """The rules above, as set. `own_token` is the process's own: the command line has it."""

    clock: Clock
    listens_on: str
    own_token: str = field(repr=False)
    operator_token: str | None = field(default=None, repr=False)
    reader_token: str | None = field(default=None, repr=False)
    user_header: str | None = None
    operators: frozenset[str] = frozenset()
    proxies: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Nothing is set, and only this machine can ask."""
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
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            role = self.role_of_token(given.strip())
            if role is not None:
                return Visitor("token", role, is_browser=False)
        if self.user_header is not None and request.client is not None and request.client.host in self.proxies:
            names = request.headers.getlist(self.user_header)
            name = names[0].strip()[:256] if len(names) == 1 else ""  # of two, one may be a stranger's
            if name:
                return Visitor(name, Role.OPERATOR if name in self.operators else Role.READER)
        role = self._role_of_session(request.cookies.get(COOKIE, ""))
        if role is not None:
            return Visitor(role, role, may_sign_out=True)
        if self.is_open and is_local_name(request.headers.get("host", "")):
            return Visitor("this machine", Role.OPERATOR)
        return None

    def role_of_token(self, given: str) -> Role | None:
        # Each is compared, and in the same time whatever was given.
        tokens = (
            (self.own_token, Role.OPERATOR),
            (self.operator_token, Role.OPERATOR),
            (self.reader_token, Role.READER),
        )
        found = [role for token, role in tokens if token and hmac.compare_digest(given.encode(), token.encode())]
        return found[0] if found else None

    def session(self, role: Role) -> str:
        """What the cookie holds: the role and until when, signed. Every process with the same tokens understands it."""
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
        # A role's cookie is signed with its token: a changed token ends the sessions that it began.
        token = self.operator_token if role is Role.OPERATOR else self.reader_token
        key = hashlib.sha256(f"holdfast session {token}".encode()).digest()
        return hmac.new(key, f"{role}.{until}".encode(), hashlib.sha256).hexdigest()


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
    """Whether a page of ours sent it, as the browser says. Without its word: no."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in _OURS:
        return False
    origin = request.headers.get("origin", "")
    try:
        return bool(origin) and urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    except ValueError:
        return False


def refusal_without_token(request: Request, own_token: str) -> Response | None:
    """The answer to an order that bears neither the process's own token nor an operator's; None: it may be carried out.

    Not by a cookie or a name alone: a page in somebody's browser could give the order by chance.
    """
    visitor = request.scope.get("visitor")
    is_operator = isinstance(visitor, Visitor) and visitor.role is Role.OPERATOR and not visitor.is_browser
    if is_operator or has_token(request, own_token):
        return None
    return unauthorized("CONSOLE_TOKEN, or the token in daemon.json of the data directory")


def next_path(given: str) -> str:
    """A path of this server to go on to; whatever else is asked for, the first page."""
    return given if given.startswith("/") and not given.startswith(("//", "/\\")) and given.isprintable() else "/"


class Guard:
    """Around the application: who is not let in gets no further. Pages lead to the sign-in, the API says 401."""

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
            return self._stranger(request)
        if request.method in _READS:
            return None
        if visitor.is_browser and not is_same_origin(request):
            return error_response(403, "forbidden", "an order must come from a page of this server, or bear a token")
        if visitor.role is not Role.OPERATOR and request.url.path != LOGOUT_PATH:  # everybody may leave
            return error_response(403, "forbidden", "readers may look; this needs an operator's token")
        return None

    def _stranger(self, request: Request) -> Response:
        path = request.url.path
        if self._access.is_closed:
            message = "closed: this is served beyond its own machine, so it needs CONSOLE_TOKEN or CONSOLE_USER_HEADER"
            return error_response(403, "forbidden", message)
        if self._access.is_open:
            message = "asked for under a name that is not this machine's; use http://localhost, or set CONSOLE_TOKEN"
            return error_response(403, "forbidden", message)
        is_page = request.method in _READS and not path.startswith(("/api/", "/live", "/metrics"))
        if is_page and self._access.has_tokens:
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"{LOGIN_PATH}?next={quote(path + query)}", 303)
        message = "this needs a header 'Authorization: Bearer …' with CONSOLE_TOKEN or CONSOLE_READ_TOKEN"
        return error_response(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})
