"""`holdfast run`: claim the port, open the store, serve until told to stop."""

import errno
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, Final

from holdfast.adapters.system_clock import SystemClock
from holdfast.entrypoints.housekeeping import Housekeeping
from holdfast.entrypoints.tables import Tables
from holdfast.entrypoints.timed import TimedStore
from holdfast.entrypoints.version import installed_version
from holdfast.entrypoints.wiring import open_store, opened_tables
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.kernel.settings import Settings
from holdfast.ports.store import Key, Store
from holdfast.ports.store.tables import STATE

try:
    import uvicorn

    from holdfast.console.app import Served, build_app
    from holdfast.console.metrics import Metrics
    from holdfast.console.status import TableStatus
except ModuleNotFoundError as error:
    raise NeedsOperator(
        f"'holdfast run' needs {error.name}, which is not installed; run: pip install 'holdfast[console,metrics]'"
    ) from error

_log = logging.getLogger(__name__)

# A request under way may finish: none waits longer than this for the store.
STOP_SECONDS_MOST: Final = 5


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, which end the process with exit code 0. `say` gets the address, once ready."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    with ExitStack() as opened:
        # First of all: whoever finds the port taken has touched nothing.
        listener = opened.enter_context(closing(listening_socket(settings.holdfast_host, settings.holdfast_port)))
        clock = SystemClock()
        version = installed_version()
        metrics = Metrics(version)
        # A SQLite file and its tables are made by this; DynamoDB's tables cost money, and are left to a person.
        store = TimedStore(open_store(settings, clock).metered(metrics.record_consumed), clock, metrics.record_call)
        opened.enter_context(closing(store))
        tables = opened.enter_context(opened_tables(settings, clock))
        # Beside the server: DynamoDB may be slow to answer, and the health check must not wait for it.
        threading.Thread(target=_report_tables, args=(tables,), daemon=True).start()
        opened.enter_context(Housekeeping(store))
        served = Served(
            version=version,
            clock=clock,
            started=clock.now(),
            store=settings.holdfast_store,
            probe=lambda: _probe(store),
            tables=lambda: _table_statuses(tables),
            metrics=metrics,
        )
        ready = f"holdfast {version} serves {_url(listener)} from {settings.holdfast_store}; Ctrl-C stops it"
        # When a signal has stopped it, uvicorn raises the signal once more: it meets our handler above.
        _Server(_config(build_app(served), settings), lambda: say(ready)).run(sockets=[listener])


def _config(app: Any, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=settings.log_level == "debug",
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=STOP_SECONDS_MOST,
    )


def listening_socket(host: str, port: int) -> socket.socket:
    """The port, claimed: connections wait in line until they are served."""
    try:
        # IPv4 first: "localhost" should be what a browser and a curl mean by it on every machine.
        found = sorted(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), key=lambda one: one[0])
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            # Not left to the server: until somebody listens, a second process could bind the same port.
            listener.listen()
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        raise NeedsOperator(_listen_problem(host, port, error)) from error
    return listener


def _listen_problem(host: str, port: int, error: OSError | UnicodeError) -> str:
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"host {host} has no address to listen on; choose another with --host, for example --host 127.0.0.1"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken; stop what listens there, or choose another with --port (0: any)"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs privileges that this user lacks; choose one from 1024 up with --port"
    return f"cannot listen on port {port} of {host}: {error.strerror}; choose another with --host and --port"


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


def _probe(store: Store) -> None:
    # Eventually consistent, of an item that need not exist: the cheapest question there is.
    store.get(STATE, Key("readyz"), consistent=False)


def _table_statuses(tables: Tables) -> list[TableStatus]:
    return [TableStatus(check.table.name, check.table.purpose, check.differences) for check in tables.check()]


def _report_tables(tables: Tables) -> None:
    try:
        for check in tables.check():
            for found in check.differences:
                _log.warning(
                    "table %s: %s is %s, expected %s; %s",
                    found.table,
                    found.attribute,
                    found.found,
                    found.declared,
                    found.remedy,
                )
    except HoldfastError as error:
        _log.warning("the tables could not be checked: %s", error)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()
