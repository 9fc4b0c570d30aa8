"""A simulated world that a program can live in: its time passes by itself, and it is kept in a file.

The file has what EC2 and Kubernetes would remember. Every change that a port makes is in it before the call returns,
so the program can be killed at any moment: the world it comes back to is the one it acted on. While nobody runs, the
world stands still.
"""

import fcntl
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any, Final, Self, TypeVar, cast

from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.instants import Instant
from holdfast.simulator.daily import DailyLife
from holdfast.simulator.organisation_objects import Parcel
from holdfast.simulator.world import World

P = TypeVar("P")
Answer = TypeVar("Answer")

# A world that was written by another version of these classes cannot be read by them.
_FORMAT: Final = 4
_CHANGES: Final = frozenset({"launch", "terminate", "change_node", "evict", "delete_node", "delete_secret"})


class LivingWorld:
    """One world, the time in it, and its file. Whoever changes it holds the file's lock; others only look."""

    def __init__(self, path: Path, begin: Callable[[], DailyLife], *, speed: float, writable: bool = True) -> None:
        self._path = path
        self._lock = RLock()
        self._speed = speed
        self._hold = _hold(path) if writable else None
        self._life = _read(path) or begin()
        self._since_seconds = time.monotonic()
        self._begun = self._life.world.timeline.now()
        self.clock = WorldClock(self)
        self.machines = self._port(self._life.world.ec2)
        self.kube = self._port(self._life.world.k3s)
        self.signals = self._port(self._life.world.prometheus)

    @property
    def speed(self) -> float:
        return self._speed

    def go_at(self, speed: float) -> None:
        """Pass time at another speed from now on."""
        with self._lock:
            now = self._moved().timeline.now()
            self._begun, self._since_seconds, self._speed = now, time.monotonic(), speed

    @property
    def subnets(self) -> list[str]:
        return [subnet.id for subnet in self._life.world.subnets]

    def now(self) -> Instant:
        with self._lock:
            return self._moved().timeline.now()

    def pass_time(self, seconds: float) -> None:
        """Let time pass at once, beside what passes by itself."""
        with self._lock:
            self._begun = self._begun.plus(seconds)
            self._moved()

    def hand_over_events(self, handle: Callable[[dict[str, Any]], object]) -> None:
        """Give EventBridge's events to `handle`. Each is given until it returns: at least once."""
        while True:
            with self._lock:
                self._moved()
                event = next(iter(self._life.events), None)
            if event is None:
                return
            handle(event)
            with self._lock:
                self._life.events.remove(event)
                self.keep()

    def hand_over_parcels(self, is_delivered: Callable[[Parcel], bool], most: int) -> int:
        """Give the organisation's post to `is_delivered`, one after the other; how many were taken.

        What was taken and not yet kept is given again after a kill: the world then repeats itself, word for word.
        """
        outbox = self._life.organisation.outbox
        for number in range(most):
            with self._lock:
                self._moved()
                parcel = outbox[0] if outbox else None
            if parcel is None or not is_delivered(parcel):
                return number
            with self._lock:
                outbox.pop(0)
        return most

    @property
    def parcels_waiting(self) -> int:
        with self._lock:
            return len(self._life.organisation.outbox)

    def order(self, change: Callable[[DailyLife], Answer]) -> Answer:
        """Let something happen in the world now; it is kept before this returns."""
        with self._lock:
            self._moved()
            answer = change(self._life)
            self.keep()
            return answer

    def keep(self) -> None:
        """Write the world to its file."""
        if self._hold is None:
            return
        with self._lock:
            content = pickle.dumps((_FORMAT, self._life))
            temporary = self._path.with_name(f"{self._path.name}.new")
            temporary.touch(mode=0o600)
            temporary.write_bytes(content)
            temporary.replace(self._path)

    def close(self) -> None:
        if self._hold is not None:
            self.keep()
            os.close(self._hold)
            self._hold = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, target: Callable[[], Any]) -> Any:
        """A call of a port: the world is moved on to this moment first, and kept when it may have changed."""
        with self._lock:
            self._moved()
            try:
                return target()
            finally:
                if method in _CHANGES:
                    self.keep()

    def _moved(self) -> World:
        world = self._life.world
        passed = (time.monotonic() - self._since_seconds) * self._speed
        world.timeline.run_until(self._begun.plus(passed))
        return world

    def _port(self, port: P) -> P:
        return cast(P, _Port(self, port))


class _Port:
    def __init__(self, world: LivingWorld, port: Any) -> None:
        self._world = world
        self._port = port

    def __getattr__(self, method: str) -> Any:
        target = getattr(self._port, method)
        return lambda *args, **options: self._world.call(method, lambda: target(*args, **options))


class WorldClock:
    """Implements `holdfast.ports.clock.Clock`."""

    def __init__(self, world: LivingWorld) -> None:
        self._world = world

    def now(self) -> Instant:
        return self._world.now()

    def monotonic_seconds(self) -> float:
        return self._world.now().epoch_ms / 1000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / self._world.speed)


def _hold(path: Path) -> int:
    """A lock that ends with the process, however it ends."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NeedsOperator(f"the simulated world cannot be kept at {path}: {error.strerror}; choose --data") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise NeedsOperator(
            f"another process lives in the simulated world {path}; stop it, or name another directory with --data"
        ) from error
    return handle


def _read(path: Path) -> DailyLife | None:
    try:
        if _is_writable_by_others(path):
            raise NeedsOperator(
                f"the simulated world {path} can be written by others, and is not read; make {path.parent} your own"
            )
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NeedsOperator(f"the simulated world {path} cannot be read: {error.strerror}; choose --data") from error
    try:
        number, life = pickle.loads(content)  # noqa: S301 -- our own file, in a directory of this user alone
    except Exception as error:
        raise _unreadable(path) from error
    if number != _FORMAT or not isinstance(life, DailyLife):
        raise _unreadable(path)
    return life


def _is_writable_by_others(path: Path) -> bool:
    """What is read from the file is run: it must be ours alone."""
    found = (path.stat(), path.parent.stat())
    return any(each.st_uid not in (os.getuid(), 0) or each.st_mode & 0o022 for each in found)


def _unreadable(path: Path) -> NeedsOperator:
    return NeedsOperator(
        f"the simulated world {path} was left by another version, or is damaged; remove {path.parent} to begin anew"
    )
