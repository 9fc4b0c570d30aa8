"""The daemon's loops: ticks, EC2 events, the simulated world, and removal of expired items. Each is a thread.

A loop survives any error: it reports the error, waits and continues. Loops end only with the process.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, Protocol

from holdfast.adapters.system_clock import SystemClock
from holdfast.cluster.plan import TickResult
from holdfast.cluster.spot.events import WORTH_A_LOOK, EventOutcome, take_event
from holdfast.cluster.tick import Cluster, is_unfinished, tick
from holdfast.cluster.wake_up import SOONEST_SECONDS, Change
from holdfast.control.lease import LeaseHeld
from holdfast.control.tick_loop import AGAIN_SECONDS
from holdfast.entrypoints.folded_lines import FoldedLines
from holdfast.entrypoints.tick_reports import TickReports
from holdfast.entrypoints.wiring.world import OpenWorld
from holdfast.fleet.ec2_events import parse_ec2_event
from holdfast.jobs.intake.webhook import WebhookSecrets
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.kernel.ids import nonce
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Store
from holdfast.ports.store.tables import TABLES

# A change in the cluster starts a tick soon, but a thousand changes do not start a thousand ticks.
DEBOUNCE_SECONDS: Final = 5.0
# Pause after an error.
AFTER_ERROR_SECONDS: Final = 15.0
_WORLD_EVERY_SECONDS: Final = 0.25
# Together with the server's shutdown, below the 30 s after which most supervisors kill a process.
STOP_SECONDS: Final = 20.0
EXPIRY_EVERY_SECONDS: Final = 600.0
EXPIRY_BATCH_MOST: Final = 500  # a larger batch would block other writers for too long

_log = logging.getLogger(__name__)


class Loop:
    """A thread that calls `run` repeatedly. `run` returns the seconds to wait until the next call."""

    def __init__(self, name: str, run: Callable[[], float]) -> None:
        self._run_once = run
        self._lines = FoldedLines(_log, SystemClock())
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)

    def wake(self) -> None:
        """End the current wait."""
        self._wake.set()

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    def has_stopped_within(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def __enter__(self) -> "Loop":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        stop_all([self])

    def __str__(self) -> str:
        return self._thread.name

    def _repeat(self) -> None:
        while not self._stopping.is_set():
            try:
                seconds = self._run_once()
                self._lines.is_over(f"{self} works again")
            except HoldfastError as error:  # a full disk, say: known, so without a traceback
                self._lines.log(logging.ERROR, f"{self} failed: {error}; retrying soon")
                seconds = AFTER_ERROR_SECONDS
            except Exception:
                _log.exception("%s failed with an unexpected error; retrying soon", self)
                seconds = AFTER_ERROR_SECONDS
            # A wake-up during the call counts: that call may have read too early to see the change.
            self._wake.wait(seconds)
            self._wake.clear()


def stop_all(loops: Sequence[Loop], seconds: float = STOP_SECONDS) -> None:
    """Ask every loop to stop, then wait for all of them, `seconds` in total.

    A tick in progress may finish. Killing it would lose nothing either.
    """
    for loop in loops:
        loop.ask_to_stop()
    end = time.monotonic() + seconds
    for loop in loops:
        if not loop.has_stopped_within(max(0.0, end - time.monotonic())):
            _log.warning("%s did not stop within %g s; abandoned, the next process resumes its work", loop, seconds)


class LoopGroup:
    """Loops that start one by one and stop together."""

    def __init__(self) -> None:
        self._running: list[Loop] = []
        self._on_exit = ExitStack()

    def start(self, loop: Loop) -> None:
        self._running.append(loop)
        loop.start()

    def on_exit(self, close: Callable[[], object]) -> None:
        """Call `close` after the loops have stopped."""
        self._on_exit.callback(close)

    def __enter__(self) -> "LoopGroup":
        return self

    def __exit__(self, *_: object) -> None:
        with self._on_exit:
            stop_all(self._running)


class Ticker:
    """Ticks every `every_seconds`, and sooner while an action is in progress or when a limit of ours is reached."""

    def __init__(self, cluster: Cluster, world: OpenWorld, reports: TickReports, every_seconds: float) -> None:
        self._cluster = cluster
        self._world = world
        self._reports = reports
        self._every_seconds = every_seconds
        self._owner = f"{socket.gethostname()[:40]}-{os.getpid()}-{nonce()}"
        self._ticks = 0
        self._announced: Change | None = None

    def run(self) -> float:
        """One tick; returns the seconds until the next one."""
        self._ticks += 1
        # After a failed tick: what it would have waited for is unknown.
        seconds = self._every_seconds
        try:
            last = tick(self._cluster, f"{self._owner}.{self._ticks}")
            seconds = self._wait_seconds(last)
            self._reports.ticked(last)
        except LeaseHeld as error:
            if error.free_at is not None:
                seconds = min(seconds, self._seconds_until(error.free_at))
            self._reports.failed(error)
        except HoldfastError as error:
            self._reports.failed(error)
        except Exception as error:
            # A bug must not stop the daemon: the next tick is the retry.
            self._reports.failed_unexpectedly(error)
        return self._world.real_seconds(seconds)

    def _seconds_until(self, moment: Instant) -> float:
        return max(SOONEST_SECONDS, moment.seconds_since(self._world.clock.now()))

    def _wait_seconds(self, last: TickResult) -> float:
        seconds = AGAIN_SECONDS if is_unfinished(last) else self._every_seconds
        change = self._cluster.next_change(last)
        if change is None:
            return seconds
        sooner = self._seconds_until(change.at)
        if sooner < seconds and change != self._announced:
            _log.info("%s", change)
            self._announced = change
        return min(seconds, sooner)


class Ec2EventHandler:
    """Records EC2 events from any source, and wakes the ticker."""

    def __init__(self, cluster: Cluster, wake: Callable[[], None]) -> None:
        self._cluster = cluster
        self._wake = wake

    def take(self, event: Mapping[str, Any]) -> EventOutcome:
        """Record the event and return the outcome; BadRequest if it is not an EC2 event."""
        parsed = parse_ec2_event(event)
        if parsed is None:
            return "ignored"
        outcome = take_event(self._cluster, parsed)
        _log.info("EC2 event: %s for %s: %s", parsed.kind, parsed.instance, outcome)
        if outcome in WORTH_A_LOOK:  # not for instances of others in the account
            self._wake()
        return outcome


def world_loop(world: OpenWorld, events: Ec2EventHandler) -> Loop | None:
    """Advances a simulated world and delivers its events; None for a real one."""
    simulated = world.simulated
    if simulated is None:
        return None

    def run() -> float:
        simulated.deliver_events(events.take)
        simulated.keep()
        return _WORLD_EVERY_SECONDS

    return Loop("world", run)


def webhook_loop(world: OpenWorld, url: str, secrets: WebhookSecrets, token: str) -> Loop | None:
    """Delivers the simulated GitHub's webhooks to the same endpoint that GitHub uses; None for a real world."""
    if world.simulated is None:
        return None
    from holdfast.entrypoints.simulation.demo_webhooks import DemoWebhooks

    return Loop("webhooks", DemoWebhooks(world.simulated, url, secrets, token).deliver)


