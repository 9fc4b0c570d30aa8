"""A plan: what follows from one look; and what became of it."""

from typing import Any

from msgspec import Struct

from holdfast.cluster.rules import Rule
from holdfast.cluster.seen import Seen
from holdfast.cluster.state import Timers
from holdfast.cluster.steps import Step, UrgentStep
from holdfast.ports.notify import Notice


class Plan(Struct, frozen=True):
    """What follows from one look."""

    rules: tuple[Rule, ...]
    steps: tuple[Step, ...]
    timers: Timers

    @property
    def leased_steps(self) -> list[Step]:
        """The steps that only a holder of the lease may carry out."""
        return [step for step in self.steps if not isinstance(step, UrgentStep)]

    def is_quiet(self, seen: Seen) -> bool:
        """Nothing to do under the lease, and nothing to write down."""
        return not self.leased_steps and self.timers == seen.state.timers

    def shown(self) -> dict[str, Any]:
        return {"rules": [r.shown() for r in self.rules], "steps": [s.shown() for s in self.steps]}


class Ticked(Struct, frozen=True):
    """What one tick saw, decided and did. `stopped` says why it did not go on, if it did not.

    `looked` is what the plan follows from; `seen` is the same with what the tick did since.
    """

    looked: Seen
    seen: Seen
    plan: Plan
    done: tuple[Step, ...] = ()
    stopped: str | None = None
    told: tuple[str, ...] = ()  # what became of the steps: machines launched or refused, pods that stay, and why
    alarms: tuple[Notice, ...] = ()  # what a person is to be told at once
    has_failed: bool = False  # an error stopped it; not that another process acts
