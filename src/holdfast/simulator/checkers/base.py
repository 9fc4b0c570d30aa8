"""What a checker is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod
from holdfast.ports.machines import LaunchOrder, Machine
from holdfast.ports.store import Item
from holdfast.simulator.facts import Facts
from holdfast.simulator.github_objects import Sent, SimJob, SimRun
from holdfast.simulator.process import Process


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant did not hold: which, when, who did it, and what was found."""

    invariant: str
    at: Instant
    by: str
    found: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.found} (by {self.by}, {self.at.iso()})"


class Checker:
    """One invariant. A subclass overrides what it wants to be told; `facts` already has the event in it."""

    name: ClassVar[str]
    says: ClassVar[str]

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        self.facts = facts
        self.numbers = facts.numbers
        self._report = report

    def fail(self, by: Process | None, found: str) -> None:
        self._report(Violation(self.name, self.facts.now(), by.name if by else "the world", found))

    def wrote(self, by: Process, old: Item, new: Item) -> None:
        """The cluster's item was changed."""

    def noted(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        """A spot notice was changed."""

    def launched(self, by: Process, order: LaunchOrder, machine: Machine, *, is_new: bool) -> None:
        """EC2 answered a launch with a machine."""

    def refused(self, by: Process, order: LaunchOrder, code: str) -> None:
        """EC2 itself refused a launch."""

    def terminated(self, by: Process, machine: InstanceId) -> None:
        """A process ended a machine that was alive until then."""

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        """A node is not as it was; `by` is None when nobody but the world did it."""

    def evicted(self, by: Process, pod: Pod) -> None:
        """A pod was asked to leave, and does."""

    def slept(self, by: Process) -> None:
        """A process waits of its own will."""

    def ended(self, by: Process, error: BaseException | None) -> None:
        """A process ended: by itself, or by this error."""

    def job_written(self, by: Process, old: Item, new: Item) -> None:
        """What is stored of a job of GitHub's was changed."""

    def run_written(self, by: Process, old: Item, new: Item) -> None:
        """What is stored of a run of GitHub's was changed."""

    def deployment_written(self, by: Process, old: Item, new: Item) -> None:
        """What is stored of a deployment was changed."""

    def event_written(self, by: Process, old: Item, new: Item) -> None:
        """An entry of a job's history was written, over `old` if there was one."""

    def cursor_moved(self, by: Process, old: Item, new: Item) -> None:
        """The place in GitHub's log of deliveries was changed."""

    def acknowledged(self, by: Process, sent: Sent) -> None:
        """A webhook was answered with a yes."""

    def ran_again(self, by: Process, run: SimRun, attempt: int) -> None:
        """GitHub was asked to run this attempt again, and does."""

    def scheduled(self, by: Process, job: SimJob, market: str) -> None:
        """A machine of this market was ordered for a job."""

    def healed(self) -> None:
        """The time that the world was given to converge is over."""