class EventQueue(Protocol):
    """The queue that holds EventBridge events."""

    def handle_next(self, handle: Callable[[dict[str, Any]], object]) -> int: ...

    def has_dead_letter_queue(self) -> bool: ...


def queue_loop(queue: EventQueue, events: Ec2EventHandler, reports: TickReports) -> Loop:
    """Reads the queue of EC2 events, and reports problems with it."""
    unchecked = [queue]

    def run() -> float:
        try:
            if unchecked and not unchecked.pop().has_dead_letter_queue():
                reports.no_dead_letter_queue(str(queue))
            queue.handle_next(events.take)
        except HoldfastError as error:
            reports.queue_failed(error)
            return AFTER_ERROR_SECONDS
        return 0.0

    return Loop("events", run)


class Debouncer:
    """Forwards wake-ups, at most one every `seconds`."""

    def __init__(self, seconds: float = DEBOUNCE_SECONDS) -> None:
        self.wake: Callable[[], None] = lambda: None  # set later to what is woken
        self._seconds = seconds
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def changed(self) -> None:
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(self._seconds, self._forward)
                self._timer.daemon = True
                self._timer.start()

    def _forward(self) -> None:
        with self._lock:
            self._timer = None
        self.wake()


class Housekeeping:
    """A thread that removes expired items periodically, for stores that do not do so themselves."""

    def __init__(self, store: Store, check: Callable[[], None], every_seconds: float = EXPIRY_EVERY_SECONDS) -> None:
        """`check` raises WrongClock if nothing must be removed now."""
        self._store = store
        self._check = check
        self._every_seconds = every_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def __enter__(self) -> "Housekeeping":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                self._check()
                removed = remove_all_expired(self._store, self._stopping)
                _log.debug("removed %d expired items", removed)
            except HoldfastError as error:
                level = logging.ERROR if isinstance(error, NeedsOperator) else logging.WARNING
                _log.log(level, "could not remove expired items: %s; retrying later", error)
            if self._stopping.wait(self._every_seconds):
                return


def remove_all_expired(store: Store, stopping: threading.Event | None = None) -> int:
    """Remove in batches, so that other writers get their turn. Returns the number removed."""
    total = 0
    for table in TABLES:
        while not (stopping and stopping.is_set()):
            removed = store.remove_expired(table, most=EXPIRY_BATCH_MOST)
            total += removed
            if removed < EXPIRY_BATCH_MOST:
                break
    return total
