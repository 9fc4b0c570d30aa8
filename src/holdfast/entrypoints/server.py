"""`holdfast run`: claim the port, open the store, serve until told to stop."""

import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from holdfast.adapters.system_clock import SystemClock
from holdfast.cluster.switches import Switches
from holdfast.cluster.tick import Cluster
from holdfast.entrypoints.daemon import Breath, Events, Loop, Loops, Ticking, post_loop, queue_loop, world_loop
from holdfast.entrypoints.github_loops import FreshRuns, GitHubSweeps, github_loop, github_sweeps
from holdfast.entrypoints.housekeeping import Housekeeping
from holdfast.entrypoints.job_wiring import oldest_webhook_seconds, patience_of, viewing_of
from holdfast.entrypoints.last_look import LastLook
from holdfast.entrypoints.migrating import open_migration
from holdfast.entrypoints.overview import cluster_overview, decisions
from holdfast.entrypoints.policies import policy_of
from holdfast.entrypoints.presence import Daemon, announced, new_token
from holdfast.entrypoints.pulse import Pulse
from holdfast.entrypoints.reports import Meters, Reports
from holdfast.entrypoints.tables import Tables
from holdfast.entrypoints.telling import told
from holdfast.entrypoints.timed import TimedStore
from holdfast.entrypoints.tracking import Tracking
from holdfast.entrypoints.version import installed_version
from holdfast.entrypoints.webhooks import Outcome, Receiver, take_webhook, take_webhooks, webhook_secrets
from holdfast.entrypoints.wiring import open_store, opened_tables
from holdfast.entrypoints.world import OpenWorld, events_queue, notifiers, open_world
from holdfast.jobs.ingest import Tracker
from holdfast.jobs.limits import BODY_BYTES_MOST
from holdfast.jobs.views import Viewing
from holdfast.jobs.webhook import WebhookSecrets
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import Settings
from holdfast.ports.store import Key, Store
from holdfast.ports.store.tables import STATE

try:
    import uvicorn

    from holdfast.console.api import ClusterApi
    from holdfast.console.app import Served, build_app
    from holdfast.console.jobs_api import JobsApi
    from holdfast.console.live import Live
    from holdfast.console.metrics import Metrics
    from holdfast.console.status import TableStatus
    from holdfast.console.webhooks import FOR_CALLS, FOR_FILES, Answer, Request, Take, Threads, Webhooks
    from holdfast.entrypoints.connections import Connection
    from holdfast.entrypoints.console import Parts, access_of, console_of
    from holdfast.entrypoints.job_meter import JobMeter
    from holdfast.entrypoints.watching import Watching
except ModuleNotFoundError as error:
    raise NeedsOperator(
        f"'holdfast run' needs {error.name}, which is not installed; run: pip install 'holdfast[console,metrics]'"
    ) from error

_log = logging.getLogger(__name__)

# A request under way may finish: none waits longer than this for the store.
STOP_SECONDS_MOST: Final = 5


