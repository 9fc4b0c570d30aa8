"""The cluster's plan, and the result of carrying it out."""

from msgspec import Struct

from holdfast.cluster.seen import Seen
from holdfast.cluster.state import Timers
from holdfast.cluster.steps import ClusterStep, LeasedStep
from holdfast.control.plan import Plan
from holdfast.control.steps import UrgentStep
from holdfast.ports.notify import Notification


class ClusterPlan(Plan[ClusterStep], frozen=True):
    """The plan that follows from one look, with the timers to store."""

    timers: Timers

    @property
    def leased_steps(self) -> list[LeasedStep]:
        """The steps that only the lease holder may carry out."""
        return [step for step in self.steps if not isinstance(step, UrgentStep)]

    def is_quiet(self, seen: Seen) -> bool:
        """Whether there is nothing to do under the lease and no timer to store."""
        return not self.leased_steps and self.timers == seen.state.timers


class TickResult(Struct, frozen=True):
    """What one tick saw, planned and did. `stopped` is why it stopped early, if it did.

    The plan follows from `looked`; `seen` includes the effects of the tick's own steps.
    """

    looked: Seen
    seen: Seen
    plan: ClusterPlan
    done: tuple[ClusterStep, ...] = ()
    stopped: str | None = None
    reports: tuple[str, ...] = ()  # results of steps: machines launched or refused, pods that were not evicted
    notifications: tuple[Notification, ...] = ()  # for operators, at once
    has_failed: bool = False  # an error stopped it; a lease held by another process is not an error
