"""The cluster's steps, each with its title, urgency and time-line mark."""

from dataclasses import dataclass
from typing import Final, TypeAlias, get_args

from holdfast.cluster.state import UpPhase
from holdfast.control.steps import Direction, MachineStep, Step, UrgentStep
from holdfast.fleet.slots import Slot
from holdfast.kernel.ids import InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair(Step):
    """Repair what an older autoscaler, or a clock that jumped, left in the item."""

    title = "An inconsistent state was repaired"
    mark = "repair"

    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginScaleUp(Step):
    begins = Direction.UP

    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSlot(Step):
    is_detail = True

    slot: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptMachine(MachineStep):
    """Record a machine that was launched for a slot, but whose response was lost."""

    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptUntagged(MachineStep):
    """Record a machine that an older autoscaler launched for its scale-up, but did not record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryOnPlan(Step):
    """Verify the machines of our scale-up after an older autoscaler has ended it."""

    instances: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryOnCommitted(Step):
    """Terminate the machines that our scale-down had committed before an older autoscaler ended it."""

    instances: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterPhase(Step):
    is_detail = True

    phase: UpPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptNode(MachineStep):
    """Remove the start-up taint from a node that joined, so that pods can be scheduled on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateUnjoined(MachineStep):
    title = "A new machine did not join and was terminated"
    is_urgent = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteScaleUp(Step):
    title = "Workers were added"
    ends = Direction.UP
    result = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailScaleUp(Step):
    title = "A scale-up failed"
    is_urgent = True
    is_failure = True
    ends = Direction.UP
    result = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginScaleDown(Step):
    begins = Direction.DOWN

    targets: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonTarget(MachineStep):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictPods(MachineStep):
    is_repeated = True

    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTarget(MachineStep):
    """Commit to terminating the machine. This is final."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateTarget(MachineStep):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkGone(MachineStep):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortScaleDown(Step):
    title = "A scale-down was aborted"
    is_failure = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UncordonTarget(MachineStep):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearScaleDown(Step):
    ends = Direction.DOWN
    result = "given up"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteScaleDown(Step):
    title = "A worker was removed"
    ends = Direction.DOWN
    result = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectMachine(MachineStep):
    """Terminate a machine that no action owns and that never came into service."""

    title = "An unused machine was terminated"
    mark = "collected"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptAgain(MachineStep):
    """Remove the start-up taint from a node of a machine in service: the Node object was registered anew."""

    title = "A worker's Node was registered anew and accepted again"
    mark = "accepted-again"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkAccepted(MachineStep):
    """Tag a machine that is in service but lacks the tag: it was accepted before there was one, or it was refused."""

    is_detail = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNode(Step):
    """Remove the Node object of a machine that is gone, and the secret that would block reuse of its name."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePasswords(Step):
    """Delete the secrets that K3s keeps for machines which ended before they had a Node."""

    nodes: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLeftClosed(MachineStep):
    """Uncordon a node that an action of ours cordoned, after that action ended without undoing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLeftMarked(MachineStep):
    """Uncordon a node that was cordoned for a notice which is no longer open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceNotReady(MachineStep):
    """Store a notice that replaces the machine: its node has been NotReady for too long."""

    title = "A node that stays NotReady is being replaced"
    is_urgent = True
    mark = "not-ready"
    is_of_leaving = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonInterrupted(UrgentStep):
    title = "A worker is leaving"
    mark = "spot"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictInterrupted(UrgentStep):
    is_repeated = True

    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterSpotPhase(UrgentStep):
    is_detail = True

    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateInterrupted(UrgentStep):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenInterrupted(UrgentStep):
    """Uncordon the node of a machine that stays after all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseNotice(UrgentStep):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReplacement(MachineStep):
    """Plan a new machine for one that is leaving."""

    is_of_leaving = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchReplacement(MachineStep):
    is_detail = True
    mark = "replacement"
    is_of_leaving = True

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptReplacement(MachineStep):
    is_of_leaving = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpReplacement(MachineStep):
    title = "A leaving worker is not replaced"
    is_failure = True
    is_of_leaving = True


# Steps that only the lease holder may carry out, and those that do not wait for the lease. A step that is not listed
# here is not a `ClusterStep`; one without a handler does not type-check (`carry_out`, `notice_handler`).
LeasedStep: TypeAlias = (
    Repair
    | BeginScaleUp
    | LaunchSlot
    | AdoptMachine
    | AdoptUntagged
    | CarryOnPlan
    | CarryOnCommitted
    | EnterPhase
    | AcceptNode
    | TerminateUnjoined
    | CompleteScaleUp
    | FailScaleUp
    | BeginScaleDown
    | CordonTarget
    | EvictPods
    | CommitTarget
    | TerminateTarget
    | MarkGone
    | AbortScaleDown
    | UncordonTarget
    | ClearScaleDown
    | CompleteScaleDown
    | CollectMachine
    | AcceptAgain
    | MarkAccepted
    | RemoveNode
    | DeletePasswords
    | OpenLeftClosed
    | OpenLeftMarked
    | ReplaceNotReady
    | PlanReplacement
    | LaunchReplacement
    | AcceptReplacement
    | GiveUpReplacement
)
SpotStep: TypeAlias = (
    CordonInterrupted | EvictInterrupted | EnterSpotPhase | TerminateInterrupted | OpenInterrupted | CloseNotice
)
ClusterStep: TypeAlias = LeasedStep | SpotStep
STEP_KINDS: Final[dict[str, type[Step]]] = {step.kind: step for step in get_args(ClusterStep)}
