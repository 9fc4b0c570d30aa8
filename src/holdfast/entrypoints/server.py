"""`holdfast run` and `holdfast serve`: claim the port, open the store, serve until stopped."""

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
from typing import Final

from holdfast.adapters.system_clock import SystemClock
from holdfast.adapters.timed_store import TimedStore, timed_store
from holdfast.cluster.plan import TickResult
from holdfast.cluster.policy import policy_of
from holdfast.cluster.tick import Cluster
from holdfast.control.clock_check import check_expiry
from holdfast.control.pause import PauseSwitch
from holdfast.entrypoints.daemon import (
    Debouncer,
    Ec2EventHandler,
    Housekeeping,
    Loop,
    LoopGroup,
    Ticker,
    queue_loop,
    webhook_loop,
    world_loop,
)
from holdfast.entrypoints.daemon_file import Daemon, announce_daemon, new_token
from holdfast.entrypoints.figure_counts import figure_counter
from holdfast.entrypoints.github_loops import RunRefresher, github_loop, github_sweeps
from holdfast.entrypoints.listening import listening_socket, url_of
from holdfast.entrypoints.process_setup import installed_version
from holdfast.entrypoints.tick_reports import TickCallbacks, TickReports
from holdfast.entrypoints.webhook_receiver import (
    WebhookOutcome,
    WebhookReceiver,
    record_internal_event,
    take_webhook,
    take_webhooks,
    webhook_secrets,
)
from holdfast.entrypoints.wiring.jobs import accepted_senders, oldest_webhook_seconds, stuck_limits, view_context
from holdfast.entrypoints.wiring.migration import open_migration
from holdfast.entrypoints.wiring.runners import runner_offer
from holdfast.entrypoints.wiring.stores import open_store, opened_tables
from holdfast.entrypoints.wiring.tables import Tables
from holdfast.entrypoints.wiring.world import OpenWorld, events_queue, notifiers, open_world
from holdfast.jobs.intake.json_limits import BODY_BYTES_MOST
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import WebhookSecrets
from holdfast.jobs.read.item_views import Viewing
from holdfast.jobs.sweep.github_sweeps import GitHubSweeps
from holdfast.kernel.errors import HoldfastError, MissingExtra
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import Key, Store, attr
from holdfast.ports.store.tables import STATE
from holdfast.views.cluster_status import cluster_status
from holdfast.views.decisions import DecisionPage, decisions
from holdfast.views.job_views import JobViews
from holdfast.views.latest_tick import LatestTick
from holdfast.views.tick_health import TickHealth

try:
    from holdfast.console.http.app import Served, build_app
    from holdfast.console.http.cluster_api import ClusterApi
    from holdfast.console.http.jobs_api import JobsApi
    from holdfast.console.http.live import Live
    from holdfast.console.http.webhooks import FOR_CALLS, FOR_FILES, Request, Take, Threads, WebhookAnswer, Webhooks
    from holdfast.console.metrics.registry import Metrics
    from holdfast.entrypoints.observers import JobMetricsUpdater, Observers
    from holdfast.entrypoints.web_server import WebServer
    from holdfast.entrypoints.wiring.console import ConsoleParts, build_access, build_console
    from holdfast.views.system_status import TableStatus
except ModuleNotFoundError as error:
    raise MissingExtra("the server", error.name, "console,metrics") from error

_PROBED: Final = Key("readyz")
_log = logging.getLogger(__name__)


def serve(settings: Settings, announce: Callable[[str], None], *, loops: bool = True) -> None:
    """Serve until SIGTERM or SIGINT, which end the process with exit code 0. `announce` gets the address, once ready.

    Without loops it serves requests and receives webhooks, and leaves the ticks to another process.
    """
    viewing = view_context(settings)
    runner_offer(settings)  # a profile that no machine fits is reported before anything is touched
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    with ExitStack() as stack:
        # First: if the port is taken, nothing has been touched.
        listener = stack.enter_context(closing(listening_socket(settings.holdfast_host, settings.holdfast_port)))
        known = webhook_secrets(settings)
        debouncer = Debouncer()
        process = _open(settings, viewing, stack, debouncer.changed if loops else None)
        running = stack.enter_context(LoopGroup())
        wake = _start_loops(process, debouncer, running) if loops else _no_ticks
        daemon = Daemon(url_of(listener), new_token())
        app = build_app(_served(process, viewing, known, daemon.token, wake, has_ticks=loops))
        stack.enter_context(announce_daemon(settings, daemon))
        if loops:
            _start_tracker_loops(process, known, daemon, running)
        where = "the simulated world" if process.world.simulated else "AWS"
        ready = (
            f"holdfast {process.version} serves {daemon.url} from {settings.holdfast_store}, in {where}; Ctrl-C to stop"
        )
        # After a signal has stopped it, uvicorn raises the signal again, for our handler above.
        WebServer(app, settings, lambda: announce(ready), process.observers.live.stop).run(sockets=[listener])


