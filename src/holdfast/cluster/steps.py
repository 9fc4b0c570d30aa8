"""Steps: what is to be done, as data, each with its reason.

`decide` returns them; acting, dry run, log, console and `explain` all show the same ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar

from holdfast.cluster.state import Slot, UpPhase
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant


def step_words(shown: Mapping[str, Any]) -> str:
    """A step as it is shown, in one line: what, of which machine, and why."""
    about = f" {shown['instance']}" if shown.get("instance") else ""
    return f"{shown['kind']}{about}: {shown['because']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    because: str
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """``LaunchSlot`` → ``launch_slot``."""
        letters = (f"_{letter.lower()}" if letter.isupper() else letter for letter in cls.__name__)
        cls.kind = "".join(letters).lstrip("_")

    def shown(self) -> dict[str, Any]:
        """For people and programs: the kind, the reason, and what it is about."""
        about = {f.name: _shown(getattr(self, f.name)) for f in fields(self) if f.name != "because"}
        return {"kind": self.kind, "because": self.because, **about}

    def __str__(self) -> str:
        return step_words(self.shown())


@dataclass(frozen=True, slots=True, kw_only=True)
class UrgentStep(Step):
    """A step that waits for no lease: spot gives two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair(Step):
    """Put right what an older autoscaler, or a clock that jumped, left in the item."""

    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginScaleUp(Step):
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSlot(Step):
    slot: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptMachine(Step):
    """Record a machine that was launched for a slot, though its answer was lost."""

    slot: int
    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptUntagged(Step):
    """Record a machine that an older autoscaler launched for its scale-up, and did not live to record."""

    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryOnPlan(Step):
    """Verify the machines of a scale-up of ours that an older autoscaler took for its own, and ended."""

    instances: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryOnCommitted(Step):
    """Terminate what a scale-down of ours had committed when an older autoscaler ended it."""

    instances: tuple[InstanceId, ...]


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
class OpenLeftClosed(Step):
    """Uncordon a node that an action of ours closed, though that action is long over."""

    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLeftMarked(Step):
    """Uncordon a node that was closed for a notice, though no notice of its machine is under way."""

    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceNotReady(Step):
    """Note that a machine is to be replaced: its node has been NotReady for too long."""

    instance: InstanceId


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
class OpenInterrupted(UrgentStep):
    """Uncordon a machine that was to leave, and stays after all."""

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
    attempt: int


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