def serve(settings: Settings, say: Callable[[str], None], *, loops: bool = True) -> None:
    """Serve until SIGTERM or SIGINT, which end the process with exit code 0. `say` gets the address, once ready.

    Without loops it answers and takes in, and leaves the ticks to another process.
    """
    viewing = viewing_of(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    with ExitStack() as opened:
        # First of all: whoever finds the port taken has touched nothing.
        listener = opened.enter_context(closing(listening_socket(settings.holdfast_host, settings.holdfast_port)))
        known = webhook_secrets(settings)
        clock = SystemClock()
        version = installed_version()
        metrics = Metrics(version)
        breath, look, live = Breath(), LastLook(), Live()
        world = opened.enter_context(open_world(settings, changed=breath.changed if loops else None, writable=loops))
        # A SQLite file and its tables are made by this; DynamoDB's tables cost money, and are left to a person.
        metered = open_store(settings, world.clock)
        if settings.holdfast_store.path is None:
            # Of a file nobody pays for units, and counting them costs as much as writing does.
            metered = metered.metered(metrics.record_consumed)
        store = opened.enter_context(closing(TimedStore(metered, clock, metrics.record_call)))
        tables = opened.enter_context(opened_tables(settings, clock))
        # Beside the server: DynamoDB may be slow to answer, and the health check must not wait for it.
        threading.Thread(target=_report_tables, args=(tables,), daemon=True).start()
        opened.enter_context(Housekeeping(store))
        cluster = world.cluster(settings, store)
        pulse = Pulse(clock, lambda: world.real_seconds(settings.tick_sec))
        watching = Watching(metrics, look, live, pulse)
        desk = opened.enter_context(_open_desk(settings, world, store, metrics, viewing))
        running = opened.enter_context(Loops())
        wake = _start_loops(settings, world, cluster, watching, breath, running) if loops else _nobody
        daemon = Daemon(_url(listener), new_token())
        access = access_of(settings, clock, daemon.token)
        parts = Parts(settings, version, world, store, look, live, desk.questions, viewing.prices, wake)
        served = Served(
            version=version,
            clock=clock,
            started=clock.now(),
            store=settings.holdfast_store,
            probe=lambda: _probe(store),
            ticks=pulse.problem if loops else None,
            tables=lambda: _table_statuses(tables),
            metrics=metrics,
            cluster=_cluster_api(settings, world, store, Events(cluster, wake), daemon.token),
            jobs=JobsApi(desk.questions, partial(told, desk.tracker), daemon.token),
            webhooks=Webhooks(watching.each(_taking(known, desk.receiver, metrics)), BODY_BYTES_MOST, desk.threads),
            console=console_of(parts, access),
            access=access,
        )
        opened.enter_context(announced(settings, daemon))
        if loops and (post := post_loop(world, daemon.url, known, daemon.token)):
            running.start(post)
        if loops and desk.asking:
            running.start(github_loop(desk.asking, settings.github_sweep_calls))
        if loops:
            meter = JobMeter(store, desk.questions, world.clock, metrics.jobs)
            running.start(Loop("job figures", lambda: world.real_seconds(meter.once())))
        where = "the simulated world" if world.living else "AWS"
        ready = f"holdfast {version} serves {daemon.url} from {settings.holdfast_store}, in {where}; Ctrl-C stops it"
        # When a signal has stopped it, uvicorn raises the signal once more: it meets our handler above.
        _Server(_config(build_app(served), settings), lambda: say(ready), live.stop).run(sockets=[listener])


@dataclass(frozen=True, slots=True)
class _Desk:
    """Where jobs are tracked: what takes deliveries in, and what answers questions."""

    tracker: Tracker
    receiver: Receiver
    threads: Threads
    asking: GitHubSweeps | None
    questions: Tracking


@contextmanager
def _open_desk(
    settings: Settings, world: OpenWorld, store: Store, metrics: Metrics, viewing: Viewing
) -> Iterator[_Desk]:
    own_name = f"{socket.gethostname()[:40]}-{os.getpid()}"
    tracker = Tracker(store, world.clock, own_name, oldest_webhook_seconds(settings))
    asking = github_sweeps(settings, store, world.clock, own_name, metrics.github)
    migrating = open_migration(settings, store, world.clock, metrics.migration.told)
    receiver = migrating.receiver(tracker) if migrating else tracker
    readable = migrating.reads(store) if migrating else store
    questions = Tracking(readable, world.clock, viewing, patience_of(settings), FreshRuns(asking) if asking else None)
    # Of a file there is one writer; calls to a server elsewhere wait side by side.
    threads = FOR_FILES if receiver is tracker and settings.holdfast_store.path else FOR_CALLS
    try:
        yield _Desk(tracker, receiver, threads, asking, questions)
    finally:
        if migrating:
            migrating.close()


def _start_loops(
    settings: Settings, world: OpenWorld, cluster: Cluster, watching: Watching, breath: Breath, running: Loops
) -> Callable[[], None]:
    """The loops that do the work, until the end of the process. Gives what wakes the ticks."""
    meters = Meters(watching.ticked, lambda error: watching.failed(error, world.clock.now()))
    reports = Reports(cluster, notifiers(settings, world.clock), meters)
    ticks = Loop("ticks", Ticking(cluster, world, reports, settings.tick_sec).once)
    breath.wake = ticks.wake
    events = Events(cluster, ticks.wake)
    if queue := events_queue(settings):
        running.then(queue.close)
        running.start(queue_loop(queue, events, reports))
    if living := world_loop(world, events):
        running.start(living)
    running.start(ticks)
    return ticks.wake


def _nobody() -> None:
    """Nobody ticks here: the process that does looks by itself."""


def _taking(known: WebhookSecrets, tracker: Receiver, metrics: Metrics) -> Take:
    def take(requests: Sequence[Request]) -> Sequence[Answer | Exception]:
        if isinstance(tracker, Tracker):
            outcomes = take_webhooks(requests, known, tracker)
        else:
            outcomes = [take_webhook(headers, body, known, tracker) for headers, body in requests]
        return [answer(headers, outcome) for (headers, _), outcome in zip(requests, outcomes, strict=True)]

    def answer(headers: Mapping[str, str], outcome: Outcome | Exception) -> Answer | Exception:
        if isinstance(outcome, Exception):
            return outcome
        metrics.record_webhook(headers.get("x-github-event", ""), outcome.status, str(outcome.body.get("result", "")))
        retry = outcome.retry_after_seconds
        return Answer(outcome.status, outcome.body, ((b"retry-after", str(retry).encode()),) if retry else ())

    return take


def _cluster_api(settings: Settings, world: OpenWorld, store: Store, events: Events, token: str) -> ClusterApi:
    name = ClusterId(settings.cluster_id)
    switches, policy = Switches(store, world.clock, name), policy_of(settings)

    def page(since: Instant | None, until: Instant | None, cursor: str | None) -> dict[str, Any]:
        now = world.clock.now()
        return decisions(store, name, since or now.plus(-3600), min(until or now, now), cursor)

    return ClusterApi(
        overview=lambda: cluster_overview(store, name, policy, world.clock.now()),
        decisions=page,
        pause=switches.pause,
        resume=switches.resume,
        take_event=events.take,
        token=token,
        events_secret=settings.events_secret,
    )


def _config(app: Any, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
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
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()  # streams end by themselves: the server would wait for them
        await super().shutdown(sockets)