@dataclass(frozen=True, slots=True)
class _Process:
    """What the process has opened, for its pages and its loops."""

    settings: Settings
    version: str
    clock: Clock
    world: OpenWorld
    store: TimedStore
    tables: Tables
    cluster: Cluster
    observers: Observers
    tracking: "_Tracking"


def _open(settings: Settings, viewing: Viewing, stack: ExitStack, changed: Callable[[], None] | None) -> _Process:
    """Open everything; `stack` closes it. `changed` is called when the watch sees a change; None: no ticks here."""
    clock, version = SystemClock(), installed_version()
    metrics = Metrics(version)
    world = stack.enter_context(open_world(settings, changed=changed, writable=changed is not None))
    # Creates a SQLite file and its tables. DynamoDB tables cost money, so an operator creates them.
    metered = open_store(settings, world.clock, date=world.times.dynamodb)
    if settings.holdfast_store.path is None:
        # Units cost nothing on SQLite, and counting them takes as long as writing.
        metered = metered.metered(metrics.record_consumed)
    store = stack.enter_context(closing(timed_store(metered, clock, metrics.record_call)))
    tables = stack.enter_context(opened_tables(settings, clock))
    # In the background: DynamoDB may be slow, and the health check must not wait for it.
    threading.Thread(target=_report_tables, args=(tables,), daemon=True).start()
    stack.enter_context(Housekeeping(store, lambda: check_expiry(store, world.clock.now(), world.ec2_time(), "EC2")))
    health = TickHealth(clock, lambda: world.real_seconds(settings.tick_sec))
    observers = Observers(metrics, LatestTick(runs_ticks=changed is not None), Live(), health)
    tracking = stack.enter_context(_open_tracking(settings, world, store, metrics, viewing))
    cluster = world.cluster(settings, store)
    return _Process(settings, version, clock, world, store, tables, cluster, observers, tracking)


def _served(
    process: _Process, viewing: Viewing, known: WebhookSecrets, token: str, wake: Callable[[], None], *, has_ticks: bool
) -> Served:
    p, seen, tracking = process, process.observers, process.tracking
    parts = ConsoleParts(
        p.settings, p.version, p.world, p.store, seen.latest_tick, seen.live, tracking.views, viewing.prices, wake
    )
    access = build_access(parts, p.clock, token)
    take = _webhook_taker(known, tracking.receiver, seen.metrics)
    return Served(
        version=p.version,
        clock=p.clock,
        started=p.clock.now(),
        store=p.settings.holdfast_store,
        probe=lambda: probe_store(p.store),
        ticks=seen.health.problem if has_ticks else None,
        check_clock=p.world.check_clock,
        tables=lambda: _table_statuses(p.tables),
        metrics=seen.metrics,
        cluster=_cluster_api(p.settings, p.world, p.store, Ec2EventHandler(p.cluster, wake), token),
        jobs=JobsApi(tracking.views, partial(record_internal_event, tracking.tracker), token),
        webhooks=Webhooks(seen.notify_pages_after(take), BODY_BYTES_MOST, tracking.threads),
        console=build_console(parts, access),
        access=access,
    )


@dataclass(frozen=True, slots=True)
class _Tracking:
    """The job tracker, what receives webhooks, and the views."""

    tracker: Tracker
    receiver: WebhookReceiver
    threads: Threads
    sweeps: GitHubSweeps | None
    views: JobViews


@contextmanager
def _open_tracking(
    settings: Settings, world: OpenWorld, store: Store, metrics: Metrics, viewing: Viewing
) -> Iterator[_Tracking]:
    own_name = f"{socket.gethostname()[:40]}-{os.getpid()}"
    tracker = Tracker(store, world.clock, own_name, oldest_webhook_seconds(settings), accepted_senders(settings))
    sweeps = github_sweeps(settings, store, world.clock, own_name, metrics.github, world.times.github)
    migration = open_migration(settings, store, world.clock, metrics.migration.record)
    receiver = migration.receiver(tracker) if migration else tracker
    readable = migration.reads(store) if migration else store
    fresh = RunRefresher(sweeps) if sweeps else None
    views = JobViews(readable, world.clock, viewing, stuck_limits(settings), fresh, runner_offer(settings))
    # A file has one writer; calls to a remote store run in parallel.
    threads = FOR_FILES if receiver is tracker and settings.holdfast_store.path else FOR_CALLS
    try:
        yield _Tracking(tracker, receiver, threads, sweeps, views)
    finally:
        if migration:
            migration.close()


