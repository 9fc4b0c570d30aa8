"""Between the world and its watchers: each effect is put into the facts, told to the checkers, and written down."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod
from holdfast.ports.machines import LaunchOrder, Machine
from holdfast.ports.store import Item
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, RUNS
from holdfast.simulator import marks
from holdfast.simulator.checkers import JOBS as JOB_CHECKERS
from holdfast.simulator.checkers import Checker, Violation
from holdfast.simulator.checkers.lease import changes
from holdfast.simulator.facts import Facts, bears_taint
from holdfast.simulator.gate import Killed
from holdfast.simulator.github_objects import Sent, SimJob, SimRun
from holdfast.simulator.process import Process
from holdfast.simulator.story import Story

_EVENTS = (
    *("wrote", "noted", "launched", "refused", "terminated", "node_changed", "evicted", "slept", "ended", "healed"),
    *("job_written", "run_written", "deployment_written", "event_written"),
    *("cursor_moved", "acknowledged", "ran_again", "scheduled"),
)
# What is written to these tables is told under these names.
_TRACKED = {
    JOBS.name: "job_written",
    RUNS.name: "run_written",
    DEPLOYMENTS.name: "deployment_written",
    JOB_EVENTS.name: "event_written",
}
_SAID = ("status", "conclusion", "was_interrupted", "open", "done", "failed", "retry")


@dataclass
class Marks:
    """What a plot shows beside the curves."""

    actions: list[tuple[str, Instant, Instant | None]] = field(default_factory=list)  # kind, begun, ended
    notices: list[tuple[str, Instant]] = field(default_factory=list)
    troubles: list[tuple[str, Instant, float]] = field(default_factory=list)  # what, since when, seconds

    def wrote(self, now: Instant, old: Item, new: Item) -> None:
        before, after = marks.action_of(old), marks.action_of(new)
        if before == after:
            return
        if self.actions and self.actions[-1][2] is None:
            self.actions[-1] = (*self.actions[-1][:2], now)
        if after:
            self.actions.append(("scale-up" if new.get("scaleUpActionId") else "scale-down", now, None))


class Watch:
    """Told of every effect. `acting` is the process whose call takes effect now."""

    def __init__(self, facts: Facts, story: Story, kinds: Sequence[type[Checker]]) -> None:
        self.facts = facts
        self.story = story
        self.violations: list[tuple[Violation, int]] = []  # and how long the story was then
        self.acting: Process | None = None
        self.marks = Marks()
        there = [kind for kind in kinds if facts.jobs is not None or kind not in JOB_CHECKERS]
        self.checkers = [kind(facts, self._violated) for kind in there]
        self._told: dict[str, list[Callable[..., None]]] = {
            event: [
                getattr(checker, event)
                for checker in self.checkers
                if getattr(type(checker), event) is not getattr(Checker, event)
            ]
            for event in _EVENTS
        }

    # Effects of processes

    def wrote(self, by: Process, key: str, cluster: str, old: Item | None, new: Item) -> None:
        before = old or {}
        if key == cluster:
            self.facts.wrote(by.number, before, new)
            self.marks.wrote(self.facts.now(), before, new)
            self._say(by.name, changes(before, new))
            self._tell("wrote", by, before, new)
        elif key == f"{cluster}#pause":
            self.facts.switched(new)
            self._say(by.name, f"{key}: {changes(before, new)}")
        elif key.startswith("spot#"):
            instance = InstanceId(key.removeprefix("spot#"))
            self.facts.noted(instance, new)
            if not before:
                self.marks.notices.append((str(new.get("kind")), self.facts.now()))
            self._say(by.name, f"{key}: {changes(before, new)}")
            self._tell("noted", by, instance, before, new)
        elif not key.startswith("github#runs#"):  # where a sweep of runs is: it moves at every page
            self._say(by.name, f"{key}: {changes(before, new)}")
            if key.startswith("github#cursor#"):
                self._tell("cursor_moved", by, before, new)

    def launched(self, by: Process, order: LaunchOrder, machine: Machine) -> None:
        is_new = self.facts.launched(order, machine)
        word = "launched" if is_new else "launched before:"
        self._say(by.name, f"{word} {machine.id} for {marks.slot_of(order.tags)} in {order.zone}, {order.market}")
        for tell in self._told["launched"]:
            tell(by, order, machine, is_new=is_new)

    def refused(self, by: Process, order: LaunchOrder, code: str) -> None:
        slot = marks.slot_of(order.tags)
        if slot is not None:
            self.facts.refused.add(slot)
        self._say(by.name, f"launch refused for {slot} in {order.zone}, {order.market}: {code}")
        self._tell("refused", by, order, code)

    def terminated(self, by: Process, machine: InstanceId) -> None:
        self._say(by.name, f"terminated {machine}")
        self._tell("terminated", by, machine)

    def evicted(self, by: Process, pod: Pod, outcome: str) -> None:
        self._say(by.name, f"evict {pod} from {pod.node}: {outcome}")
        if outcome == "accepted":
            self._tell("evicted", by, pod)

    def slept(self, by: Process) -> None:
        self._tell("slept", by)

    def ended(self, by: Process, error: BaseException | None) -> None:
        if isinstance(error, Killed):
            self._say(by.name, "was killed")
        elif error is not None:
            self._say(by.name, f"ended: {type(error).__name__}: {error}")
        self._tell("ended", by, error)

    # Effects on what is known of GitHub's jobs

    def tracked(self, by: Process, table: str, old: Item | None, new: Item) -> None:
        event, before, jobs = _TRACKED.get(table), old or {}, self.facts.jobs
        if event is None or jobs is None:
            return
        if event == "event_written":
            jobs.event_written(new)
        else:
            if event == "run_written":
                jobs.run_written(new, self.facts.now())
            said = [name for name in _SAID if before.get(name) != new.get(name)]
            if said:
                told = changes({name: before.get(name) for name in said}, {name: new.get(name) for name in said})
                self._say(by.name, f"{table} {new['PK']}: {told}")
        self._tell(event, by, before, new)

    def acknowledged(self, by: Process, sent: Sent) -> None:
        self._tell("acknowledged", by, sent)

    def ran_again(self, by: Process, run: SimRun, attempt: int) -> None:
        self._say(by.name, f"GitHub runs {run.id} again, after attempt {attempt}")
        if self.facts.jobs is not None and (run.id, attempt) in self.facts.jobs.claimed:
            self.facts.jobs.run_again[run.id, attempt] = self.facts.now()
        self._tell("ran_again", by, run, attempt)

    def scheduled(self, by: Process, job: SimJob, market: str) -> None:
        self._tell("scheduled", by, job, market)

    # Events of the world

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        self.facts.node_changed(old, new)
        by = self.acting
        self._say(by.name if by else "world", _node_words(old, new))
        self._tell("node_changed", by, old, new)

    def gone(self, machine: Machine) -> None:
        found = self.facts.machines.get(machine.id)
        if found is not None:
            found.gone = self.facts.now()
        self._say("world", f"{machine.id} ends")

    def happened(self, what: str) -> None:
        self._say("world", what)

    def lasts(self, what: str, seconds: float) -> None:
        self.marks.troubles.append((what, self.facts.now(), seconds))
        self._say("world", f"{what} for {seconds:.0f} s")

    def befell(self, by: Process, call: str, what: str) -> None:
        self._say(by.name, f"! {what} at {call}")

    def healed(self) -> None:
        self._tell("healed")

    def _tell(self, event: str, *about: Any) -> None:
        for tell in self._told[event]:
            tell(*about)

    def _say(self, who: str, what: str) -> None:
        self.story.tell(self.facts.now(), who, what)

    def _violated(self, violation: Violation) -> None:
        self.story.tell(violation.at, violation.by, f"VIOLATION {violation.invariant}: {violation.found}")
        self.violations.append((violation, len(self.story)))


def _node_words(old: Node | None, new: Node | None) -> str:
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
