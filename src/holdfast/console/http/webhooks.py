"""`POST /webhooks/github`, as a bare ASGI application: it is called more often than all pages together.

The body is read up to its limit and passed, raw, to a thread; the response is sent when the effect is durable. Requests
that arrive while the threads are busy wait in a queue, and a thread takes several at once. A single request never waits
for others; after a group, the thread waits a moment for the next group to form.
"""

import asyncio
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from holdfast.jobs.intake.webhook import HEADERS
from holdfast.views.command_answers import ErrorAnswer, WebhookResult, error_of

BODY_SECONDS_MOST: Final = 30.0  # GitHub waits ten seconds, GitHub Enterprise Server thirty
# The sender is unverified until the whole body has arrived, so large bodies share a limited budget of memory.
# A body of the usual size, about 10 KB, is always accepted.
ROOM_BYTES: Final = 128 * 1024 * 1024
SMALL_BYTES: Final = 64 * 1024
GATHER_SECONDS: Final = 0.0003
_RETRY_AFTER_SECONDS: Final = b"10"
_CLOSE: Final = (b"connection", b"close")  # the rest is not read, so the connection cannot be reused
_NAMES: Final = {name.encode(): name for name in HEADERS}
_NUMBER: Final = re.compile("[0-9]+")
_DIGITS_MOST: Final = 18
# No content security policy: with nosniff, JSON is never rendered as a document.
_ALWAYS: Final = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_ENCODE: Final = msgspec.json.Encoder().encode  # for the two answers below, the same as plain_json and faster


class WebhookAnswer(Struct, frozen=True):
    status: int
    body: WebhookResult | ErrorAnswer
    headers: tuple[tuple[bytes, bytes], ...] = ()


Request = tuple[Mapping[str, str], bytes]
Take = Callable[[Sequence[Request]], Sequence[WebhookAnswer | Exception]]


@dataclass(frozen=True, slots=True)
class Threads:
    """How many threads process webhooks, and how many webhooks each takes at once."""

    count: int
    at_once: int


# Each delivery calls a remote store: enough threads for everything GitHub sends concurrently to one webhook.
FOR_CALLS: Final = Threads(32, 1)
# One file has one writer; deliveries that arrive meanwhile share the next transaction.
FOR_FILES: Final = Threads(1, 64)


class _Waiting(Struct):
    request: Request
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[WebhookAnswer]


def error_answer(status: int, code: str, message: str, *headers: tuple[bytes, bytes]) -> WebhookAnswer:
    return WebhookAnswer(status, error_of(code, message), headers)


