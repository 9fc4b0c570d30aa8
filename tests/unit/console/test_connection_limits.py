"""Limits for a client's connection: memory, time, and open files."""

import asyncio
import resource
from collections.abc import Callable
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from holdfast.console.http.connection_limits import (
    HEAD_BYTES_MOST,
    HEAD_SECONDS_MOST,
    HEALTH_CONNECTIONS,
    INCOMPLETE_PER_ADDRESS_MOST,
    PIPELINED_MOST,
    REQUEST_SECONDS_MOST,
    UNREAD_SECONDS_MOST,
    LimitedConnection,
    connections_most,
)

HEAD = b"POST /x HTTP/1.1\r\nHost: here\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ASK = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
PIECE = b"x" * 8192


class Wire(asyncio.Transport):
    """The transport, as a connection sees it."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1234), "sockname": ("10.0.0.1", 8080)})
        self.said = b""
        self.is_closed = False
        self.is_aborted = False
        self.unread_bytes = 0

    def write(self, data: Any) -> None:
        self.said += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Timer:
    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self.seconds, self.call, self.is_on = seconds, call, True

    def cancel(self) -> None:
        self.is_on = False


class Loop:
    """The running loop, whose timers fire when a test says so."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []
        self.create_task = asyncio.get_running_loop().create_task

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(seconds, call))
        return self.timers[-1]

    def is_waiting_for_a_request(self) -> bool:
        return any(timer.is_on and timer.seconds in (HEAD_SECONDS_MOST, REQUEST_SECONDS_MOST) for timer in self.timers)

    def wait(self) -> None:
        for timer in self.timers:
            if timer.is_on:
                timer.call()


async def answering(_scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class House:
    def __init__(self) -> None:
        self.config = Config(answering, log_config=None, lifespan="off")
        self.state, self.loop = ServerState(), Loop()

    def connect(self, address: str = "10.0.0.9") -> tuple[LimitedConnection, Wire]:
        wire = Wire(address)
        connection = LimitedConnection(config=self.config, server_state=self.state, app_state={}, _loop=self.loop)
        connection.connection_made(wire)
        return connection, wire

    async def done(self) -> None:
        await asyncio.gather(*self.state.tasks)


def inside(story: Callable[[House], Any]) -> None:
    async def run_in_loop() -> None:
        await story(House())

    asyncio.run(run_in_loop())


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (HEAD + b"X: ", PIECE),
        (HEAD, b"X: %s\r\n" % PIECE),
        (b"GET /", PIECE),
        (CHUNKED + b"0\r\nX: ", PIECE),
        (CHUNKED + b"0\r\n", b"X: %s\r\n" % PIECE),
        (CHUNKED + b"1;x=", PIECE),
    ],
    ids=["a value", "many values", "a path", "a trailer", "many trailers", "an extension"],
)
def test_endless_headers_are_not_buffered(begin: bytes, piece: bytes) -> None:
    async def story(house: House) -> None:
        connection, wire = house.connect()
        connection.data_received(begin)
        sent = 0
        while not wire.is_closed and sent < 20 * HEAD_BYTES_MOST:
            connection.data_received(piece)
            sent += len(piece)
        assert wire.is_closed
        assert sent <= HEAD_BYTES_MOST + len(piece)
        assert wire.said.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
        connection.connection_lost(None)
        await house.done()

    inside(story)


def test_a_malformed_request_is_refused_once() -> None:
    async def story(house: House) -> None:
        connection, wire = house.connect()
        connection.data_received(b"\r\rnonsense" + bytes(HEAD_BYTES_MOST))
        assert wire.said.count(b"HTTP/1.1 ") == 1

    inside(story)


@pytest.mark.parametrize(("requests", "is_refused"), [(1 + PIPELINED_MOST, False), (2000, True)])
def test_pipelined_requests_are_limited(requests: int, is_refused: bool) -> None:
    """One read of 64 KB would otherwise queue thousands of them."""

    async def story(house: House) -> None:
        connection, wire = house.connect()
        connection.data_received(ASK * requests)
        assert len(connection.pipeline) <= PIPELINED_MOST
        assert wire.is_closed is is_refused
        assert wire.said.startswith(b"HTTP/1.1 400") is is_refused

    inside(story)


