"""The loops of a daemon: ticks, EC2's events, and the time of a simulated world. A few threads around plain code.

Each loop survives whatever happens in it: it tells, waits, and goes on. Only the process ends them.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, Protocol

from holdfast.cluster.events import WORTH_A_LOOK, spot_event, take_event
from holdfast.cluster.loop import AGAIN_SECONDS, is_unfinished
from holdfast.cluster.plan import Ticked
from holdfast.cluster.tick import Cluster, tick
from holdfast.entrypoints.reports import Reports
from holdfast.entrypoints.world import OpenWorld
from holdfast.jobs.webhook import WebhookSecrets
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.ids import nonce

# A change in the cluster is looked at at once, but a thousand changes not a thousand times.
BREATH_SECONDS: Final = 5.0
# After an error of a queue that cannot be read, or of ours.
AFTER_ERROR_SECONDS: Final = 15.0
_WORLD_EVERY_SECONDS: Final = 0.25
# With the server's own time, less than the half minute after which most supervisors kill.
STOP_SECONDS: Final = 20.0

_log = logging.getLogger(__name__)


class Loop:
    """A thread that calls `once` again and again. `once` says in how many seconds it wants to be called next."""

    def __init__(self, name: str, once: Callable[[], float]) -> None:
        self._once = once
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def wake(self) -> None:
        """Do not wait any longer."""
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

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                seconds = self._once()
            except Exception:
                _log.exception("%s: something unexpected went wrong; tried again soon", self)
                seconds = AFTER_ERROR_SECONDS
            # A wake-up during the call counts: it may have come too late for that look.
            self._wake.wait(seconds)
            self._wake.clear()


def stop_all(loops: Sequence[Loop], seconds: float = STOP_SECONDS) -> None:
    """All are asked first, and then all are waited for, so long together.

    What they have begun they may finish: a tick takes seconds. Killed in the middle, nothing would be lost either.
    """
    for loop in loops:
        loop.ask_to_stop()
    end = time.monotonic() + seconds
    for loop in loops:
        if not loop.has_stopped_within(max(0.0, end - time.monotonic())):
            _log.warning("%s did not end within %g s, and is left behind; the next process goes on", loop, seconds)


class Loops:
    """Loops that begin one by one and end together."""

    def __init__(self) -> None:
        self._running: list[Loop] = []
        self._afterwards = ExitStack()

    def start(self, loop: Loop) -> None:
        self._running.append(loop)
        loop.start()

    def then(self, close: Callable[[], object]) -> None:
        """What is left to do when they have ended."""
        self._afterwards.callback(close)

    def __enter__(self) -> "Loops":
        return self

    def __exit__(self, *_: object) -> None:
        with self._afterwards:
            stop_all(self._running)


class Ticking:
    """Ticks every `every_seconds`, sooner while something is under way."""

    def __init__(self, cluster: Cluster, world: OpenWorld, reports: Reports, every_seconds: float) -> None:
        self._cluster = cluster
        self._world = world
        self._reports = reports
        self._every_seconds = every_seconds
        self._owner = f"{socket.gethostname()[:40]}-{os.getpid()}-{nonce()}"
        self._ticks = 0

    def once(self) -> float:
        self._ticks += 1
        last: Ticked | None = None
        try:
            last = tick(self._cluster, f"{self._owner}.{self._ticks}")
            self._reports.ticked(last)
        except HoldfastError as error:
            self._reports.failed(error)
        except Exception as error:
            # Told, and tried again: a daemon that ends helps nobody.
            self._reports.unexpected(error)
        return self._world.real_seconds(AGAIN_SECONDS if is_unfinished(last) else self._every_seconds)


class Events:
    """Takes EC2's events, from wherever they come, and wakes the ticks."""

    def __init__(self, cluster: Cluster, wake: Callable[[], None]) -> None:
        self._cluster = cluster
        self._wake = wake

    def take(self, event: Mapping[str, Any]) -> str:
        """What became of it, in a word; BadRequest for what is no event of EC2's."""
        told = spot_event(event)
        if told is None:
            return "ignored"
        outcome = take_event(self._cluster, told)
        _log.info("event: %s of %s: %s", told.kind, told.instance, outcome)
        if outcome in WORTH_A_LOOK:  # not for each machine of others in the account
            self._wake()
        return outcome


def world_loop(world: OpenWorld, events: Events) -> Loop | None:
    """Lets a simulated world live, and hands over its events. A real one needs no help."""
    living = world.living
    if living is None:
        return None

    def once() -> float:
        living.hand_over_events(events.take)
        living.keep()
        return _WORLD_EVERY_SECONDS

    return Loop("world", once)


def post_loop(world: OpenWorld, url: str, secrets: WebhookSecrets, token: str) -> Loop | None:
    """Delivers what a simulated world's organisation has to tell, over the same door that GitHub comes through."""
    if world.living is None:
        return None
    from holdfast.entrypoints.organisation_post import Post

    return Loop("post", Post(world.living, url, secrets, token).once)


class Queue(Protocol):
    """Where EventBridge's events wait."""

    def handle_next(self, handle: Callable[[dict[str, Any]], object]) -> int: ...

    def has_dead_letter_queue(self) -> bool: ...


def queue_loop(queue: Queue, events: Events, reports: Reports) -> Loop:
    """Reads a queue of events for ever. What is wrong with it is told."""
    unchecked = [queue]

    def once() -> float:
        try:
            if unchecked and not unchecked.pop().has_dead_letter_queue():
                reports.without_dead_letters(str(queue))
            queue.handle_next(events.take)
        except HoldfastError as error:
            reports.deaf(error)
            return AFTER_ERROR_SECONDS
        return 0.0

    return Loop("events", once)


class Breath:
    """Passes a wake-up on, at most every BREATH_SECONDS: a change is looked at at once, a thousand not each."""

    def __init__(self, seconds: float = BREATH_SECONDS) -> None:
        self.wake: Callable[[], None] = lambda: None  # set by whoever wants to be woken
        self._seconds = seconds
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def changed(self) -> None:
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(self._seconds, self._pass_on)
                self._timer.daemon = True
                self._timer.start()

    def _pass_on(self) -> None:
        with self._lock:
            self._timer = None
        self.wake()