def _start_loops(process: _Process, debouncer: Debouncer, running: LoopGroup) -> Callable[[], None]:
    """Start the control loops; returns a function that wakes the ticker."""
    settings, world, cluster, observers = process.settings, process.world, process.cluster, process.observers
    callbacks = TickCallbacks(_after_tick(world, observers), lambda error: observers.failed(error, world.clock.now()))
    reports = TickReports(cluster, notifiers(settings, world.clock), callbacks)
    ticks = Loop("ticks", Ticker(cluster, world, reports, settings.tick_sec).run)
    debouncer.wake = ticks.wake
    events = Ec2EventHandler(cluster, ticks.wake)
    if queue := events_queue(settings):
        running.on_exit(queue.close)
        running.start(queue_loop(queue, events, reports))
    if simulation := world_loop(world, events):
        running.start(simulation)
    running.start(ticks)
    return ticks.wake


def _after_tick(world: OpenWorld, observers: Observers) -> Callable[[TickResult], None]:
    def ticked(result: TickResult) -> None:
        if world.simulated:
            state = result.seen.state
            world.simulated.slow_motion.ticked(is_acting=state.up is not None or state.down is not None)
        observers.ticked(result)

    return ticked


def _start_tracker_loops(process: _Process, known: WebhookSecrets, daemon: Daemon, running: LoopGroup) -> None:
    world, tracking = process.world, process.tracking
    if demo_webhooks := webhook_loop(world, daemon.url, known, daemon.token):
        running.start(demo_webhooks)
    if tracking.sweeps:
        running.start(github_loop(tracking.sweeps, process.settings.github_sweep_calls, world.check_clock))
    counter = figure_counter(process.settings, process.store, world.clock)
    running.start(Loop("figures", lambda: world.real_seconds(counter.run())))
    updater = JobMetricsUpdater(process.store, tracking.views, world.clock, process.observers.metrics.jobs)
    running.start(Loop("job metrics", lambda: world.real_seconds(updater.run())))


def _no_ticks() -> None:
    """This process runs no ticks, so there is nothing to wake."""


def _webhook_taker(known: WebhookSecrets, receiver: WebhookReceiver, metrics: Metrics) -> Take:
    def take(requests: Sequence[Request]) -> Sequence[WebhookAnswer | Exception]:
        if isinstance(receiver, Tracker):
            outcomes = take_webhooks(requests, known, receiver)
        else:
            outcomes = [take_webhook(headers, body, known, receiver) for headers, body in requests]
        return [answer(headers, outcome) for (headers, _), outcome in zip(requests, outcomes, strict=True)]

    def answer(headers: Mapping[str, str], outcome: WebhookOutcome | Exception) -> WebhookAnswer | Exception:
        if isinstance(outcome, Exception):
            return outcome
        metrics.record_webhook(headers.get("x-github-event", ""), outcome.status, outcome.result)
        retry = outcome.retry_after_seconds
        return WebhookAnswer(outcome.status, outcome.body, ((b"retry-after", str(retry).encode()),) if retry else ())

    return take


def _cluster_api(settings: Settings, world: OpenWorld, store: Store, events: Ec2EventHandler, token: str) -> ClusterApi:
    name = ClusterId(settings.cluster_id)
    pause_switch, policy = PauseSwitch(store, world.clock, name), policy_of(settings)

    def page(since: Instant | None, until: Instant | None, cursor: str | None) -> DecisionPage:
        now = world.clock.now()
        return decisions(store, name, since or now.plus(-3600), min(until or now, now), cursor)

    return ClusterApi(
        overview=lambda: cluster_status(store, name, policy, world.clock.now()),
        decisions=page,
        pause=pause_switch.pause,
        resume=pause_switch.resume,
        take_event=events.take,
        token=token,
        events_secret=settings.events_secret,
    )


def probe_store(store: TimedStore) -> None:
    """Raise the store's error if it does not answer, or if the latest write failed and another one fails as well."""
    # The cheapest read there is: eventually consistent, of an item that need not exist.
    store.get(STATE, _PROBED, consistent=False)
    if store.is_write_failing:
        # Try again: a process that is not ready gets no requests, whose writes would show that the store is back.
        store.update(STATE, _PROBED, attr("expiresAt").set_to(0))


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
        _log.warning("could not check the tables: %s", error)
