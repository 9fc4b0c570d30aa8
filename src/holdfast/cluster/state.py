"""The cluster's state item as typed values. Stored names and types are those of the seeds.

Reading is strict: an item that no version of Holdfast and no seed could have written stops all ticks, because a wrong
guess might terminate a machine. Absent attributes mean 0 or empty, so an older autoscaler's items can be read as well.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct

from holdfast.control.action_ids import action_begun
from holdfast.control.ledger import Ledger
from holdfast.control.stored_attributes import AttributeReader
from holdfast.fleet.slots import Slot, read_slot
from holdfast.kernel.ids import ActionId, ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Store

NEVER: Final = Instant(0)


class UpPhase(StrEnum):
    LAUNCHING = "LAUNCHING"
    VERIFYING = "VERIFYING"
    CLEANUP = "CLEANUP"


class DownPhase(StrEnum):
    DRAINING = "DRAINING"
    TERMINATING = "TERMINATING"
    ABORTING = "ABORTING"


class ScaleUp(Struct, frozen=True):
    """A scale-up under way."""

    action: ActionId
    started: Instant
    requested: int
    instances: tuple[InstanceId, ...]
    phase: UpPhase
    slots: tuple[Slot, ...]  # none if an older autoscaler began it, which stores no plan
    template: str
    phase_since: Instant | None = None
    is_littered: bool = False  # the stored plan belongs to an earlier action, which an older autoscaler ended


class ScaleDown(Struct, frozen=True):
    """A scale-down under way. `committed` machines will certainly be terminated; `completed` ones have been."""

    action: ActionId
    started: Instant
    phase: DownPhase
    targets: tuple[InstanceId, ...]
    completed: tuple[InstanceId, ...]
    committed: frozenset[InstanceId]
    drain_started: Instant | None
    is_legacy: bool = False  # begun by an older autoscaler, which does not annotate the nodes that it cordons
    needs_phase: bool = False  # no phase is stored, or TERMINATING without a commit

    @property
    def open_targets(self) -> tuple[InstanceId, ...]:
        """The targets that are neither committed nor completed, in order."""
        return tuple(t for t in self.targets if t not in self.completed and t not in self.committed)


class Timers(Struct, frozen=True):
    """How long pods have been pending and the cluster idle, and the number of workers. Stored when they change."""

    pending_since: Instant | None = None
    idle_since: Instant | None = None
    workers: int = 0

    def stored(self) -> Item:
        """As in the seeds, 0 means that the timer is not running."""
        return {
            "pendingSinceEpoch": self.pending_since.epoch_seconds if self.pending_since else 0,
            "idleSinceEpoch": self.idle_since.epoch_seconds if self.idle_since else 0,
            "workerCount": self.workers,
        }


class ClusterState(Struct, frozen=True):
    """The item `pk = <cluster>`: lease, action and timers."""

    fence: int = 0
    action_seq: int = 0
    lock_owner: str = ""
    lock_until: Instant = NEVER
    is_flagged: bool = False  # scalingInProgress, as stored
    last_scale: Instant = NEVER
    timers: Timers = Timers()
    up: ScaleUp | None = None
    down: ScaleDown | None = None
    up_failures: int = 0
    up_backoff_until: Instant = NEVER
    bump_after: Instant = NEVER
    # What remains of our action after an older autoscaler, which ignores plans and commits, has ended it.
    left_plan: tuple[InstanceId, ...] | None = None
    left_committed: frozenset[InstanceId] = frozenset()
    passwords_deleted: tuple[InstanceId, ...] = ()  # of ended machines that EC2 still lists

    @property
    def is_acting(self) -> bool:
        return self.up is not None or self.down is not None

    @property
    def named(self) -> frozenset[InstanceId]:
        """The machines that an action, or the remains of one, still refers to."""
        up = self.up.instances if self.up else self.left_plan or ()
        down = set(self.down.targets) - set(self.down.completed) if self.down else self.left_committed
        return frozenset(up) | down

    def has_moved_since(self, earlier: "ClusterState") -> bool:
        """Whether another process may have acted since `earlier` was read; `self` was read when we took the lease.

        A process that held the lease at that time may have acted afterwards without changing the fence.
        """
        return self.fence != earlier.fence + 1 or earlier.lock_owner != ""


def cluster_ledger(store: Store, cluster: ClusterId) -> Ledger[ClusterState]:
    """The ledger of the cluster's item."""
    return Ledger(store, Key(cluster), read_state)


