"""Every call that a process makes through a port: where others may run, it may die, and an answer may be lost.

After a kill no call of that process takes effect: its `finally` blocks run into a wall.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from msgspec import Struct

from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.github import GitHub
from holdfast.ports.kube import Kube
from holdfast.ports.machines import MachineError, Machines
from holdfast.ports.readings import Unknown
from holdfast.ports.signals import Signals
from holdfast.ports.store import Store, UpdateItem
from holdfast.ports.store.tables import JOB_EVENTS, STATE
from holdfast.simulator.facts import OLD_LIST_SECONDS
from holdfast.simulator.faults import LISTS, Fault, Faults, Kind, error_of
from holdfast.simulator.gate import Killed
from holdfast.simulator.github import SimulatedGitHub
from holdfast.simulator.process import Process, ProcessClock, Scheduler
from holdfast.simulator.watch import Watch
from holdfast.simulator.world import World

Target = Callable[..., Any]


class Ports(Struct, frozen=True):
    """What one process reaches the world through."""

    store: Store
    clock: Clock
    machines: Machines
    kube: Kube
    signals: Signals
    github: GitHub


class Calls:
    """The calls of all processes of one run."""

    def __init__(self, world: World, store: Store, scheduler: Scheduler, faults: Faults, watch: Watch, cluster: str):
        self._world = world
        self._store = store
        self.scheduler = scheduler
        self._faults = faults
        self._watch = watch
        self._cluster = cluster
        self._now = world.timeline.now
        self._seen: dict[tuple[str, str], tuple[Instant, Any]] = {}
        self.github: SimulatedGitHub | None = None  # where there is one
        self.count = 0
        self.record: list[tuple[str, int, str, str]] | None = None

    def ports(self, process: Process) -> Ports:
        def port(name: str, target: Any) -> Any:
            kind: Any = type(target)
            return _port_kind(name, kind)(self, process, target)

        return Ports(
            port("store", self._store),
            ProcessClock(self.scheduler, process),
            port("machines", self._world.ec2),
            port("kube", self._world.k3s),
            port("signals", self._world.prometheus),
            port("github", self.github),
        )

    def made(self, process: Process, method: "_Method", target: Target, args: Any, options: Any) -> Any:
        if process.is_dead:
            raise Killed
        number = process.calls
        process.calls += 1
        self.count += 1
        if self.record is not None:
            self.record.append((process.name, number, method.port, method.name))
        fault = self._faults.at_call(process.name, process.number, number, method.port, method.name)
        # Some milliseconds, never the same for long: who goes first changes from call to call.
        latency = 0.004 + (process.number * 7 + number * 13) % 37 * 0.001
        if fault is None:
            self.scheduler.wait(process, latency)
            return self._carried_out(process, method, target, args, options)
        process.faults += 1
        return self._disturbed(process, fault, latency, method, target, args, options)

    def _disturbed(
        self,
        process: Process,
        fault: Fault,
        latency: float,
        method: "_Method",
        target: Target,
        args: Any,
        options: Any,
    ) -> Any:
        port, name = method.port, f"{process.calls - 1}: {method.port}.{method.name}"
        self._watch.befell(process, name, f"{fault.kind} {fault.seconds:.1f} s" if fault.seconds else str(fault.kind))
        self.scheduler.wait(process, latency if fault.is_after else latency + fault.seconds)
        if fault.kind is Kind.KILL_BEFORE:
            process.is_dead = True
            raise Killed
        if fault.kind is Kind.REFUSED:
            return self._refusal(fault.kind, port)
        if fault.kind is Kind.STALE:
            return self._as_it_was(process, method, target, args, options)
        answer = self._carried_out(process, method, target, args, options)
        if fault.is_after:
            self.scheduler.wait(process, fault.seconds)
        if fault.kind is Kind.KILL_AFTER:
            process.is_dead = True
            raise Killed
        return self._refusal(fault.kind, port) if fault.kind is Kind.LOST else answer

    def _refusal(self, kind: Kind, port: str) -> Any:
        if port == "signals":
            return Unknown(f"simulated: {kind}")  # Prometheus' port never raises
        raise error_of(kind, port, self._now())

    def _as_it_was(self, process: Process, method: "_Method", target: Target, args: Any, options: Any) -> Any:
        """The answer that somebody got a while ago; today's if nobody asked lately."""
        earlier = self._seen.get((method.port, method.name))
        if earlier is None or self._now().seconds_since(earlier[0]) > OLD_LIST_SECONDS:
            return self._carried_out(process, method, target, args, options)
        process.saw_old_list = True
        return list(earlier[1])

    def _carried_out(self, process: Process, method: "_Method", target: Target, args: Any, options: Any) -> Any:
        watch, watched = self._watch, method.watched
        watch.acting = process
        try:
            answer = watched(self, process, target, *args, **options) if watched else target(*args, **options)
        finally:
            watch.acting = None
        if method.is_list:
            self._seen[method.port, method.name] = (self._now(), answer)
        return answer

    # Effects that are watched

    def _update(self, process: Process, update: Target, table: Any, key: Any, *args: Any, **options: Any) -> Any:
        written = update(table, key, *args, **options)
        self._updated(process, table, key, written.old, written.new)
        return written

    def _updated(self, process: Process, table: Any, key: Any, old: Any, new: Any) -> None:
        if table.name == STATE.name:
            self._watch.wrote(process, key.partition, self._cluster, old, new)
        else:
            self._watch.tracked(process, table.name, old, new)

    def _put(self, process: Process, put: Target, table: Any, item: Any, *args: Any, **options: Any) -> None:
        is_event = table.name == JOB_EVENTS.name
        old = self._store.get(table, table.key_of(item)) if is_event else None
        put(table, item, *args, **options)
        if is_event:
            self._watch.tracked(process, table.name, old, item)

    def _transact(self, process: Process, transact: Target, writes: Any) -> None:
        changed = [write for write in writes if isinstance(write, UpdateItem)]
        before = [self._store.get(write.table, write.key) for write in changed]
        transact(writes)
        for write, old in zip(changed, before, strict=True):
            new = self._store.get(write.table, write.key)
            if new is not None:
                self._updated(process, write.table, write.key, old, new)

    def _batch_get(self, process: Process, batch_get: Target, table: Any, keys: Any, **options: Any) -> Any:
        if keys and keys[0].partition == self._cluster:
            process.looked = self._now()
            process.saw_old_list = False
        return batch_get(table, keys, **options)

    def _launch(self, process: Process, launch: Target, order: Any) -> Any:
        try:
            machine = launch(order)
        except MachineError as error:
            self._watch.refused(process, order, error.code)
            raise
        self._watch.launched(process, order, machine)
        return machine

    def _terminate(self, process: Process, terminate: Target, machine: Any) -> None:
        found = self._watch.facts.machines.get(machine)
        was_alive = found is not None and found.gone is None
        terminate(machine)
        if was_alive:
            self._watch.terminated(process, machine)

    def _evict(self, process: Process, evict: Target, pod: Any) -> Any:
        answer = evict(pod)
        self._watch.evicted(process, pod, str(getattr(answer, "outcome", answer)))
        return answer

    def _rerun(self, process: Process, rerun: Target, installation: Any, repository: Any, run_id: Any) -> None:
        run = self._watch.facts.jobs.github.runs.get(run_id) if self._watch.facts.jobs else None
        attempt = run.attempt if run else 0
        rerun(installation, repository, run_id)
        if run is not None:
            self._watch.ran_again(process, run, attempt)

    WATCHED: ClassVar[Mapping[tuple[str, str], Callable[..., Any]]] = {
        ("store", "update"): _update,
        ("store", "put"): _put,
        ("store", "transact"): _transact,
        ("store", "batch_get"): _batch_get,
        ("machines", "launch"): _launch,
        ("machines", "terminate"): _terminate,
        ("kube", "evict"): _evict,
        ("github", "rerun_failed_jobs"): _rerun,
    }


class _Port:
    """A port of one process; whatever it offers goes through `Calls`."""

    __slots__ = ("_calls", "_process", "_target")

    def __init__(self, calls: Calls, process: Process, target: object) -> None:
        self._calls = calls
        self._process = process
        self._target = target


class _Method(Struct, frozen=True):
    """A method of a port: what of `Calls` watches its effect, if anything, and whether its answer can be an old one."""

    port: str
    name: str
    watched: Callable[..., Any] | None
    is_list: bool


@cache
def _port_kind(port: str, kind: type) -> type[_Port]:
    """Every method that targets of this kind offer, so that no call can be forgotten; and nothing else."""
    offered = {name: _passed_on(port, name) for name in dir(kind) if not name.startswith("_")}
    return type(f"_{port.title()}Port", (_Port,), {"__slots__": (), **offered})


def _passed_on(port: str, name: str) -> Callable[..., Any]:
    method = _Method(port, name, Calls.WATCHED.get((port, name)), (port, name) in LISTS)

    def call(self: _Port, *args: Any, **options: Any) -> Any:
        return self._calls.made(self._process, method, getattr(self._target, name), args, options)

    return call
