"""uvicorn, as `holdfast run` and `holdfast serve` use it."""

import socket
from collections.abc import Callable
from typing import Any, Final

import uvicorn

from holdfast.console.http.connection_limits import LimitedConnection
from holdfast.kernel.settings import Settings

# Time for requests in progress to finish; none waits longer than this for the store.
STOP_SECONDS_MOST: Final = 5


class WebServer(uvicorn.Server):
    """Calls `on_ready` once it accepts connections, and `on_stop` before it waits for open ones."""

    def __init__(self, app: Any, settings: Settings, on_ready: Callable[[], None], on_stop: Callable[[], None]) -> None:
        super().__init__(_config(app, settings))
        self._on_ready = on_ready
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()  # ends the live streams, which the server would otherwise wait for
        await super().shutdown(sockets)


def _config(app: Any, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=LimitedConnection,
        log_config=None,
        access_log=settings.log_level == "debug",
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=STOP_SECONDS_MOST,
    )