class Webhooks:
    """`take` may block and is called from several threads; expected failures are answers, not exceptions."""

    def __init__(
        self,
        take: Take,
        most_bytes: int,
        threads: Threads = FOR_CALLS,
        *,
        body_seconds: float = BODY_SECONDS_MOST,
        room_bytes: int = ROOM_BYTES,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._take = take
        self._most_bytes = most_bytes
        self._threads = threads
        self._body_seconds = body_seconds
        self._room_bytes = room_bytes  # for the part of all bodies beyond the usual size
        self._pause = pause
        self._started = 0
        self._queue: SimpleQueue[_Waiting] = SimpleQueue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            answer = error_answer(405, "method_not_allowed", "only POST is allowed", (b"allow", b"POST"))
        else:
            answer = await self._answer(scope, receive)
        body = _ENCODE(answer.body)
        headers = [
            (b"content-length", str(len(body)).encode()),
            *_ALWAYS,
            *answer.headers,
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> WebhookAnswer:
        headers = {_NAMES[name]: value.decode("latin-1") for name, value in scope["headers"] if name in _NAMES}
        if _is_more(headers.get("content-length", ""), self._most_bytes):
            return self._too_large()
        body, length = bytearray(), 0
        try:
            refusal = await self._read_in_time(receive, body)
            if refusal is not None:
                return refusal
            length, whole = len(body), bytes(body)
            body.clear()  # keep one copy while it waits, not two
            return await self._enqueue((headers, whole))
        finally:
            self._room_bytes += _beyond_usual(length or len(body))

    async def _read_in_time(self, receive: Receive, body: bytearray) -> WebhookAnswer | None:
        try:
            async with asyncio.timeout(self._body_seconds):
                return await self._read(receive, body)
        except TimeoutError:
            return error_answer(
                408, "too_slow", f"the request body did not arrive within {self._body_seconds:g} s", _CLOSE
            )

    async def _read(self, receive: Receive, body: bytearray) -> WebhookAnswer | None:
        """Read the body into `body`; return an error if it could not be read completely."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return error_answer(400, "bad_request", "the request body is incomplete")
            before = _beyond_usual(len(body))
            body += message.get("body", b"")
            self._room_bytes -= _beyond_usual(len(body)) - before
            if len(body) > self._most_bytes:
                return self._too_large()
            if before < _beyond_usual(len(body)) and self._room_bytes < 0:
                return self._no_room()
            if not message.get("more_body"):
                return None

    def _too_large(self) -> WebhookAnswer:
        return error_answer(413, "too_large", f"the request body exceeds {self._most_bytes} bytes", _CLOSE)

    def _no_room(self) -> WebhookAnswer:
        retry_after = (b"retry-after", _RETRY_AFTER_SECONDS)
        return error_answer(503, "unavailable", "too many large requests in progress; retry later", retry_after, _CLOSE)

    # The queue

    async def _enqueue(self, request: Request) -> WebhookAnswer:
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request, loop, loop.create_future())
        self._queue.put(waiting)
        if self._started < self._threads.count:
            # Threads start with the first requests: a quiet server has few.
            self._started += 1
            threading.Thread(target=self._work, name=f"webhook-{self._started}", daemon=True).start()
        return await waiting.answer

    def _work(self) -> None:
        group: list[_Waiting] = []
        while True:
            group = self._next_group(after=len(group))
            _deliver(group, self._answers([waiting.request for waiting in group]))

    def _next_group(self, after: int) -> list[_Waiting]:
        group = [self._queue.get()]
        if after > 1:
            # The senders of the last group are sending again. Waiting while the queue grows merges two groups into one,
            # and leaves the interpreter lock to the thread that reads requests.
            seen = -1
            while seen < self._queue.qsize() < self._threads.at_once:
                seen = self._queue.qsize()
                self._pause(GATHER_SECONDS)
        with suppress(Empty):
            while len(group) < self._threads.at_once:
                group.append(self._queue.get_nowait())
        return group

    def _answers(self, requests: Sequence[Request]) -> Sequence[WebhookAnswer | Exception]:
        try:
            return self._take(requests)
        except Exception as error:
            # A bug of ours: every sender gets the error, and the thread continues.
            return [error] * len(requests)


def _deliver(group: Sequence[_Waiting], answers: Sequence[WebhookAnswer | Exception]) -> None:
    by_loop = defaultdict(list)
    for waiting, answer in zip(group, answers, strict=True):
        by_loop[waiting.loop].append((waiting.answer, answer))
    for loop, results in by_loop.items():
        with suppress(RuntimeError):  # the server has stopped
            loop.call_soon_threadsafe(_answer_all, results)


def _answer_all(results: Sequence[tuple[asyncio.Future[WebhookAnswer], WebhookAnswer | Exception]]) -> None:
    for future, answer in results:
        if future.done():
            continue  # the sender is gone
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _beyond_usual(length_bytes: int) -> int:
    return max(0, length_bytes - SMALL_BYTES)


def _is_more(length: str, most: int) -> bool:
    """Whether Content-Length exceeds `most`. An invalid header is ignored: the body itself is counted."""
    return bool(_NUMBER.fullmatch(length)) and (len(length) > _DIGITS_MOST or int(length) > most)
