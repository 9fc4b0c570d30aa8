"""A simulated world for `holdfast run`: its time passes by itself, and it is stored in a file.

The file contains what EC2, Kubernetes and GitHub would remember. A change made through a port is stored before the call
returns, so the program can be killed at any moment and finds the same world again. Time stops while no process runs.
"""

import fcntl
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, Final, Self, TypeVar

import msgspec

from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.file_trust import distrusted
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.typed_json import decoded
from holdfast.ports.kube import Evicted, Kube, Node, NodeChange, Pod
from holdfast.ports.machines import LaunchOrder, Machine, Machines, Subnet
from holdfast.ports.readings import Reading
from holdfast.ports.signals import PendingPods, Signals
from holdfast.simulator.demo.ordinary_day import OrdinaryDay
from holdfast.simulator.demo.organisation import OutboxMessage
from holdfast.simulator.demo.slow_motion import SlowMotion
from holdfast.simulator.demo.stored_objects import UnreadableObjects
from holdfast.simulator.demo.world_classes import WORLD_OBJECTS
from holdfast.simulator.world.world import World

Answer = TypeVar("Answer")

# Raise it when the stored classes change: an older file cannot be read then. Up to 6 it was a pickle.
_FORMAT: Final = 7


class _WorldFile(msgspec.Struct, forbid_unknown_fields=True):
    """What the file contains: JSON, so that reading it cannot run code."""

    holdfast_world: int
    objects: list[list[Any]]


class PersistentWorld:
    """One world, its clock and its file. Only a process that holds the file's lock changes it."""

    def __init__(self, path: Path, begin: Callable[[], OrdinaryDay], *, speed: float, writable: bool = True) -> None:
        self._path = path
        self._lock = RLock()
        self._speed = speed
        self._hold = _hold(path) if writable else None
        self._day = _read(path) or begin()
        self._since_seconds = time.monotonic()
        self._begun = self._day.world.timeline.now()
        self.slow_motion = SlowMotion(self)
        self.clock = WorldClock(self)
        self.machines = _Machines(self, self._day.world.ec2)
        self.kube = _Kube(self, self._day.world.k3s)
        self.signals = _Signals(self, self._day.world.prometheus)

    @property
    def speed(self) -> float:
        return self._speed

    def go_at(self, speed: float) -> None:
        """Change the speed of time."""
        with self._lock:
            now = self._moved().timeline.now()
            self._begun, self._since_seconds, self._speed = now, time.monotonic(), speed

    @property
    def subnets(self) -> list[str]:
        return [subnet.id for subnet in self._day.world.subnets]

    def now(self) -> Instant:
        with self._lock:
            return self._moved().timeline.now()

    def pass_time(self, seconds: float) -> None:
        """Let this much time pass at once, in addition to what passes by itself."""
        with self._lock:
            self._begun = self._begun.plus(seconds)
            self._moved()

    def deliver_events(self, handle: Callable[[dict[str, Any]], object]) -> None:
        """Pass EventBridge's events to `handle`, at least once each: an event is repeated until `handle` returns."""
        while True:
            with self._lock:
                self._moved()
                event = next(iter(self._day.events), None)
            if event is None:
                return
            handle(event)
            with self._lock:
                self._day.events.remove(event)
                self.keep()

    def deliver_outbox(self, is_delivered: Callable[[OutboxMessage], bool], most: int) -> int:
        """Pass the organisation's webhooks and runner reports to `is_delivered`, in order; returns how many succeeded.

        After a kill, messages delivered since the last `keep` are delivered again, with the same content.
        """
        outbox = self._day.organisation.outbox
        for number in range(most):
            with self._lock:
                self._moved()
                message = outbox[0] if outbox else None
            if message is None or not is_delivered(message):
                return number
            with self._lock:
                outbox.pop(0)
        return most

    @property
    def outbox_size(self) -> int:
        with self._lock:
            return len(self._day.organisation.outbox)

    def order(self, change: Callable[[OrdinaryDay], Answer]) -> Answer:
        """Change the world, and store it before this returns."""
        with self._lock:
            self._moved()
            answer = change(self._day)
            self.keep()
            return answer

    def keep(self) -> None:
        """Write the world to its file."""
        if self._hold is None:
            return
        with self._lock:
            stored = _WorldFile(_FORMAT, WORLD_OBJECTS.written(self._day))
            _write(self._path, msgspec.json.encode(stored))

    def close(self) -> None:
        if self._hold is not None:
            try:
                self.keep()
            finally:
                os.close(self._hold)
                self._hold = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, call: Callable[[], Answer]) -> Answer:
        """Make a port call on the world as it is now."""
        with self._lock:
            self._moved()
            return call()

    def change(self, call: Callable[[], Answer]) -> Answer:
        """Make a port call that may change the world, and store it before this returns or raises."""
        with self._lock:
            self._moved()
            try:
                return call()
            finally:
                self.keep()

    def _moved(self) -> World:
        world = self._day.world
        passed = (time.monotonic() - self._since_seconds) * self._speed
        world.timeline.run_until(self._begun.plus(passed))
        return world


