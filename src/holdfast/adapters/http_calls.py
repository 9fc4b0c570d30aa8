"""HTTP requests: sent once, TLS verified, no redirects, with limits on time and on the size of the response.

A URL can be a secret (a webhook's is), and so can a header. Messages contain only the host of a URL, and no headers.
So there is no connection pool: urllib3's logs every path at `debug`. Besides, a connection that was kept too long
breaks on its next use.
"""

import http.client
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, NameResolutionError, NewConnectionError
from urllib3.exceptions import TimeoutError as Urllib3Timeout
from urllib3.response import BaseHTTPResponse

from holdfast.kernel.errors import BadSetting
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock

_PIECE_BYTES: Final = 64 * 1024
_PRINTABLE: Final = re.compile(r"[!-~]+")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class HttpFailed(Exception):
    """No usable response; the message is for people, and contains no secret."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    connect_seconds: float = 2.0
    whole_seconds: float = 10.0  # until the last byte of the response
    body_bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case


@dataclass(frozen=True, slots=True, repr=False)
class _Url:
    """A parsed URL; its text leaves out path and query."""

    scheme: str
    host: str
    port: int | None
    path: str
    query: str

    @property
    def port_used(self) -> int:
        return self.port or (443 if self.scheme == "https" else 80)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port else "")

    __repr__ = __str__


class HttpEndpoint:
    """A URL to send requests to. `setting` names the URL in errors, which never contain it."""

    def __init__(
        self,
        address: str,
        clock: Clock,
        *,
        setting: str,
        ca_file: Path | None = None,
        limits: HttpLimits | None = None,
        https_only: bool = False,
    ) -> None:
        self._address = _parsed(address, setting, ("https",) if https_only else ("https", "http"))
        self._clock = clock
        self._limits = limits or HttpLimits()
        self._tls = _verifying_context(ca_file, setting) if self._address.scheme == "https" else None

    @property
    def is_private(self) -> bool:
        """Whether requests are encrypted, or stay on this host."""
        return self._tls is not None or self._address.host in _LOOPBACK

    def __str__(self) -> str:
        return str(self._address)

    __repr__ = __str__

    def path_of(self, address: str) -> str | None:
        """The rest of a URL below this one; None if it is elsewhere: on another host, or at another path."""
        ours, found = self._address, _parts(address)
        base = ours.path.rstrip("/")
        if found is None or (found.scheme, found.host) != (ours.scheme, ours.host) or found.port_used != ours.port_used:
            return None
        if not found.path.startswith(f"{base}/") or ".." in found.path:
            return None
        return found.path.removeprefix(base) + (f"?{found.query}" if found.query else "")

    def post(self, body: bytes, headers: Mapping[str, str], *, path: str = "") -> HttpAnswer:
        """Send a request to this URL followed by `path`, and read the whole response, whatever its status."""
        return self.send("POST", headers, path=path, body=body)

    def send(self, method: str, headers: Mapping[str, str], *, path: str = "", body: bytes | None = None) -> HttpAnswer:
        """The same with any method. A path with a query needs a base URL without one."""
        end_seconds = self._clock.monotonic_seconds() + self._limits.whole_seconds
        connection = self._connection()
        try:
            connection.connect()
            line = connection.sock
            connection.timeout = self._limits.whole_seconds
            target = f"{self._address.path.rstrip('/')}{path}" or "/"
            query = f"?{self._address.query}" if self._address.query else ""
            # No decompression: a small response must not expand to gigabytes. We do not ask for compression, either.
            connection.request(
                method,
                target + query,
                body=body,
                headers={**headers, "Connection": "close", "User-Agent": "holdfast"},
                preload_content=False,
                decode_content=False,
            )
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.headers.items()}
            return HttpAnswer(response.status, self._body(response, line, end_seconds), received)
        except (HTTPError, OSError, http.client.HTTPException) as error:
            raise HttpFailed(f"{self}: {_reason(error)}") from error
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        host, port, seconds = self._address.host, self._address.port, self._limits.connect_seconds
        if self._tls is not None:
            return HTTPSConnection(host, port, timeout=seconds, ssl_context=self._tls)
        return HTTPConnection(host, port, timeout=seconds)

    def _body(self, response: BaseHTTPResponse, line: socket.socket, end_seconds: float) -> bytes:
        """Read in pieces: a socket timeout restarts with each byte, so a slow trickle would never time out."""
        pieces: list[bytes] = []
        size = 0
        while piece := response.read1(_PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > self._limits.body_bytes:
                raise HttpFailed(f"{self}: the response is larger than {self._limits.body_bytes} bytes")
            left_seconds = end_seconds - self._clock.monotonic_seconds()
            if left_seconds <= 0:
                raise HttpFailed(f"{self}: the response took longer than {self._limits.whole_seconds:g} s")
            if line.fileno() >= 0:  # already closed if this was the last piece
                line.settimeout(left_seconds)
        return b"".join(pieces)


def _parsed(address: str, setting: str, schemes: tuple[str, ...]) -> _Url:
    parsed = _parts(address)
    if parsed is None or parsed.scheme not in schemes:
        expected = " or ".join(f"{scheme}://" for scheme in schemes)
        raise BadSetting(f"{setting} is not a URL that begins with {expected} and has a host, but no user")
    return parsed


def _parts(address: str) -> _Url | None:
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return None  # a bad port, or a bad IPv6 address
    if not parts.hostname or "@" in parts.netloc or parts.fragment or not _PRINTABLE.fullmatch(address):
        return None
    return _Url(parts.scheme, parts.hostname, port, parts.path, parts.query)


def _verifying_context(ca_file: Path | None, setting: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        reason = error.strerror or "it contains no certificate"
        raise BadSetting(f"{setting}: the CA file {ca_file} cannot be used: {cut(reason)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _reason(error: Exception) -> str:
    """What happened, without path or headers."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"certificate verification failed: {cut(error.verify_message, 120)}"
        case ssl.SSLError():
            return f"TLS failed: {cut(error.reason or 'no reason given')}"
        case NameResolutionError():
            return "unknown host name"
        case NewConnectionError() if isinstance(error.__cause__, OSError):
            return f"cannot connect: {error.__cause__.strerror}"
        case Urllib3Timeout() | TimeoutError():
            return "timed out"
    return f"connection lost: {type(error).__name__}"
