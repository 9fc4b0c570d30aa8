"""Access control for the pages and the API: who may read, and who may act.

    listens on          settings             access
    localhost           none                 everyone, as operator; the Host header must name this machine
    anywhere            a token              bearer token, or sign-in with the token (a cookie)
    anywhere            a user header        the user named by a known proxy with its secret, under an allowed Host;
                                             listed operators, all others readers
    other addresses     none                 none

A command (anything but reading and signing out) needs an operator. From a browser it must also come from one of our
pages, so that another site cannot send commands through a user's browser: the Origin must match the Host, and the
cookie is SameSite=strict. Wrong tokens are limited and logged, and a session that was signed out has ended.
Without tokens the Host header is checked, which defeats a foreign name that resolves to 127.0.0.1.

`guard.py` applies these rules to requests.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.console.http.answers import error_response, has_token, unauthorized
from holdfast.console.http.sign_in_limits import SignInLimits
from holdfast.console.http.signed_out import SignedOut
from holdfast.ports.clock import Clock

COOKIE: Final = "holdfast"
TOO_MANY_ATTEMPTS: Final = "Too many wrong tokens from this address. Try again in a quarter of an hour."
PROXY_HEADER: Final = "X-Holdfast-Proxy"
SESSION_SECONDS: Final = 12 * 3600
LOGIN_PATH: Final = "/login"
LOGOUT_PATH: Final = "/logout"
_SESSION: Final = re.compile(
    r"(?P<role>reader|operator)\.(?P<until>[0-9]{1,12})\.(?P<id>[0-9a-f]{32})\.(?P<signature>[0-9a-f]{64})"
)
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
    session: "Session | None" = None

    @property
    def may_sign_out(self) -> bool:
        return self.session is not None


@dataclass(frozen=True, slots=True)
class Session:
    """A sign-in: what its cookie says."""

    role: Role
    until_epoch: int
    id: str


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
    limits: SignInLimits = field(default_factory=SignInLimits, repr=False, compare=False)
    signed_out: SignedOut = field(default_factory=SignedOut, repr=False, compare=False)

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
            role = self.role_of_bearer(request, token.strip())
            if role is not None:
                return Visitor("token", role, is_browser=False)
        name = self._name_by_proxy(request)
        if name:
            return Visitor(name, Role.OPERATOR if name in self.operators else Role.READER)
        session = self._session_of(request.cookies.get(COOKIE, ""))
        if session is not None:
            return Visitor(session.role, session.role, session=session)
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

    def role_of_attempt(self, request: Request, candidate: str) -> Role | None:
        """The role of a token that a stranger sent, unless its address is refused; a wrong one is counted."""
        address, now = self._address_of(request), self.clock.now()
        if self.limits.refused_seconds(address, now):
            return None
        role = self.role_of_token(candidate)
        if role is None and candidate:
            self.limits.failed(address, candidate, now)
        return role

    def role_of_bearer(self, request: Request, candidate: str) -> Role | None:
        # The command line must work at any time; its token is too long to guess.
        if self.own_token and hmac.compare_digest(candidate.encode(), self.own_token.encode()):
            return Role.OPERATOR
        return self.role_of_attempt(request, candidate) if self.has_tokens else None

    def refused_seconds(self, request: Request) -> int:
        return self.limits.refused_seconds(self._address_of(request), self.clock.now())

    def _address_of(self, request: Request) -> str:
        """The client's address; behind a proxy of ours, the one that the proxy appended."""
        address = request.client.host if request.client else ""
        forwarded = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        return forwarded if forwarded and address in self.proxies else address

    def new_session(self, role: Role) -> Session:
        return Session(role, self.clock.now().epoch_seconds + SESSION_SECONDS, secrets.token_hex(16))

    def cookie(self, session: Session) -> str:
        """The session, signed. Valid in every process with the same tokens."""
        return f"{session.role}.{session.until_epoch}.{session.id}.{self._signature(session)}"

    def _session_of(self, cookie: str) -> Session | None:
        found = _SESSION.fullmatch(cookie)
        if found is None:
            return None
        session = Session(Role(found["role"]), int(found["until"]), found["id"])
        is_ours = hmac.compare_digest(found["signature"], self._signature(session))
        is_set = self.operator_token if session.role is Role.OPERATOR else self.reader_token
        return session if is_ours and is_set and self.clock.now().epoch_seconds < session.until_epoch else None

    def _signature(self, session: Session) -> str:
        # Signed with the role's token, so changing the token ends its sessions.
        token = self.operator_token if session.role is Role.OPERATOR else self.reader_token
        key = hashlib.sha256(f"holdfast session {token}".encode()).digest()
        return hmac.new(key, f"{session.role}.{session.until_epoch}.{session.id}".encode(), hashlib.sha256).hexdigest()


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
            return operators_only()
        return await handler(request)

    return Route(path, checked, methods=["POST"])


def operators_only() -> Response:
    return error_response(403, "forbidden", "operators only; you have read access")


def with_query(path: str, request: Request) -> str:
    """The path with the request's query. Not from `request.url`, which older Starlettes build from the Host header."""
    query = request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def next_path(path: str) -> str:
    """The path if it stays on this server, otherwise the front page."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"
