"""Every port call of every process: the points where other processes run, a process is killed, or an answer is lost.

After a kill no call of that process takes effect, not even from its `finally` blocks.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from msgspec import Struct

from holdfast.kernel.instants import Instant
from holdfast.ports.machines import MachineError
from holdfast.ports.readings import Unknown
from holdfast.ports.store import Store, TransactionalStore, UpdateItem
from holdfast.ports.store.tables import JOB_EVENTS, STATE
from holdfast.simulator.proof.effects import EffectRecorder
from holdfast.simulator.proof.facts import OLD_LIST_SECONDS
from holdfast.simulator.proof.faults import Fault, FaultKind, Faults, error_of
from holdfast.simulator.proof.overwritten_items import OverwrittenItems
from holdfast.simulator.proof.processes import Killed, Process, Scheduler
from holdfast.simulator.world.github import SimulatedGitHub
from holdfast.simulator.world.world import World

T = TypeVar("T")
Target = Callable[..., Any]
_NO_EFFECT = (FaultKind.REFUSED, FaultKind.CONFLICT)


class PortMethod(Struct, frozen=True):
    """A method of a port. `effect` makes a call and records it; the answer of a list may be stale."""

    port: str
    name: str
    effect: Callable[..., Any] | None
    is_list: bool


class Calls:
    """The calls of all processes of one run."""

    def __init__(
        self, world: World, store: Store, scheduler: Scheduler, faults: Faults, recorder: EffectRecorder, cluster: str
    ):
        self.world = world
        self.store = store
        self.is_transacting = isinstance(store, TransactionalStore)
        self.scheduler = scheduler
        self._faults = faults
        self._recorder = recorder
        self._cluster = cluster
        self._now = world.timeline.now
        self._seen: dict[tuple[str, str], tuple[Instant, Any]] = {}
        self.github: SimulatedGitHub | None = None
        self._overwritten = OverwrittenItems()
        self.away: set[str] = set()  # ports whose services do not answer
        self.count = 0
        self.record: list[tuple[str, int, str, str]] | None = None

    def made(
        self,
        process: Process,
        method: PortMethod,
        target: Callable[..., T],
        args: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> T:
        if process.is_dead:
            raise Killed
        number = process.calls
        process.calls += 1
        self.count += 1
        if self.record is not None:
            self.record.append((process.name, number, method.port, method.name))
        fault = self._faults.at_call(process.name, process.number, number, method.port, method.name)
        # A few milliseconds that vary, so which of two processes goes first changes from call to call.
        latency = 0.004 + (process.number * 7 + number * 13) % 37 * 0.001
        answer: T
        if fault is None:
            self.scheduler.wait(process, latency)
            if method.port in self.away:
                process.faults += 1
                return cast(T, self._refusal(FaultKind.REFUSED, method.port))
            answer = self._carried_out(process, method, target, args, options)
        else:
            process.faults += 1
            answer = self._disturbed(process, fault, latency, method, target, args, options)
        return answer

    def _disturbed(
        self,
        process: Process,
        fault: Fault,
        latency: float,
        method: PortMethod,
        target: Target,
        args: Any,
        options: Any,
    ) -> Any:
        port, name = method.port, f"{process.calls - 1}: {method.port}.{method.name}"
        what = f"{fault.kind} {fault.seconds:.1f} s" if fault.seconds else str(fault.kind)
        self._recorder.fault_happened(process, name, what)
        self.scheduler.wait(process, latency if fault.is_after else latency + fault.seconds)
        if fault.kind is FaultKind.KILL_BEFORE:
            process.is_dead = True
            raise Killed
        if fault.kind in _NO_EFFECT or port in self.away:
            return self._refusal(fault.kind if fault.kind in _NO_EFFECT else FaultKind.REFUSED, port)
        if fault.kind is FaultKind.STALE:
            return self._earlier_answer(process, method, target, args, options)
        answer = self._carried_out(process, method, target, args, options)
        if fault.kind is FaultKind.STALE_READ:
            return self._overwritten.as_read_before(args, answer, self._now())
        if fault.is_after:
            self.scheduler.wait(process, fault.seconds)
        if fault.kind is FaultKind.KILL_AFTER:
            process.is_dead = True
            raise Killed
        return self._refusal(fault.kind, port) if fault.kind is FaultKind.LOST else answer

    def _refusal(self, kind: FaultKind, port: str) -> Any:
        if port == "signals":
            return Unknown(f"simulated: {kind}")  # this port never raises
        raise error_of(kind, port, self._now())

    def _earlier_answer(self, process: Process, method: PortMethod, target: Target, args: Any, options: Any) -> Any:
        """An earlier answer to the same call, by any process; the current one if there is no recent one."""
        earlier = self._seen.get((method.port, method.name))
        if earlier is None or self._now().seconds_since(earlier[0]) > OLD_LIST_SECONDS:
            return self._carried_out(process, method, target, args, options)
        process.saw_old_list = True
        return list(earlier[1])

    def _carried_out(self, process: Process, method: PortMethod, target: Target, args: Any, options: Any) -> Any:
        recorder, effect = self._recorder, method.effect
        recorder.acting = process
        try:
            answer = effect(self, process, target, *args, **options) if effect else target(*args, **options)
        finally:
            recorder.acting = None
        if method.is_list:
            self._seen[method.port, method.name] = (self._now(), answer)
        return answer

    # Calls whose effect is recorded

    def update(self, process: Process, update: Target, table: Any, key: Any, *args: Any, **options: Any) -> Any:
        written = update(table, key, *args, **options)
        self._updated(process, table, key, written.old, written.new)
        return written

    def _updated(self, process: Process, table: Any, key: Any, old: Any, new: Any) -> None:
        self._overwritten.add(table, key, old, self._now())
        if table.name == STATE.name:
            self._recorder.state_written(process, key.partition, self._cluster, old, new)
        else:
            self._recorder.item_written(process, table.name, old, new)

    def put(self, process: Process, put: Target, table: Any, item: Any, *args: Any, **options: Any) -> None:
        is_event = table.name == JOB_EVENTS.name
        old = self.store.get(table, table.key_of(item)) if is_event else None
        put(table, item, *args, **options)
        if is_event:
            self._recorder.item_written(process, table.name, old, item)

    def transact(self, process: Process, transact: Target, writes: Any) -> None:
        changed = [write for write in writes if isinstance(write, UpdateItem)]
        before = [self.store.get(write.table, write.key) for write in changed]
        transact(writes)
        for write, old in zip(changed, before, strict=True):
            new = self.store.get(write.table, write.key)
            if new is not None:
                self._updated(process, write.table, write.key, old, new)

    def batch_get(self, process: Process, batch_get: Target, table: Any, keys: Any, **options: Any) -> Any:
        if keys and keys[0].partition == self._cluster:
            process.looked = self._now()
            process.saw_old_list = False
        return batch_get(table, keys, **options)

    def launch(self, process: Process, launch: Target, order: Any) -> Any:
        try:
            machine = launch(order)
        except MachineError as error:
            hidden = self.world.ec2.hidden_launch(order)
            if hidden is not None:
                self._recorder.launched(process, order, hidden)
            self._recorder.launch_refused(process, order, error.code)
            raise
        self._recorder.launched(process, order, machine)
        return machine

    def terminate(self, process: Process, terminate: Target, machine: Any) -> None:
        if machine in self._recorder.facts.strangers:
            self._recorder.stranger_touched(process, machine, "terminated")
        found = self._recorder.facts.machines.get(machine)
        was_alive = found is not None and found.gone is None
        terminate(machine)
        if was_alive:
            self._recorder.terminated(process, machine)

    def mark_accepted(self, process: Process, mark: Target, machine: Any, action: Any) -> None:
        mark(machine, action)
        self._recorder.marked(process, machine)

    def evict(self, process: Process, evict: Target, pod: Any) -> Any:
        answer = evict(pod)
        self._recorder.evicted(process, pod, str(answer.outcome))
        return answer

    def rerun_failed_jobs(
        self, process: Process, rerun: Target, installation: Any, repository: Any, run_id: Any
    ) -> None:
        run = self._recorder.facts.jobs.github.runs.get(run_id) if self._recorder.facts.jobs else None
        attempt = run.attempt if run else 0
        rerun(installation, repository, run_id)
        if run is not None:
            self._recorder.rerun_requested(process, run, attempt)
