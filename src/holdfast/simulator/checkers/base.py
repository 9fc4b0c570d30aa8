"""The base class of the checkers: the events they can listen to, and how they report a violation."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod
from holdfast.ports.machines import LaunchOrder, Machine
from holdfast.ports.store import Item
from holdfast.simulator.proof.facts import Facts
from holdfast.simulator.proof.faults import FaultKind
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.world.github_objects import SimJob, SimRun, Webhook

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant: which one, when, by which process, and what was found."""

    invariant: str
    at: Instant
    by: str
    found: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.found} (by {self.by}, {self.at.iso()})"


class Lasting:
    """Since when each of several things has been so without a break, looked at once a minute."""

    def __init__(self) -> None:
        self._since: dict[Any, Instant] = {}

    def since(self, found: Iterable[K], now: Instant) -> Mapping[K, Instant]:
        self._since = {key: self._since.get(key, now) for key in found}
        return self._since


class Checker:
    """One invariant. A subclass overrides the events it needs; `facts` already includes the event."""

    off_with: ClassVar[frozenset[FaultKind]] = frozenset()  # it does not judge seeds that draw one of these
    name: ClassVar[str]
    says: ClassVar[str]

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        self.facts = facts
        self.numbers = facts.numbers
        self._report = report

    def fail(self, by: Process | None, found: str) -> None:
        self._report(Violation(self.name, self.facts.now(), by.name if by else "the world", found))

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        """The cluster's item changed."""

    def notice_written(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        """A spot notice changed."""

    def launched(self, by: Process, order: LaunchOrder, machine: Machine, *, is_new: bool) -> None:
        """EC2 returned a machine for a launch."""

    def launch_refused(self, by: Process, order: LaunchOrder, code: str) -> None:
        """EC2 refused a launch."""

    def terminated(self, by: Process, machine: InstanceId) -> None:
        """A process terminated a machine that was alive."""

    def stranger_touched(self, by: Process, machine: InstanceId, what: str) -> None:
        """A process acted on a machine of another cluster."""

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        """A node changed; `by` is None when the world changed it, not a process."""

    def evicted(self, by: Process, pod: Pod) -> None:
        """The eviction of a pod was accepted."""

    def slept(self, by: Process) -> None:
        """A process sleeps on purpose."""

    def ended(self, by: Process, error: BaseException | None) -> None:
        """A process ended, normally or with this error."""

    def job_written(self, by: Process, old: Item, new: Item) -> None:
        """A stored job of GitHub's changed."""

    def run_written(self, by: Process, old: Item, new: Item) -> None:
        """A stored run of GitHub's changed."""

    def deployment_written(self, by: Process, old: Item, new: Item) -> None:
        """A stored deployment changed."""

    def event_written(self, by: Process, old: Item, new: Item) -> None:
        """An entry of a job's history was written, replacing `old` if there was one."""

    def cursor_moved(self, by: Process, old: Item, new: Item) -> None:
        """The cursor in GitHub's delivery log changed."""

    def acknowledged(self, by: Process, webhook: Webhook) -> None:
        """A webhook was answered with a 2xx status."""

    def rerun_requested(self, by: Process, run: SimRun, attempt: int) -> None:
        """GitHub accepted a request to re-run this attempt."""

    def scheduled(self, by: Process, job: SimJob, market: str) -> None:
        """A runner of this market was scheduled for a job."""

    def minute_passed(self) -> None:
        """Another minute has passed since the world healed."""

    def healed(self) -> None:
        """The time to converge after the world healed is over."""
