"""Steps: what is to be done, as data, each with its reason.

`decide` returns them; acting, dry run, log, console and `explain` all show the same ones.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from holdfast.cluster.state import Slot, UpPhase
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    because: str

    @property
    def kind(self) -> str:
        """``LaunchSlot`` → ``launch_slot``."""
        name = type(self).__name__
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")

    def shown(self) -> dict[str, Any]:
        """For people and programs: the kind, the reason, and what it is about."""
        about = {f.name: _shown(getattr(self, f.name)) for f in fields(self) if f.name != "because"}
        return {"kind": self.kind, "because": self.because, **about}


@dataclass(frozen=True, slots=True, kw_only=True)
class UrgentStep(Step):
    """A step that waits for no lease: spot gives two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair(Step):
    """Clear a flag or a plan that belongs to no action."""

    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginScaleUp(Step):
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSlot(Step):
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptMachine(Step):
    """Record a machine that was launched for a slot, though its answer was lost."""

    slot: int
    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterPhase(Step):
    phase: UpPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptNode(Step):
    """Take the start-up taint from a node that joined: from now on it may carry pods."""

    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateUnjoined(Step):
    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteScaleUp(Step):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class FailScaleUp(Step):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginScaleDown(Step):
    targets: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonTarget(Step):
    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictPods(Step):
    instance: InstanceId
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTarget(Step):
    """Decide, for good, that the machine is terminated."""

    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateTarget(Step):
    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkGone(Step):
    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortScaleDown(Step):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class UncordonTarget(Step):
    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearScaleDown(Step):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteScaleDown(Step):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectMachine(Step):
    """Terminate a machine that no action owns and that never came into service."""

    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNode(Step):
    """Remove the Node object of a machine that is gone, and the secret that would keep its name from being used."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonInterrupted(UrgentStep):
    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictInterrupted(UrgentStep):
    instance: InstanceId
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterSpotPhase(UrgentStep):
    instance: InstanceId
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateInterrupted(UrgentStep):
    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseNotice(UrgentStep):
    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReplacement(Step):
    """Promise a machine in the place of one that leaves."""

    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchReplacement(Step):
    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptReplacement(Step):
    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpReplacement(Step):
    instance: InstanceId


def _shown(value: Any) -> Any:
    if isinstance(value, Slot):
        return value.stored()
    if isinstance(value, tuple):
        return [_shown(part) for part in value]
    if isinstance(value, Instant):
        return value.iso()
    return str(value) if isinstance(value, StrEnum) else value
