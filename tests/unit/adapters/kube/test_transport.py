"""Requests over real sockets and TLS: every wait has a limit, and each failure has its own error."""

import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import trustme

from holdfast.adapters.kube.config import ApiServerAddress, KubeAccess
from holdfast.adapters.kube.tokens import FixedToken
from holdfast.adapters.kube.transport import HttpTransport, KubeTransportError, Limits, Request

CA = trustme.CA()
SERVER_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
CA.issue_cert("127.0.0.1").configure_cert(SERVER_TLS)
LIST = Request("list", "nodes", "/api/v1/nodes")

Handler = http.server.BaseHTTPRequestHandler
Answering = Callable[[Handler], None]


class Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Some of the tests disconnect on purpose."""


@contextmanager
def talking_to(
    answering: Answering, *, tls: bool = True, prefix: str = "", limits: Limits | None = None
) -> Iterator[HttpTransport]:
    """A transport to a server on the loopback address that sends this response to every request."""

    class Scripted(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # noqa: N802 -- the server looks for these names
            answering(self)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with Quiet(("127.0.0.1", 0), Scripted) as web:
        if tls:
            web.socket = SERVER_TLS.wrap_socket(web.socket, server_side=True)
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        server = ApiServerAddress("127.0.0.1", web.server_address[1], prefix)
        access = KubeAccess(server, CA.cert_pem.bytes().decode(), FixedToken("t0ken"))
        transport = HttpTransport(access, limits)
        yield transport
        transport.close()
        web.shutdown()
        thread.join()


def body(text: bytes, status: int = 200, **headers: str) -> Answering:
    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    return answer


def chunks(*parts: bytes, then: Callable[[], object] = bool, is_whole: bool = True) -> Answering:
    """A chunked response, like that of a watch; after it, `then` may wait."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        then()
        if is_whole:
            handler.wfile.write(b"0\r\n\r\n")
        handler.close_connection = True

    return answer


def test_a_response_of_any_status_is_returned() -> None:
    with talking_to(body(b"{}", 429, Retry_After="7")) as transport:
        answer = transport.send(LIST)
    assert (answer.status, answer.body, answer.retry_after_seconds) == (429, b"{}", 7)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT", "9" * 400])
def test_an_invalid_retry_after_is_ignored(text: str) -> None:
    with talking_to(body(b"{}", 429, Retry_After=text)) as transport:
        assert transport.send(LIST).retry_after_seconds == 0


def test_a_request_has_the_token_the_query_and_its_content_type() -> None:
    seen: dict[str, str] = {}

    def note(handler: Handler) -> None:
        seen.update(handler.headers.items(), path=handler.path)
        seen["body"] = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
        body(b"{}")(handler)

    request = Request("create", "pods", "/api", query={"a": "b=c&d"}, body=b"[1]", content_type="application/x")
    with talking_to(note, prefix="/k8s/c-1") as transport:
        transport.send(request)
    assert seen["Authorization"] == "Bearer t0ken"
    assert (seen["Content-Type"], seen["body"]) == ("application/x", "[1]")
    assert seen["path"] == "/k8s/c-1/api?a=b%3Dc%26d"


def test_no_redirect_is_followed() -> None:
    """It would send the token to another server."""
    with talking_to(body(b"", 302, Location="https://127.0.0.1:1/elsewhere")) as transport:
        assert transport.send(LIST).status == 302


def hang_up(handler: Handler) -> None:
    handler.close_connection = True


def break_off(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"only this")
    handler.close_connection = True


@pytest.mark.parametrize("answering", [hang_up, break_off])
def test_a_truncated_response_is_a_retryable_error(answering: Answering) -> None:
    with talking_to(answering) as transport, pytest.raises(KubeTransportError) as raised:
        transport.send(LIST)
    assert not raised.value.refused


def test_a_missing_response_times_out() -> None:
    over = threading.Event()
    with talking_to(chunks(then=over.wait), limits=Limits(answer_seconds=1)) as transport:
        with pytest.raises(KubeTransportError, match="ReadTimeoutError") as raised:
            transport.send(LIST)
        over.set()
    assert not raised.value.refused


def test_a_server_that_does_not_speak_tls_is_refused() -> None:
    with talking_to(body(b"{}"), tls=False) as transport, pytest.raises(KubeTransportError) as raised:
        transport.send(LIST)
    assert raised.value.refused


def test_a_stream_yields_whole_lines_whatever_the_chunks() -> None:
    with talking_to(chunks(b"one\ntw", b"o\n", b"three\nfo")) as transport:
        stream = transport.open(LIST, idle_seconds=5)
        assert stream.status == 200
        assert list(stream) == [b"one", b"two", b"three"]
        stream.close()


def test_a_truncated_stream_is_an_error() -> None:
    with talking_to(chunks(b"one\n", is_whole=False)) as transport:
        stream = transport.open(LIST, idle_seconds=5)
        lines = iter(stream)
        assert next(lines) == b"one"
        with pytest.raises(KubeTransportError):
            next(lines)
        stream.close()


def test_a_silent_stream_times_out() -> None:
    over = threading.Event()
    with talking_to(chunks(b"one\n", then=over.wait)) as transport:
        stream = transport.open(LIST, idle_seconds=1)
        lines = iter(stream)
        assert next(lines) == b"one"
        with pytest.raises(KubeTransportError, match="ReadTimeoutError"):
            next(lines)
        stream.close()
        over.set()


def test_waiting_for_the_next_line_can_be_interrupted_by_another_thread() -> None:
    over = threading.Event()
    with talking_to(chunks(b"one\n", then=over.wait)) as transport:
        stream = transport.open(LIST, idle_seconds=200)
        lines = iter(stream)
        assert next(lines) == b"one"
        threading.Timer(0, stream.interrupt).start()
        with pytest.raises(KubeTransportError):
            next(lines)
        stream.close()
        stream.interrupt()  # after the end, this does nothing
        over.set()


def test_a_refusal_on_a_stream_can_be_read() -> None:
    with talking_to(body(b"no", 403)) as transport:
        stream = transport.open(LIST, idle_seconds=5)
        assert (stream.status, stream.body()) == (403, b"no")
        stream.close()