class _Machines:
    """Implements `holdfast.ports.machines.Machines`."""

    def __init__(self, world: PersistentWorld, target: Machines) -> None:
        self._world = world
        self._target = target

    def launch(self, order: LaunchOrder) -> Machine:
        return self._world.change(lambda: self._target.launch(order))

    def terminate(self, machine: InstanceId) -> None:
        return self._world.change(lambda: self._target.terminate(machine))

    def mark_accepted(self, machine: InstanceId, action: str) -> None:
        return self._world.change(lambda: self._target.mark_accepted(machine, action))

    def tagged(self, tags: Mapping[str, str]) -> list[Machine]:
        return self._world.read(lambda: self._target.tagged(tags))

    def found(self, machines: Sequence[InstanceId]) -> list[Machine]:
        return self._world.read(lambda: self._target.found(machines))

    def subnets(self, subnets: Sequence[str]) -> list[Subnet]:
        return self._world.read(lambda: self._target.subnets(subnets))

    def server_time(self) -> Instant | None:
        return self._world.read(self._target.server_time)


class _Kube:
    """Implements `holdfast.ports.kube.Kube`."""

    def __init__(self, world: PersistentWorld, target: Kube) -> None:
        self._world = world
        self._target = target

    def nodes(self) -> list[Node]:
        return self._world.read(self._target.nodes)

    def node(self, name: str) -> Node | None:
        return self._world.read(lambda: self._target.node(name))

    def pods(self) -> list[Pod]:
        return self._world.read(self._target.pods)

    def pods_on(self, node: str) -> list[Pod]:
        return self._world.read(lambda: self._target.pods_on(node))

    def change_node(self, node: Node, change: NodeChange) -> Node:
        return self._world.change(lambda: self._target.change_node(node, change))

    def evict(self, pod: Pod) -> Evicted:
        return self._world.change(lambda: self._target.evict(pod))

    def delete_node(self, node: Node) -> None:
        return self._world.change(lambda: self._target.delete_node(node))

    def delete_secret(self, namespace: str, name: str) -> None:
        return self._world.change(lambda: self._target.delete_secret(namespace, name))


class _Signals:
    """Implements `holdfast.ports.signals.Signals`."""

    def __init__(self, world: PersistentWorld, target: Signals) -> None:
        self._world = world
        self._target = target

    def cpu(self) -> Reading[float]:
        return self._world.read(self._target.cpu)

    def pending_pods(self) -> Reading[PendingPods]:
        return self._world.read(self._target.pending_pods)

    def ready_addresses(self) -> Reading[frozenset[str]]:
        return self._world.read(self._target.ready_addresses)


class WorldClock:
    """Implements `holdfast.ports.clock.Clock`."""

    def __init__(self, world: PersistentWorld) -> None:
        self._world = world

    def now(self) -> Instant:
        return self._world.now()

    def monotonic_seconds(self) -> float:
        return self._world.now().epoch_ms / 1000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / self._world.speed)


def _hold(path: Path) -> int:
    """A lock that is released when the process ends, in whatever way."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_trusted(path)
        lock = path.with_name(f"{path.name}.lock")
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise NeedsOperator(
            f"the simulated world cannot be stored at {path}: {error.strerror}; choose another directory with --data"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise NeedsOperator(
            f"another process uses the simulated world {path}; stop it, or choose another directory with --data"
        ) from error
    return handle


def _write(path: Path, content: bytes) -> None:
    """Replace the file in one step: after a kill, or on a full disk, it has the old content or the new one."""
    temporary = path.with_name(f"{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)  # of a process that was killed
        # O_EXCL does not follow a link: the directory may have come from an archive, with a link to another file.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)  # what fitted; others need the space
        raise NeedsOperator(
            f"the simulated world {path} cannot be written: {error.strerror}; its last minutes are lost if the process "
            "ends before that: make room on the disk, or choose another directory with --data"
        ) from error


def _read(path: Path) -> OrdinaryDay | None:
    try:
        _check_trusted(path)
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NeedsOperator(
            f"the simulated world {path} cannot be read: {error.strerror}; choose another directory with --data"
        ) from error
    try:
        stored = decoded(content, _WorldFile)
        day = WORLD_OBJECTS.read(stored.objects) if stored.holdfast_world == _FORMAT else None
    except (msgspec.MsgspecError, UnicodeDecodeError, UnreadableObjects) as error:
        raise _unreadable(path) from error
    if not isinstance(day, OrdinaryDay):
        raise _unreadable(path)
    return day


def _check_trusted(path: Path) -> None:
    if found := distrusted(path.parent, path):
        raise NeedsOperator(
            f"the simulated world {path} was not read: {found}; "
            "take ownership of it and run chmod go-w, or choose another directory with --data"
        )


def _unreadable(path: Path) -> NeedsOperator:
    return NeedsOperator(
        f"the simulated world {path} was stored by another version or is damaged; "
        "to start again, remove it and the store beside it, or choose another directory with --data"
    )
