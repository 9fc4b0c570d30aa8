"""`POST /webhooks/github`, as a bare ASGI application: it is called more often than all pages together.

The body is read up to its limit and handed, raw, to a thread; the answer goes out when the effect is durable. What
comes while a thread is at work waits in line, and the next one takes as much of the line as it may. Who comes alone
never waits for others; where several came together, the next are given a moment to do so too.
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
from typing import Any, Final

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from holdfast.jobs.webhook import HEADERS

BODY_SECONDS_MOST: Final = 30.0  # GitHub itself waits for ten, its Enterprise Server for thirty
# Nobody is known before the whole body is there. What strangers send may lie about, but not fill the memory with it;
# a body of the usual size, about 10 KB, always finds room.
ROOM_BYTES: Final = 128 * 1024 * 1024
SMALL_BYTES: Final = 64 * 1024
GATHER_SECONDS: Final = 0.0003
_AGAIN_SECONDS: Final = b"10"
_CLOSE: Final = (b"connection", b"close")  # the rest is not read, so the connection cannot be used again
_NAMES: Final = {name.encode(): name for name in HEADERS}
_NUMBER: Final = re.compile("[0-9]+")
_DIGITS_MOST: Final = 18
# No policy for documents among them: JSON that is taken for nothing else is none.
_ALWAYS: Final = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_ENCODE: Final = msgspec.json.Encoder().encode


class Answer(Struct, frozen=True):
    status: int
    body: Mapping[str, Any]
    headers: tuple[tuple[bytes, bytes], ...] = ()


Request = tuple[Mapping[str, str], bytes]
Take = Callable[[Sequence[Request]], Sequence[Answer | Exception]]


@dataclass(frozen=True, slots=True)
class Threads:
    """How many threads take in, and how much each of them takes at once."""

    count: int
    at_once: int


# Each delivery is a call to a server elsewhere: more than GitHub has under way to one hook, waiting side by side.
FOR_CALLS: Final = Threads(32, 1)
# All of them wait for one disk, and what comes meanwhile shares the next wait.
FOR_FILES: Final = Threads(1, 64)


class _Waiting(Struct):
    request: Request
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Answer]


def error_answer(status: int, code: str, message: str, *headers: tuple[bytes, bytes]) -> Answer:
    return Answer(status, {"error": {"code": code, "message": message}}, headers)


class Webhooks:
    """`take` may block, and is called from so many threads; it raises nothing that it expects."""

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
        self._room_bytes = room_bytes  # for what bodies have beyond the usual size, all of them together
        self._pause = pause
        self._started = 0
        self._line: SimpleQueue[_Waiting] = SimpleQueue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            answer = error_answer(405, "method_not_allowed", "only POST is possible here", (b"allow", b"POST"))
        else:
            answer = await self._answered(scope, receive)
        body = _ENCODE(answer.body)
        headers = [
            (b"content-length", str(len(body)).encode()),
            *_ALWAYS,
            *answer.headers,
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answered(self, scope: Scope, receive: Receive) -> Answer:
        headers = {_NAMES[name]: value.decode("latin-1") for name, value in scope["headers"] if name in _NAMES}
        if _is_more(headers.get("content-length", ""), self._most_bytes):
            return self._too_large()
        body, length = bytearray(), 0
        try:
            refusal = await self._read_in_time(receive, body)
            if refusal is not None:
                return refusal
            length, whole = len(body), bytes(body)
            body.clear()  # there is one of it while it waits, not two
            return await self._taken((headers, whole))
        finally:
            self._room_bytes += _beyond_usual(length or len(body))

    async def _read_in_time(self, receive: Receive, body: bytearray) -> Answer | None:
        try:
            async with asyncio.timeout(self._body_seconds):
                return await self._read(receive, body)
        except TimeoutError:
            return error_answer(408, "too_slow", f"the body did not come within {self._body_seconds:g} s", _CLOSE)

    async def _read(self, receive: Receive, body: bytearray) -> Answer | None:
        """Read the body into `body`; why it was not read to its end, if it was not."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return error_answer(400, "bad_request", "the body ended early")
            before = _beyond_usual(len(body))
            body += message.get("body", b"")
            self._room_bytes -= _beyond_usual(len(body)) - before
            if len(body) > self._most_bytes:
                return self._too_large()
            if before < _beyond_usual(len(body)) and self._room_bytes < 0:
                return self._no_room()
            if not message.get("more_body"):
                return None

    def _too_large(self) -> Answer:
        return error_answer(413, "too_large", f"a body has at most {self._most_bytes} bytes", _CLOSE)

    def _no_room(self) -> Answer:
        again = (b"retry-after", _AGAIN_SECONDS)
        return error_answer(503, "unavailable", "too many large bodies are under way; send it again", again, _CLOSE)

    # The line

    async def _taken(self, request: Request) -> Answer:
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request, loop, loop.create_future())
        self._line.put(waiting)
        if self._started < self._threads.count:
            # One for each of the first requests: who gets few has few threads.
            self._started += 1
            threading.Thread(target=self._work, name=f"webhook-{self._started}", daemon=True).start()
        return await waiting.answer

    def _work(self) -> None:
        group: list[_Waiting] = []
        while True:
            group = self._next_group(after=len(group))
            _tell(group, self._answers([waiting.request for waiting in group]))

    def _next_group(self, after: int) -> list[_Waiting]:
        group = [self._line.get()]
        if after > 1:
            # Those of the last group send again just now. To wait while the line grows makes one group of two, and
            # leaves Python's interpreter lock to the thread that reads them.
            seen = -1
            while seen < self._line.qsize() < self._threads.at_once:
                seen = self._line.qsize()
                self._pause(GATHER_SECONDS)
        with suppress(Empty):
            while len(group) < self._threads.at_once:
                group.append(self._line.get_nowait())
        return group

    def _answers(self, requests: Sequence[Request]) -> Sequence[Answer | Exception]:
        try:
            return self._take(requests)
        except Exception as error:
            # A mistake of ours: each is told so, and the thread goes on.
            return [error] * len(requests)


def _tell(group: Sequence[_Waiting], answers: Sequence[Answer | Exception]) -> None:
    by_loop = defaultdict(list)
    for waiting, answer in zip(group, answers, strict=True):
        by_loop[waiting.loop].append((waiting.answer, answer))
    for loop, told in by_loop.items():
        with suppress(RuntimeError):  # the server has stopped meanwhile
            loop.call_soon_threadsafe(_answer_all, told)


def _answer_all(told: Sequence[tuple[asyncio.Future[Answer], Answer | Exception]]) -> None:
    for future, answer in told:
        if future.done():
            continue  # who asked has gone
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _beyond_usual(length_bytes: int) -> int:
    return max(0, length_bytes - SMALL_BYTES)


def _is_more(length: str, most: int) -> bool:
    """Whether a Content-Length says so. One that is no number says nothing; what counts then is what comes."""
    return bool(_NUMBER.fullmatch(length)) and (len(length) > _DIGITS_MOST or int(length) > most)