def test_the_limit_for_headers_does_not_apply_to_bodies_and_later_requests() -> None:
    async def story(house: House) -> None:
        connection, wire = house.connect()
        length = 4 * HEAD_BYTES_MOST
        connection.data_received(HEAD + b"Content-Length: %d\r\n\r\n" % length)
        for _ in range(length // len(PIECE)):
            connection.data_received(PIECE)
        await house.done()
        for _ in range(2 * HEAD_BYTES_MOST // len(ASK)):
            connection.data_received(ASK)
            await house.done()
        assert not wire.is_closed
        assert wire.said.count(b"HTTP/1.1 200 ") == 1 + 2 * HEAD_BYTES_MOST // len(ASK)

    inside(story)


@pytest.mark.parametrize(
    "sent", [b"", b"GET", HEAD, HEAD + b"Content-Length: 9\r\n\r\n", HEAD + b"Content-Length: 9\r\n\r\nx"]
)
@pytest.mark.parametrize("before", [b"", ASK], ids=["first", "second"])
def test_an_incomplete_request_times_out(before: bytes, sent: bytes) -> None:
    async def story(house: House) -> None:
        connection, wire = house.connect()
        if before:
            connection.data_received(before)
            await house.done()
        if sent:
            connection.data_received(sent)
        assert house.loop.is_waiting_for_a_request() or (before and not sent)
        house.loop.wait()
        assert wire.is_closed
        connection.connection_lost(None)
        await house.done()

    inside(story)


def test_a_response_may_take_longer_than_a_request() -> None:
    """The event streams of open pages do."""

    async def story(house: House) -> None:
        connection, wire = house.connect()
        connection.data_received(ASK)
        assert not house.loop.is_waiting_for_a_request()
        house.loop.wait()
        assert not wire.is_closed
        await house.done()
        assert b"200" in wire.said

    inside(story)


def test_a_closed_connection_leaves_no_timer() -> None:
    async def story(house: House) -> None:
        connection, _ = house.connect()
        connection.connection_lost(None)
        assert not house.loop.is_waiting_for_a_request()

    inside(story)


def test_the_headers_must_arrive_within_seconds_and_the_body_within_a_minute() -> None:
    async def story(house: House) -> None:
        connection, _ = house.connect()
        connection.data_received(HEAD)
        assert [timer.seconds for timer in house.loop.timers if timer.is_on] == [HEAD_SECONDS_MOST]
        connection.data_received(b"Content-Length: 9\r\n\r\nx")
        assert [timer.seconds for timer in house.loop.timers if timer.is_on] == [REQUEST_SECONDS_MOST]
        connection.connection_lost(None)
        await house.done()

    inside(story)


@pytest.mark.parametrize("sent", [b"", b"GET", HEAD, HEAD + b"Content-Length: 9\r\n\r\nx"])
def test_at_the_limit_the_oldest_connection_without_a_whole_request_makes_room(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(LimitedConnection, "most", 3)

    async def story(house: House) -> None:
        half_open = [house.connect() for _ in range(3)]
        for connection, _ in half_open:
            if sent:
                connection.data_received(sent)
        for number in range(2):
            connection, wire = house.connect()
            connection.data_received(ASK)
            assert [each.is_closed for _, each in half_open] == [place <= number for place in range(3)]
        for connection, _ in half_open:
            connection.connection_lost(None)
        await house.done()
        assert wire.said.startswith(b"HTTP/1.1 200 ")

    inside(story)


def test_one_address_cannot_hold_many_connections_without_a_request() -> None:
    async def story(house: House) -> None:
        _, other = house.connect("10.0.0.8")
        wires = [house.connect()[1] for _ in range(INCOMPLETE_PER_ADDRESS_MOST + 2)]
        assert [wire.is_closed for wire in wires[:3]] == [True, True, False]
        assert not wires[-1].is_closed
        assert not other.is_closed

    inside(story)


def test_while_all_connections_are_being_answered_there_is_room_for_health_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LimitedConnection, "most", 2)

    async def story(house: House) -> None:
        for _ in range(2):
            house.connect()[0].data_received(ASK)  # answered when the story waits
        page, page_wire = house.connect()
        page.data_received(ASK)
        probe, probe_wire = house.connect()
        probe.data_received(ASK.replace(b"GET /", b"GET /healthz"))
        for _ in range(HEALTH_CONNECTIONS - 2):
            house.connect()[0].data_received(ASK)
        _, refused = house.connect()
        assert refused.said.startswith(b"HTTP/1.1 503 ")
        assert refused.is_closed
        await house.done()
        assert page_wire.said.startswith(b"HTTP/1.1 503 ")
        assert probe_wire.said.startswith(b"HTTP/1.1 200 ")

    inside(story)


def _answered(connection: LimitedConnection, wire: Wire) -> None:
    """The client has its response, and may send another request."""
    connection.on_response_complete()


def _unread(connection: LimitedConnection, wire: Wire) -> None:
    """The client has read nothing: the transport keeps its response, and allows no more."""
    wire.unread_bytes = 100_000
    connection.pause_writing()


def _unread_to_the_end(connection: LimitedConnection, wire: Wire) -> None:
    """The same with a short response, after which the server closes the connection."""
    wire.unread_bytes = 1000
    wire.close()
    connection.on_response_complete()


@pytest.mark.parametrize("waits", [_answered, _unread, _unread_to_the_end])
def test_at_the_limit_a_connection_that_waits_for_its_client_makes_room(
    monkeypatch: pytest.MonkeyPatch, waits: Callable[[LimitedConnection, Wire], None]
) -> None:
    """Otherwise a thousand clients that read nothing would keep everybody out."""
    monkeypatch.setattr(LimitedConnection, "most", 2)

    async def story(house: House) -> None:
        waiting = [house.connect() for _ in range(2)]
        for connection, wire in waiting:
            connection.data_received(ASK)
            waits(connection, wire)
        page, page_wire = house.connect()
        page.data_received(ASK)
        assert [wire.is_aborted for _, wire in waiting] == [True, False]
        for connection, _ in waiting:
            connection.connection_lost(None)
        await house.done()
        assert page_wire.said.startswith(b"HTTP/1.1 200 ")

    inside(story)


@pytest.mark.parametrize("waits", [_unread, _unread_to_the_end])
def test_a_client_that_reads_nothing_is_cut_off(waits: Callable[[LimitedConnection, Wire], None]) -> None:
    async def story(house: House) -> None:
        connection, wire = house.connect()
        connection.data_received(ASK)
        waits(connection, wire)
        (timer,) = [timer for timer in house.loop.timers if timer.is_on and timer.seconds == UNREAD_SECONDS_MOST]
        timer.call()
        assert wire.is_aborted
        connection.connection_lost(None)
        await house.done()

    inside(story)


@pytest.mark.parametrize("is_long", [True, False])
def test_a_client_that_reads_its_response_may_take_its_time(is_long: bool) -> None:
    async def story(house: House) -> None:
        connection, wire = house.connect()
        connection.data_received(ASK)
        wire.unread_bytes = 1000
        if is_long:
            connection.pause_writing()
            connection.resume_writing()
        else:
            connection.on_response_complete()
        wire.unread_bytes = 0
        connection.data_received(ASK)
        assert not any(timer.is_on and timer.seconds == UNREAD_SECONDS_MOST for timer in house.loop.timers)
        connection.connection_lost(None)
        await house.done()

    inside(story)


@pytest.mark.parametrize(("files", "most"), [(256, 128), (1024, 512), (10**6, 1000), (resource.RLIM_INFINITY, 1000)])
def test_half_of_the_open_files_are_reserved_for_ticks(monkeypatch: pytest.MonkeyPatch, files: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, resource.RLIM_INFINITY))
    assert connections_most() == most
