"""The least that does an ingest's work: `python -m bench.contenders.ingest_bare PORT FILE`.

uvicorn, one HMAC, msgspec, and the same rows as ours by bare SQL (`ingest_rows`), in a file whose tables ours made.
Requests that come while a transaction is under way share the next one.
"""

import asyncio
import sys
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import uvicorn

from bench.contenders.ingest_rows import Headers, Rows, take


class Writer:
    """One thread; whatever has come while it wrote is its next transaction."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._rows = Rows(path)
        self._loop = loop
        self.waiting: SimpleQueue[tuple[Headers, bytes, asyncio.Future[tuple[int, bytes]]]] = SimpleQueue()
        Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            group = [self.waiting.get()]
            while not self.waiting.empty():
                group.append(self.waiting.get())
            self._rows.execute("BEGIN IMMEDIATE")
            answers = [(future, take(self._rows, headers, body)) for headers, body, future in group]
            self._rows.execute("COMMIT")
            self._loop.call_soon_threadsafe(_answer, answers)


def _answer(answers: list[tuple[asyncio.Future[tuple[int, bytes]], tuple[int, bytes]]]) -> None:
    for future, answer in answers:
        future.set_result(answer)


class App:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Writer | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        loop = asyncio.get_running_loop()
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["method"] != "POST":
            status, text = 200, b"{}"
        else:
            if self._writer is None:
                self._writer = Writer(self._path, loop)
            future: asyncio.Future[tuple[int, bytes]] = loop.create_future()
            self._writer.waiting.put((dict(scope["headers"]), bytes(body), future))
            status, text = await future
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text})


if __name__ == "__main__":
    uvicorn.run(
        App(Path(sys.argv[2])),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
    )
