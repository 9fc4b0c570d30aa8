"""Limits for connections: the size of request headers, the duration of a request, and the number of connections.

uvicorn sets no such limits. Without them, anyone who reaches the port could exhaust the memory with endless headers, or
open so many connections that ticks run out of file descriptors.
"""

import asyncio
import resource
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MOST: Final = 64 * 1024
REQUEST_SECONDS_MOST: Final = 60.0  # to receive all of it; a webhook's body has a shorter limit with its own error
_CONNECTIONS_MOST: Final = 1000


def connections_most() -> int:
    """At most half of the process's file descriptors: the store, Kubernetes and EC2 need the others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS_MOST if soft == resource.RLIM_INFINITY else min(_CONNECTIONS_MOST, soft // 2)


class LimitedConnection(HttpToolsProtocol):
    """One connection. If it exceeds a limit, it gets a short error response and is closed."""

    most: ClassVar[int] = connections_most()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._unparsed_bytes = 0  # received since the last complete request or body chunk
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._refuse(b"503 Service Unavailable", b"too many connections")
        else:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unparsed_bytes += len(data)
        super().data_received(data)
        # Not only headers: chunk extensions and trailers are buffered until they end, too.
        if self._unparsed_bytes > HEAD_BYTES_MOST:
            self._refuse(b"431 Request Header Fields Too Large", b"the request headers are too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_request()

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed_bytes = 0
        self._expect_nothing()
        super().on_message_complete()

    def _expect_request(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(REQUEST_SECONDS_MOST, self.timeout_keep_alive_handler)

    def _expect_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, status: bytes, message: bytes) -> None:
        if not self.transport.is_closing():
            head = b"content-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(message)
            self.transport.write(b"HTTP/1.1 %s\r\n%s%s" % (status, head, message))
            self.transport.close()