def read_state(item: Item | None) -> ClusterState:
    """Read the item; StateDamaged if that is impossible."""
    if item is None:
        return ClusterState()
    reader = AttributeReader(item)
    fence = reader.number("fence")
    up, down = _read_up(reader, fence), _read_down(reader, fence)
    if up is not None and down is not None:
        raise reader.damaged("scaleDownActionId", "both a scale-up and a scale-down are under way")
    is_flagged = reader.flag("scalingInProgress")
    if (up or down) and not is_flagged:
        raise reader.damaged("scalingInProgress", "an action is under way, so it should be true")
    return ClusterState(
        fence=fence,
        action_seq=reader.number("actionSeq"),
        lock_owner=reader.text("lockOwner"),
        lock_until=reader.instant("lockUntilEpoch"),
        is_flagged=is_flagged,
        last_scale=reader.instant("lastScaleEpoch"),
        timers=Timers(
            reader.maybe_instant("pendingSinceEpoch"),
            reader.maybe_instant("idleSinceEpoch"),
            reader.number("workerCount"),
        ),
        up=up,
        down=down,
        up_failures=reader.number("upFailures"),
        up_backoff_until=reader.instant("upBackoffUntilEpoch"),
        bump_after=reader.instant("bumpAfterEpoch"),
        left_plan=_left_plan(reader) if up is None else None,
        left_committed=frozenset(_ids(reader.text_set("scaleDownCommitted"))) if down is None else frozenset(),
        passwords_deleted=tuple(_ids(reader.texts("passwordsDeleted"))),
    )


def _read_up(reader: AttributeReader, fence: int) -> ScaleUp | None:
    action = reader.text("scaleUpActionId")
    if not action:
        return None
    is_planned = "scaleUpPlan" in reader.item
    is_littered = is_planned and action_begun(action, fence) is None
    slots = tuple(read_slot(slot, "scaleUpPlan: ") for slot in reader.items("scaleUpPlan"))
    # An older autoscaler stores ids and no plan: its machines are launched but not verified yet.
    phase = reader.choice("scaleUpPhase", UpPhase, UpPhase.LAUNCHING if is_planned else UpPhase.VERIFYING)
    return ScaleUp(
        action=ActionId(action),
        started=reader.began("scaleUpStartedEpoch"),
        requested=reader.number("scaleUpRequested"),
        instances=tuple(dict.fromkeys(_ids(reader.texts("scaleUpInstanceIds")))),
        phase=UpPhase.VERIFYING if is_littered else phase,
        slots=() if is_littered else slots,
        template=reader.text("templateRef"),
        phase_since=None if is_littered else reader.maybe_instant("scaleUpPhaseEpoch"),
        is_littered=is_littered,
    )


def _left_plan(reader: AttributeReader) -> tuple[InstanceId, ...] | None:
    if "scaleUpPlan" not in reader.item:
        return None
    slots = [read_slot(slot, "scaleUpPlan: ") for slot in reader.items("scaleUpPlan")]
    return tuple(slot.instance for slot in slots if slot.instance is not None)


def _read_down(reader: AttributeReader, fence: int) -> ScaleDown | None:
    action = reader.text("scaleDownActionId")
    if not action:
        return None
    if "scaleDownTargetInstanceIds" not in reader.item:
        raise reader.damaged("scaleDownTargetInstanceIds", "a scale-down is under way, but its targets are missing")
    targets = tuple(_ids(reader.texts("scaleDownTargetInstanceIds")))
    # An older autoscaler appends to the list, so a repeated write may have added an id twice.
    completed = tuple(dict.fromkeys(_ids(reader.texts("scaleDownCompletedInstanceIds"))))
    committed = frozenset(_ids(reader.text_set("scaleDownCommitted")))
    if len(set(targets)) != len(targets):
        raise reader.damaged("scaleDownTargetInstanceIds", "a machine is listed twice")
    if not committed <= set(targets) or not set(completed) <= set(targets):
        raise reader.damaged("scaleDownTargetInstanceIds", "completed or committed machines are missing from it")
    phase = reader.choice("scaleDownPhase", DownPhase, DownPhase.DRAINING)
    is_open = bool(set(targets) - set(completed) - committed)
    # Our drains end only with a commit. An older autoscaler's TERMINATING proves nothing: the drain starts over.
    is_claimed = phase is DownPhase.TERMINATING and is_open and not committed
    return ScaleDown(
        action=ActionId(action),
        started=reader.began("scaleDownStartedEpoch"),
        phase=DownPhase.DRAINING if is_claimed else phase,
        targets=targets,
        completed=completed,
        committed=committed,
        drain_started=reader.maybe_instant("scaleDownDrainStartedEpoch"),
        is_legacy=action_begun(action, fence) is None,
        needs_phase=is_claimed or "scaleDownPhase" not in reader.item,
    )


def _ids(texts: Iterable[str]) -> Iterable[InstanceId]:
    return map(InstanceId, texts)
