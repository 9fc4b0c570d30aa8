"""Connections of strangers: how much they may send, how long they may take, and how many there may be.

The server below sets no such limits. Without them anybody who reaches the port could fill the memory with a head that
never ends, or hold so many connections that the ticks find no file left to open.
"""

import asyncio
import resource
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MOST: Final = 64 * 1024
REQUEST_SECONDS_MOST: Final = 60.0  # for all of it to come; a webhook's body has less, and is told so
_CONNECTIONS_MOST: Final = 1000


def connections_most() -> int:
    """At most half of the files that this process may have open: stores, clusters and EC2 need theirs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS_MOST if soft == resource.RLIM_INFINITY else min(_CONNECTIONS_MOST, soft // 2)


class Connection(HttpToolsProtocol):
    """One connection. What the limits refuse is answered in a line, and closed."""

    most: ClassVar[int] = connections_most()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._fruitless_bytes = 0  # that came since the last request, or piece of a body, was whole
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
        self._fruitless_bytes += len(data)
        super().data_received(data)
        # Not only of heads: what follows a body in pieces, and stands between them, is kept as well until it ends.
        if self._fruitless_bytes > HEAD_BYTES_MOST:
            self._refuse(b"431 Request Header Fields Too Large", b"the head of a request is too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_request()

    def on_body(self, body: bytes) -> None:
        self._fruitless_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._fruitless_bytes = 0
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
