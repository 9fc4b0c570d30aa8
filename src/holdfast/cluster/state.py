"""The cluster's one item, as typed values. Names and types in the store are the seeds'; see `Attributes`.

Reading is strict: an item that no version of Holdfast and no seed could have written stops everything, because any
guess might terminate a machine. Absent attributes mean 0 or empty, so items of an older autoscaler are read as well.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from holdfast.cluster.action_names import action_begun
from holdfast.cluster.attributes import Reader
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Market
from holdfast.ports.store import Item

NEVER: Final = Instant(0)


class UpPhase(StrEnum):
    LAUNCHING = "LAUNCHING"
    VERIFYING = "VERIFYING"
    CLEANUP = "CLEANUP"


class DownPhase(StrEnum):
    DRAINING = "DRAINING"
    TERMINATING = "TERMINATING"
    ABORTING = "ABORTING"


class Slot(Struct, frozen=True):
    """A place for one machine: where and what to launch, which attempt it is, and what came of it."""

    subnet_id: str
    zone: str
    market: Market
    instance_type: str
    attempt: int = 0
    instance: InstanceId | None = None
    exhausted: str | None = None  # the last error, when there is nothing left to try
    doubted: Instant | None = None  # since when EC2 answers this attempt with a code that nobody knows

    @property
    def is_open(self) -> bool:
        return self.instance is None and self.exhausted is None

    def stored(self) -> Item:
        item: Item = {
            "s": self.subnet_id,
            "z": self.zone,
            "m": "od" if self.market is Market.ON_DEMAND else "spot",
            "t": self.instance_type,
            "k": self.attempt,
        }
        if self.instance is not None:
            item["i"] = self.instance
        if self.exhausted is not None:
            item["x"] = self.exhausted
        if self.doubted is not None:
            item["u"] = self.doubted.epoch_seconds
        return item


class ScaleUp(Struct, frozen=True):
    """A scale-up under way."""

    action: ActionId
    started: Instant
    requested: int
    instances: tuple[InstanceId, ...]
    phase: UpPhase
    slots: tuple[Slot, ...]  # none, if an older autoscaler began it: that stored no plan
    template: str
    phase_since: Instant | None = None
    is_littered: bool = False  # it bears the plan of an earlier action, which an older autoscaler ended


class ScaleDown(Struct, frozen=True):
    """A scale-down under way. `committed` are to be terminated whatever happens; `completed` have been."""

    action: ActionId
    started: Instant
    phase: DownPhase
    targets: tuple[InstanceId, ...]
    completed: tuple[InstanceId, ...]
    committed: frozenset[InstanceId]
    drain_started: Instant | None
    is_legacy: bool = False  # begun by an older autoscaler, which leaves no mark on the nodes that it cordons
    needs_phase: bool = False  # none is stored, or one that says more than was committed

    @property
    def open_targets(self) -> tuple[InstanceId, ...]:
        """Those that are neither committed nor completed, in their order."""
        return tuple(t for t in self.targets if t not in self.completed and t not in self.committed)


class Timers(Struct, frozen=True):
    """Since when pods wait, since when the cluster idles, and how many workers there are: stored when they change."""

    pending_since: Instant | None = None
    idle_since: Instant | None = None
    workers: int = 0

    def stored(self) -> Item:
        """0 is the seeds' way to say: not since any time."""
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
    # What an action of ours left when an older autoscaler ended it, which knows nothing of plans and commits.
    left_plan: tuple[InstanceId, ...] | None = None
    left_committed: frozenset[InstanceId] = frozenset()

    @property
    def is_acting(self) -> bool:
        return self.up is not None or self.down is not None

    @property
    def named(self) -> frozenset[InstanceId]:
        """The machines that an action, or what is left of one, still has to do with."""
        up = self.up.instances if self.up else self.left_plan or ()
        down = set(self.down.targets) - set(self.down.completed) if self.down else self.left_committed
        return frozenset(up) | down

    def has_moved_since(self, earlier: "ClusterState") -> bool:
        """Whether anybody else acted since `earlier` was read, or may have; this one is as of our own taking the lease.

        Who held it when we looked may have acted after the look, without the fence moving.
        """
        return self.fence != earlier.fence + 1 or earlier.lock_owner != ""


def read_state(item: Item | None) -> ClusterState:
    """The item as values, or StateDamaged."""
    if item is None:
        return ClusterState()
    reader = Reader(item)
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
    )


def _read_up(reader: Reader, fence: int) -> ScaleUp | None:
    action = reader.text("scaleUpActionId")
    if not action:
        return None
    is_planned = "scaleUpPlan" in reader.item
    is_littered = is_planned and action_begun(action, fence) is None
    slots = tuple(read_slot(slot, "scaleUpPlan: ") for slot in reader.items("scaleUpPlan"))
    # An older autoscaler stored ids and no plan: its machines are launched, and wait to be verified.
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


def _left_plan(reader: Reader) -> tuple[InstanceId, ...] | None:
    if "scaleUpPlan" not in reader.item:
        return None
    slots = [read_slot(slot, "scaleUpPlan: ") for slot in reader.items("scaleUpPlan")]
    return tuple(slot.instance for slot in slots if slot.instance is not None)


def read_slot(stored: Mapping[str, Any], where: str) -> Slot:
    """A slot as stored, or StateDamaged."""
    slot = Reader(dict(stored), where)
    market = slot.text("m")
    if market not in ("spot", "od"):
        raise slot.damaged("m", "expected spot or od")
    return Slot(
        subnet_id=slot.text("s"),
        zone=slot.text("z"),
        market=Market.SPOT if market == "spot" else Market.ON_DEMAND,
        instance_type=slot.text("t"),
        attempt=slot.number("k"),
        instance=InstanceId(slot.text("i")) if "i" in stored else None,
        exhausted=slot.text("x") if "x" in stored else None,
        doubted=slot.maybe_instant("u"),
    )


def _read_down(reader: Reader, fence: int) -> ScaleDown | None:
    action = reader.text("scaleDownActionId")
    if not action:
        return None
    if "scaleDownTargetInstanceIds" not in reader.item:
        raise reader.damaged("scaleDownTargetInstanceIds", "a scale-down is under way, and nothing says of what")
    targets = tuple(_ids(reader.texts("scaleDownTargetInstanceIds")))
    # An older autoscaler appends, so a repeated write of its may have put one in twice.
    completed = tuple(dict.fromkeys(_ids(reader.texts("scaleDownCompletedInstanceIds"))))
    committed = frozenset(_ids(reader.text_set("scaleDownCommitted")))
    if len(set(targets)) != len(targets):
        raise reader.damaged("scaleDownTargetInstanceIds", "a machine is in it twice")
    if not committed <= set(targets) or not set(completed) <= set(targets):
        raise reader.damaged("scaleDownTargetInstanceIds", "machines are completed or committed that were no targets")
    phase = reader.choice("scaleDownPhase", DownPhase, DownPhase.DRAINING)
    is_open = bool(set(targets) - set(completed) - committed)
    # Of ours, only a commit ends the draining. Another's TERMINATING proves nothing: it is drained from the beginning.
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
