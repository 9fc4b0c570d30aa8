"""Notifies open pages of changes with server-sent events. A page then reloads its data.

The events carry no data, so there is only one way to render a page, and a missed event does no harm. A page is notified
at most about once per second.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from holdfast.console.http.answers import NOT_STORED, error_response

STREAMS_MOST: Final = 64
_LOOK_SECONDS: Final = 0.25
_AT_MOST_EVERY_LOOKS: Final = 4
# Ages on the page advance without events, and another process may have changed something.
_AT_LEAST_EVERY_LOOKS: Final = 20


class Live:
    """`changed` may be called from any thread; the streams poll its counter."""

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
        """End the streams, so that open pages do not delay the shutdown."""
        self._stopped = True

    def routes(self) -> list[Route]:
        route = Route("/live", self._open, methods=["GET"])
        (route.methods or set()).discard("HEAD")  # implied by GET; a response without a body would hold a stream open
        return [route]

    async def _open(self, _request: Request) -> Response:
        if self._streams >= STREAMS_MOST:
            return error_response(503, "unavailable", f"limit of {STREAMS_MOST} live pages reached")
        headers = {**NOT_STORED, "X-Accel-Buffering": "no"}  # a proxy must not buffer it
        return StreamingResponse(self.stream(), media_type="text/event-stream", headers=headers)

    async def stream(self) -> AsyncIterator[str]:
        """The lines of one stream, until it is closed or the server stops."""
        self._streams += 1
        try:
            notified, looks = self._changes, 0
            yield "retry: 2000\nevent: hello\ndata: \n\n"
            while not self._stopped:
                await asyncio.sleep(self._look_seconds)
                looks += 1
                is_due = notified != self._changes and looks >= _AT_MOST_EVERY_LOOKS
                if is_due or looks >= _AT_LEAST_EVERY_LOOKS:
                    notified, looks = self._changes, 0
                    yield f"event: changed\ndata: {notified}\n\n"
        finally:
            self._streams -= 1
