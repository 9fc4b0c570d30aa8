"""Tells open pages that something has changed: server-sent events. A page then asks for itself again.

Nothing of the data goes through here, so there is one way that a page is made, and a page that missed an event has
lost nothing. However fast things change, a page is told about once in a second.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from holdfast.console.answers import NOT_STORED, error_response

STREAMS_MOST: Final = 64
_LOOK_SECONDS: Final = 0.25
_AT_MOST_EVERY_LOOKS: Final = 4
# Times go on though nothing happens, and another process may have changed something.
_AT_LEAST_EVERY_LOOKS: Final = 20


class Live:
    """`changed` is called from any thread; the streams look at its counter."""

    def __init__(self, look_seconds: float = _LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._lock = threading.Lock()
        self._changes = 0
        self._streams = 0
        self._stopped = False

    def changed(self) -> None:
        with self._lock:
            self._changes += 1

    def stop(self) -> None:
        """End the streams: an open page must not keep the process from ending."""
        self._stopped = True

    def routes(self) -> list[Route]:
        route = Route("/live", self._open, methods=["GET"])
        (route.methods or set()).discard("HEAD")  # comes with GET; an answer without a body would hold a stream open
        return [route]

    async def _open(self, _request: Request) -> Response:
        if self._streams >= STREAMS_MOST:
            return error_response(503, "unavailable", f"{STREAMS_MOST} pages are live already; this one is not")
        headers = {**NOT_STORED, "X-Accel-Buffering": "no"}  # a proxy must not wait for the end of it
        return StreamingResponse(self.stream(), media_type="text/event-stream", headers=headers)

    async def stream(self) -> AsyncIterator[str]:
        """Lines of one stream, until it is closed or the server stops."""
        self._streams += 1
        try:
            told, looks = self._changes, 0
            yield "retry: 2000\nevent: hello\ndata: \n\n"
            while not self._stopped:
                await asyncio.sleep(self._look_seconds)
                looks += 1
                is_due = told != self._changes and looks >= _AT_MOST_EVERY_LOOKS
                if is_due or looks >= _AT_LEAST_EVERY_LOOKS:
                    told, looks = self._changes, 0
                    yield f"event: changed\ndata: {told}\n\n"
        finally:
            self._streams -= 1
