"""Requests to the API server over urllib3: sent once, with timeouts, over verified TLS."""

import contextlib
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import HTTPError, SSLError
from urllib3.response import BaseHTTPResponse

from holdfast.adapters.kube.config import KubeAccess
from holdfast.kernel.text import cut

_METHODS: Final = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}
# The connection was cut. Any other TLS error is permanent until a person acts.
_CUT_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait for a connection, and for the next bytes of a response."""

    connect_seconds: float = 3.0
    # An eviction may take ten seconds: that is how long the server retries after a conflict.
    answer_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class Request:
    """One call in RBAC's terms: a verb, a resource, and an object's name if it is about one."""

    verb: str
    resource: str
    path: str
    name: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class KubeResponse:
    status: int
    body: bytes = b""
    retry_after_seconds: float = 0.0


class KubeTransportError(Exception):
    """No response. `refused` if TLS failed in a way that a retry does not fix."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class Stream(Protocol):
    """A response that is read line by line. Iterating raises KubeTransportError if the connection breaks."""

    status: int

    def __iter__(self) -> Iterator[bytes]: ...

    def body(self) -> bytes:
        """The whole body, for an error response."""
        ...

    def interrupt(self) -> None:
        """Stop waiting for the next line, from another thread."""
        ...

    def close(self) -> None: ...


class KubeTransport(Protocol):
    def send(self, request: Request) -> KubeResponse:
        """Send once. Returns a response of any status; raises KubeTransportError if there was none."""
        ...

    def open(self, request: Request, idle_seconds: float) -> Stream:
        """The same for a streamed response; it fails if no byte arrives for `idle_seconds`."""
        ...

    def forget_token(self) -> bool:
        """The server refused the token. Returns whether there is another one now."""
        ...

    def close(self) -> None: ...


def path_of(*segments: str) -> str:
    """A path with escaped segments, so that a name cannot change the path."""
    return "".join("/" + quote(segment, safe="") for segment in segments)


class HttpTransport:
    """Implements `KubeTransport`."""

    def __init__(self, access: KubeAccess, limits: Limits | None = None, *, agent: str = "holdfast") -> None:
        self._access = access
        self._limits = limits or Limits()
        self._agent = agent
        self._pool = urllib3.HTTPSConnectionPool(
            access.server.host,
            access.server.port,
            maxsize=8,
            ssl_context=access.ssl_context(),
            server_hostname=access.server_name,
            retries=False,
        )

    def send(self, request: Request) -> KubeResponse:
        try:
            response = self._request(request, self._limits.answer_seconds, preload=True)
        except HTTPError as error:
            raise _translated(error) from error
        return KubeResponse(response.status, response.data, _seconds(response.headers.get("Retry-After")))

    def open(self, request: Request, idle_seconds: float) -> Stream:
        try:
            return HttpStream(self._request(request, idle_seconds, preload=False))
        except HTTPError as error:
            raise _translated(error) from error

    def forget_token(self) -> bool:
        token = self._access.token
        if token is None:
            return False
        before = token.value()
        token.forget()
        return token.value() != before

    def close(self) -> None:
        self._pool.close()

    def _request(self, request: Request, read_seconds: float, *, preload: bool) -> BaseHTTPResponse:
        url = self._access.server.prefix + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        return self._pool.urlopen(
            _METHODS[request.verb],
            url,
            body=request.body,
            headers=self._headers(request),
            redirect=False,
            timeout=urllib3.Timeout(connect=self._limits.connect_seconds, read=read_seconds),
            preload_content=preload,
        )

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._agent}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if self._access.token:
            headers["Authorization"] = f"Bearer {self._access.token.value()}"
        return headers


class HttpStream:
    """Implements `Stream`."""

    def __init__(self, response: BaseHTTPResponse) -> None:
        self.status = response.status
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        try:
            # The server sends each event as one chunk; a line may still arrive in several.
            for chunk in self._response.stream(2**16):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
        except HTTPError as error:
            raise _translated(error) from error

    def body(self) -> bytes:
        try:
            return self._response.data
        except HTTPError as error:
            raise _translated(error) from error

    def interrupt(self) -> None:
        # It may just have ended by itself, which is fine.
        with contextlib.suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()

    def close(self) -> None:
        # Not returned to the pool: more of the response may still arrive.
        self._response.close()


def _translated(error: HTTPError) -> KubeTransportError:
    cause = error.args[0] if isinstance(error, SSLError) and error.args else error
    refused = isinstance(cause, ssl.SSLError | ssl.CertificateError) and not isinstance(cause, _CUT_OFF)
    reason = getattr(cause, "verify_message", "") or str(cause)
    return KubeTransportError(f"{type(cause).__name__}: {cut(reason, 200)}", refused=refused)


def _seconds(text: str | None) -> float:
    """Retry-After as the API server writes it: whole seconds."""
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 6 else 0.0
