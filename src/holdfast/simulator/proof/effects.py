"""Records each effect on the world: in the facts, in the story, and with every checker that listens to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import MethodType
from typing import Concatenate, Final, ParamSpec

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod
from holdfast.ports.machines import LaunchOrder, Machine
from holdfast.ports.store import Item
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, RUNS
from holdfast.simulator.checkers import JOBS as JOB_CHECKERS
from holdfast.simulator.checkers import Checker, Violation
from holdfast.simulator.checkers.lease import changes
from holdfast.simulator.proof.facts import Facts, bears_taint
from holdfast.simulator.proof.processes import Killed, Process
from holdfast.simulator.proof.story import Story
from holdfast.simulator.world import tag_names
from holdfast.simulator.world.github_objects import SimJob, SimRun, Webhook

P = ParamSpec("P")
# The attributes of jobs, runs and deployments whose changes the story shows.
_IN_STORY: Final = ("status", "conclusion", "was_interrupted", "gates", "retry")


@dataclass
class PlotEvents:
    """What a plot shows beside the curves."""

    actions: list[tuple[str, Instant, Instant | None]] = field(default_factory=list)  # kind, start, end
    notices: list[tuple[str, Instant]] = field(default_factory=list)
    outages: list[tuple[str, Instant, float]] = field(default_factory=list)  # description, start, seconds

    def cluster_written(self, now: Instant, old: Item, new: Item) -> None:
        before, after = tag_names.action_of(old), tag_names.action_of(new)
        if before == after:
            return
        if self.actions and self.actions[-1][2] is None:
            self.actions[-1] = (*self.actions[-1][:2], now)
        if after:
            self.actions.append(("scale-up" if new.get("scaleUpActionId") else "scale-down", now, None))


class _Listeners:
    """For each event, the checkers that override its method. Built once per run."""

    def __init__(self, checkers: Sequence[Checker]) -> None:
        self.cluster_written = _overriding(checkers, Checker.cluster_written, lambda each: each.cluster_written)
        self.notice_written = _overriding(checkers, Checker.notice_written, lambda each: each.notice_written)
        self.launched = _overriding(checkers, Checker.launched, lambda each: each.launched)
        self.launch_refused = _overriding(checkers, Checker.launch_refused, lambda each: each.launch_refused)
        self.terminated = _overriding(checkers, Checker.terminated, lambda each: each.terminated)
        self.stranger_touched = _overriding(checkers, Checker.stranger_touched, lambda each: each.stranger_touched)
        self.node_changed = _overriding(checkers, Checker.node_changed, lambda each: each.node_changed)
        self.evicted = _overriding(checkers, Checker.evicted, lambda each: each.evicted)
        self.slept = _overriding(checkers, Checker.slept, lambda each: each.slept)
        self.ended = _overriding(checkers, Checker.ended, lambda each: each.ended)
        self.job_written = _overriding(checkers, Checker.job_written, lambda each: each.job_written)
        self.run_written = _overriding(checkers, Checker.run_written, lambda each: each.run_written)
        self.deployment_written = _overriding(
            checkers, Checker.deployment_written, lambda each: each.deployment_written
        )
        self.event_written = _overriding(checkers, Checker.event_written, lambda each: each.event_written)
        self.cursor_moved = _overriding(checkers, Checker.cursor_moved, lambda each: each.cursor_moved)
        self.acknowledged = _overriding(checkers, Checker.acknowledged, lambda each: each.acknowledged)
        self.rerun_requested = _overriding(checkers, Checker.rerun_requested, lambda each: each.rerun_requested)
        self.scheduled = _overriding(checkers, Checker.scheduled, lambda each: each.scheduled)
        self.minute_passed = _overriding(checkers, Checker.minute_passed, lambda each: each.minute_passed)
        self.healed = _overriding(checkers, Checker.healed, lambda each: each.healed)


def _overriding(
    checkers: Sequence[Checker],
    default: Callable[Concatenate[Checker, P], None],
    method_of: Callable[[Checker], Callable[P, None]],
) -> list[Callable[P, None]]:
    methods = (method_of(checker) for checker in checkers)
    return [method for method in methods if isinstance(method, MethodType) and method.__func__ is not default]


class EffectRecorder:
    """Records every effect. `acting` is the process whose call is taking effect."""

    def __init__(self, facts: Facts, story: Story, kinds: Sequence[type[Checker]]) -> None:
        self.facts = facts
        self.story = story
        self.violations: list[tuple[Violation, int]] = []  # with the length of the story at that moment
        self.acting: Process | None = None
        self.plot_events = PlotEvents()
        usable = [kind for kind in kinds if facts.jobs is not None or kind not in JOB_CHECKERS]
        self.checkers = [kind(facts, self._violated) for kind in usable]
        self._listeners = _Listeners(self.checkers)

    # Effects of processes on the cluster

    def state_written(self, by: Process, key: str, cluster: str, old: Item | None, new: Item) -> None:
        before = old or {}
        if key == cluster:
            self.facts.cluster_written(by.number, before, new)
            self.plot_events.cluster_written(self.facts.now(), before, new)
            self._record(by.name, changes(before, new))
            for listener in self._listeners.cluster_written:
                listener(by, before, new)
        elif key == f"{cluster}#pause":
            self.facts.pause_written(new)
            self._record(by.name, f"{key}: {changes(before, new)}")
        elif key.startswith("spot#"):
            self._notice_written(by, InstanceId(key.removeprefix("spot#")), before, new)
        elif not key.startswith("github#runs#"):  # the position of a sweep of runs: it moves at every page
            self._record(by.name, f"{key}: {changes(before, new)}")
            if key.startswith("github#cursor#"):
                for listener in self._listeners.cursor_moved:
                    listener(by, before, new)

    def stranger_touched(self, by: Process, machine: InstanceId, what: str) -> None:
        self._record(by.name, f"{machine}, another cluster's, is {what}")
        for listener in self._listeners.stranger_touched:
            listener(by, machine, what)

    def _notice_written(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        if instance in self.facts.strangers:
            self.stranger_touched(by, instance, "noted as leaving")
            return
        self.facts.notice_written(instance, new)
        if not old:
            self.plot_events.notices.append((str(new.get("kind")), self.facts.now()))
        self._record(by.name, f"spot#{instance}: {changes(old, new)}")
        for listener in self._listeners.notice_written:
            listener(by, instance, old, new)

    def launched(self, by: Process, order: LaunchOrder, machine: Machine) -> None:
        is_new = self.facts.launched(order, machine, by.number)
        word = "launched" if is_new else "launched before:"
        slot = tag_names.slot_of(order.tags)
        self._record(by.name, f"{word} {machine.id} for {slot} in {order.zone}, {order.market}")
        for listener in self._listeners.launched:
            listener(by, order, machine, is_new=is_new)

    def launch_refused(self, by: Process, order: LaunchOrder, code: str) -> None:
        slot = tag_names.slot_of(order.tags)
        if slot is not None:
            self.facts.refused.add(slot)
        self.facts.refused_in[order.zone] = self.facts.now()
        self._record(by.name, f"launch refused for {slot} in {order.zone}, {order.market}: {code}")
        for listener in self._listeners.launch_refused:
            listener(by, order, code)

    def terminated(self, by: Process, machine: InstanceId) -> None:
        self._record(by.name, f"terminated {machine}")
        for listener in self._listeners.terminated:
            listener(by, machine)

    def marked(self, by: Process, machine: InstanceId) -> None:
        self.facts.marked.add(machine)
        self._record(by.name, f"marked {machine} as accepted")

    def evicted(self, by: Process, pod: Pod, outcome: str) -> None:
        self._record(by.name, f"evict {pod} from {pod.node}: {outcome}")
        if outcome == "accepted":
            for listener in self._listeners.evicted:
                listener(by, pod)

    def slept(self, by: Process) -> None:
        for listener in self._listeners.slept:
            listener(by)

    def ended(self, by: Process, error: BaseException | None) -> None:
        if isinstance(error, Killed):
            self._record(by.name, "was killed")
        elif error is not None:
            self._record(by.name, f"ended: {type(error).__name__}: {error}")
        for listener in self._listeners.ended:
            listener(by, error)

    # Effects of processes on what is stored of GitHub's jobs

    def item_written(self, by: Process, table: str, old: Item | None, new: Item) -> None:
        jobs, listeners, before = self.facts.jobs, self._listeners, old or {}
        if jobs is None:
            return
        if table == JOB_EVENTS.name:
            jobs.event_written(new)
            written = listeners.event_written
        elif table == JOBS.name:
            jobs.job_written(new, self.facts.now())
            self._record_changes(by, table, before, new)
            written = listeners.job_written
        elif table == RUNS.name:
            jobs.run_written(new, self.facts.now())
            self._record_changes(by, table, before, new)
            written = listeners.run_written
        elif table == DEPLOYMENTS.name:
            self._record_changes(by, table, before, new)
            written = listeners.deployment_written
        else:
            return
        for listener in written:
            listener(by, before, new)

    def _record_changes(self, by: Process, table: str, old: Item, new: Item) -> None:
        names = [name for name in _IN_STORY if old.get(name) != new.get(name)]
        if names:
            text = changes({name: old.get(name) for name in names}, {name: new.get(name) for name in names})
            name = new["PK"] if new.get("SK") == "v" else f"{new['PK']} {new.get('SK')}"
            self._record(by.name, f"{table} {name}: {text}")

    def acknowledged(self, by: Process, webhook: Webhook) -> None:
        for listener in self._listeners.acknowledged:
            listener(by, webhook)

    def rerun_requested(self, by: Process, run: SimRun, attempt: int) -> None:
        self._record(by.name, f"GitHub runs {run.id} again, after attempt {attempt}")
        if self.facts.jobs is not None and (run.id, attempt) in self.facts.jobs.claimed:
            self.facts.jobs.rerun[run.id, attempt] = self.facts.now()
        for listener in self._listeners.rerun_requested:
            listener(by, run, attempt)

    def scheduled(self, by: Process, job: SimJob, market: str) -> None:
        for listener in self._listeners.scheduled:
            listener(by, job, market)

    # Events of the world

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        by = self.acting
        self.facts.node_changed(old, new, is_by_world=by is None)
        self._record(by.name if by else "world", _node_change(old, new))
        for listener in self._listeners.node_changed:
            listener(by, old, new)

    def machine_gone(self, machine: Machine) -> None:
        found = self.facts.machines.get(machine.id)
        if found is not None:
            found.gone = self.facts.now()
        self._record("world", f"{machine.id} ends")

    def happened(self, what: str) -> None:
        self._record("world", what)

    def outage_began(self, what: str, seconds: float) -> None:
        self.plot_events.outages.append((what, self.facts.now(), seconds))
        self._record("world", f"{what} for {seconds:.0f} s")

    def fault_happened(self, by: Process, call: str, fault: str) -> None:
        self._record(by.name, f"! {fault} at {call}")

    def world_healed(self) -> None:
        self.facts.healed = self.facts.now()
        self._record("world", "the world heals")

    def minute_passed(self) -> None:
        if self.facts.is_held_by_a_wrong_clock():
            self.facts.healed = self.facts.now()  # the last fault lasts until that lease expires
            return
        for listener in self._listeners.minute_passed:
            listener()

    def healed(self) -> None:
        for listener in self._listeners.healed:
            listener()

    def _record(self, who: str, what: str) -> None:
        self.story.record(self.facts.now(), who, what)

    def _violated(self, violation: Violation) -> None:
        self.story.record(violation.at, violation.by, f"VIOLATION {violation.invariant}: {violation.found}")
        self.violations.append((violation, len(self.story)))


def _node_change(old: Node | None, new: Node | None) -> str:
    node = new or old
    name = node.name if node else "?"
    if new is None:
        return f"node {name} is removed"
    if old is None:
        return f"node {name} joins{', tainted' if bears_taint(new) else ''}"
    words = []
    if old.is_unschedulable != new.is_unschedulable:
        words.append("closed" if new.is_unschedulable else "open again")
    if bears_taint(old) and not bears_taint(new):
        words.append("accepted")
    if old.is_ready != new.is_ready:
        words.append("Ready" if new.is_ready else "NotReady")
    if old.annotations != new.annotations:
        short = {key.rpartition("/")[2]: value for key, value in sorted(new.annotations.items())}
        words.append(f"annotated {short}")
    return f"node {name} is {', '.join(words) or 'touched'}"
