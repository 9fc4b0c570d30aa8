"""A small HTTP server in this process that responds as a test says, and records the requests.

It speaks real HTTP over a real socket, so that time-outs, resets, certificates and partial responses are real too.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from tests.servers.processes import HOST


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        """The body as form fields."""
        return {name: values[0] for name, values in parse_qs(self.body.decode(), keep_blank_values=True).items()}


@dataclass(frozen=True)
class Reply:
    """The response. The connection ends that many bytes before the announced length."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    missing_bytes: int = 0


class Silence(Exception):
    """Do not respond, and keep the connection open."""


class Reset(Exception):
    """Break the connection."""


Script = Callable[[Asked], Reply]


class ScriptedServer(ThreadingHTTPServer):
    """Serves on a free port; `asked` grows with each request."""

    daemon_threads = True

    def __init__(self, script: Script, tls: ssl.SSLContext | None) -> None:
        super().__init__((HOST, 0), _Handler)
        self.script = script
        self.asked: list[Asked] = []
        self.mistakes: list[Exception] = []
        self.ended = threading.Event()
        self._tls = tls

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{HOST}:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        if self._tls:
            # The handshake waits for the connection's own thread: a client that refuses us must not stop the others.
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, *_: object) -> None:
        pass  # tests include clients that refuse the certificate or disconnect


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        self.server.asked.append(asked)
        try:
            reply = self.server.script(asked)
        except Silence:
            self.server.ended.wait()
            self.close_connection = True
        except Reset:
            _reset(self.connection)
            self.close_connection = True
        except Exception as mistake:
            self.server.mistakes.append(mistake)
            raise
        else:
            self.answer(reply)

    def answer(self, reply: Reply) -> None:
        # The first one adds a date; a reply may have its own.
        (self.send_response_only if "Date" in reply.headers else self.send_response)(reply.status)
        headers = {"Content-Length": str(len(reply.body) + reply.missing_bytes), **reply.headers}
        if self.close_connection:  # as the client requested
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)
        self.close_connection |= bool(reply.missing_bytes)

    do_GET = do_POST = handle_one  # noqa: N815  http.server's names

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    """Serve until the block ends. A script may raise `Silence` or `Reset` instead of returning a reply.

    Anything else that it raises is an error in the test, and is raised at the end.
    """
    server = ScriptedServer(script, tls)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
    if server.mistakes:
        raise server.mistakes[0]


def _reset(connection: socket.socket) -> None:
    """Close with RST, as a machine that has lost the connection does."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
