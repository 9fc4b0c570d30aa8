"""Limits for connections: the size of request headers, the duration of a request, and the number of connections.

uvicorn sets no such limits. Without them, anyone who reaches the port could exhaust the memory with endless headers, or
open so many connections that ticks run out of file descriptors.

Connections that wait for their client must not keep others out: those that send no whole request, do not read their
response, or are idle between two requests. If there are too many connections, the oldest of these is closed for the new
one; also if one address has too many without a whole request. If all of them are being answered, a few more are
accepted for health checks: an orchestrator would restart a busy process that does not answer these.
"""

import asyncio
import resource
from typing import Any, ClassVar, Final

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MOST: Final = 64 * 1024
HEAD_SECONDS_MOST: Final = 10.0  # to receive the headers
REQUEST_SECONDS_MOST: Final = 60.0  # to receive all of it; a webhook's body has a shorter limit with its own error
# Without any progress in sending a response: the client does not read. Each holds its buffer and often an open file.
UNREAD_SECONDS_MOST: Final = 30.0
# Only those without a whole request count: behind a proxy, all connections have one address.
INCOMPLETE_PER_ADDRESS_MOST: Final = 200
# Requests that a client sends before it has read the response to an earlier one. Browsers and GitHub send none, and
# each waits in memory: 64 KB hold thousands of small ones.
PIPELINED_MOST: Final = 16
HEALTH_CONNECTIONS: Final = 20
HEALTH_PATHS: Final = ("/healthz", "/readyz", "/readyz/store")
_CONNECTIONS_MOST: Final = 1000


def connections_most() -> int:
    """At most half of the process's file descriptors: the store, Kubernetes and EC2 need the others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS_MOST if soft == resource.RLIM_INFINITY else min(_CONNECTIONS_MOST, soft // 2)


class LimitedConnection(HttpToolsProtocol):
    """One connection. If it exceeds a limit, it gets a short error response and is closed."""

    most: ClassVar[int] = connections_most()
    made: ClassVar[int] = 0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._unparsed_bytes = 0  # received since the last complete request or body chunk
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self.number = 0  # counts connections, so the lowest is the oldest

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        LimitedConnection.made += 1
        self.number = LimitedConnection.made
        others = [each for each in self.connections if isinstance(each, LimitedConnection)]
        super().connection_made(transport)
        incomplete = [each for each in others if each.is_incomplete]
        mine = [each for each in incomplete if each.client and self.client and each.client[0] == self.client[0]]
        if len(mine) >= INCOMPLETE_PER_ADDRESS_MOST:
            min(mine, key=lambda each: each.number).give_way()
        elif len(others) >= self.most and (waiting := [each for each in others if each.waits_for_client]):
            min(waiting, key=lambda each: each.number).give_way()
        elif len(others) >= self.most + HEALTH_CONNECTIONS:
            self._refuse(b"503 Service Unavailable", b"too many connections")
            return
        elif len(others) >= self.most:
            self.app = _health_only(self.app)
        self._expect_head()

    @property
    def is_incomplete(self) -> bool:
        """Whether a request is expected, or arriving."""
        return self._late is not None

    @property
    def waits_for_client(self) -> bool:
        """Whether it is the client's turn: to send a request, or to read the response."""
        return self.is_incomplete or self._unread is not None or self.timeout_keep_alive_task is not None

    def give_way(self) -> None:
        """Close this connection for another one."""
        self._expect_nothing()
        self._abort()
        # Not only when the loop reports it: until then, the next new connection would choose this one again.
        self.connections.discard(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self._expect_no_reading()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        self._expect_no_reading()
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The rest may be too little to pause writing, and `close` waits for it as well.
        if self.transport.get_write_buffer_size():
            self._expect_reading()

    def data_received(self, data: bytes) -> None:
        self._unparsed_bytes += len(data)
        super().data_received(data)
        # Not only headers: chunk extensions and trailers are buffered until they end, too.
        if self._unparsed_bytes > HEAD_BYTES_MOST:
            self._refuse(b"431 Request Header Fields Too Large", b"the request headers are too large")

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED_MOST:
            raise ValueError("too many pipelined requests")  # ends the parsing: uvicorn answers 400, and closes
        super().on_message_begin()
        if not self.transport.get_write_buffer_size():
            self._expect_no_reading()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._expect_nothing()
        self._late = self.loop.call_later(REQUEST_SECONDS_MOST, self.timeout_keep_alive_handler)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed_bytes = 0
        self._expect_nothing()
        super().on_message_complete()

    def _expect_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS_MOST, self.timeout_keep_alive_handler)

    def _expect_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _expect_reading(self) -> None:
        if self._unread is None:
            self._unread = self.loop.call_later(UNREAD_SECONDS_MOST, self._abort_if_unread)

    def _expect_no_reading(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _abort_if_unread(self) -> None:
        self._unread = None
        if self.transport.get_write_buffer_size():
            self._abort()

    def _abort(self) -> None:
        """Close without waiting until the client has read everything, as `close` does."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # otherwise the response would be written to the closed transport
        self.transport.abort()

    def _refuse(self, status: bytes, message: bytes) -> None:
        if not self.transport.is_closing():
            head = b"content-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(message)
            self.transport.write(b"HTTP/1.1 %s\r\n%s%s" % (status, head, message))
            self.transport.close()


def _health_only(app: ASGI3Application) -> ASGI3Application:
    """The application for connections beyond the limit: anything but a health check gets 503."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] not in HEALTH_PATHS:
            headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            await send({"type": "http.response.body", "body": b"too many connections"})
            return
        await app(scope, receive, send)

    return answer
