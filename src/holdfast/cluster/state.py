"""The cluster's one item, as typed values. Names and types in the store are the seeds'; see `Attributes`.

Reading is strict: an item that no version of Holdfast and no seed could have written stops everything, because any
guess might terminate a machine. Absent attributes mean 0 or empty, so items of an older autoscaler are read as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Market
from holdfast.ports.store import Item
from holdfast.ports.store.values import shown

T = TypeVar("T")

NEVER: Final = Instant(0)


class StateDamaged(NeedsOperator):
    """The stored item is not one that anybody could have written. Nothing is done until a person has looked."""


class UpPhase(StrEnum):
    LAUNCHING = "LAUNCHING"
    VERIFYING = "VERIFYING"
    CLEANUP = "CLEANUP"


class DownPhase(StrEnum):
    DRAINING = "DRAINING"
    TERMINATING = "TERMINATING"
    ABORTING = "ABORTING"


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one machine: where and what to launch, which attempt it is, and what came of it."""

    subnet_id: str
    zone: str
    market: Market
    instance_type: str
    attempt: int = 0
    instance: InstanceId | None = None
    exhausted: str | None = None  # the last error, when there is nothing left to try

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
        return item


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """A scale-up under way."""

    action: ActionId
    started: Instant
    requested: int
    instances: tuple[InstanceId, ...]
    phase: UpPhase
    slots: tuple[Slot, ...]
    template: str


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """A scale-down under way. `committed` are to be terminated whatever happens; `completed` have been."""

    action: ActionId
    started: Instant
    phase: DownPhase
    targets: tuple[InstanceId, ...]
    completed: tuple[InstanceId, ...]
    committed: frozenset[InstanceId]
    drain_started: Instant | None

    @property
    def open_targets(self) -> tuple[InstanceId, ...]:
        """Those that are neither committed nor completed, in their order."""
        return tuple(t for t in self.targets if t not in self.completed and t not in self.committed)


@dataclass(frozen=True, slots=True)
class Timers:
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


@dataclass(frozen=True, slots=True)
class ClusterState:
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

    @property
    def is_acting(self) -> bool:
        return self.up is not None or self.down is not None


def read_state(item: Item | None) -> ClusterState:
    """The item as values, or StateDamaged."""
    if item is None:
        return ClusterState()
    reader = _Reader(item)
    up, down = _read_up(reader), _read_down(reader)
    if up is not None and down is not None:
        raise reader.damaged("scaleDownActionId", "both a scale-up and a scale-down are under way")
    return ClusterState(
        fence=reader.number("fence"),
        action_seq=reader.number("actionSeq"),
        lock_owner=reader.text("lockOwner"),
        lock_until=reader.instant("lockUntilEpoch"),
        is_flagged=reader.flag("scalingInProgress"),
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
    )


def _read_up(reader: "_Reader") -> ScaleUp | None:
    action = reader.text("scaleUpActionId")
    if not action:
        return None
    instances = tuple(InstanceId(text) for text in reader.texts("scaleUpInstanceIds"))
    # An item of an older autoscaler has ids and no plan: its machines are launched, and wait to be verified.
    legacy = UpPhase.LAUNCHING if "scaleUpPlan" in reader.item else UpPhase.VERIFYING
    return ScaleUp(
        action=ActionId(action),
        started=reader.instant("scaleUpStartedEpoch"),
        requested=reader.number("scaleUpRequested"),
        instances=instances,
        phase=reader.choice("scaleUpPhase", UpPhase, legacy),
        slots=tuple(read_slot(slot, "scaleUpPlan: ") for slot in reader.items("scaleUpPlan")),
        template=reader.text("templateRef"),
    )


def read_slot(stored: Mapping[str, Any], where: str) -> Slot:
    """A slot as stored, or StateDamaged."""
    slot = _Reader(dict(stored), where)
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
    )


def _read_down(reader: "_Reader") -> ScaleDown | None:
    action = reader.text("scaleDownActionId")
    if not action:
        return None
    targets = tuple(InstanceId(text) for text in reader.texts("scaleDownTargetInstanceIds"))
    completed = tuple(InstanceId(text) for text in reader.texts("scaleDownCompletedInstanceIds"))
    committed = frozenset(InstanceId(text) for text in reader.text_set("scaleDownCommitted"))
    if not committed <= set(targets) or not set(completed) <= set(targets):
        raise reader.damaged("scaleDownTargetInstanceIds", "machines are completed or committed that were no targets")
    return ScaleDown(
        action=ActionId(action),
        started=reader.instant("scaleDownStartedEpoch"),
        phase=reader.choice("scaleDownPhase", DownPhase, DownPhase.DRAINING),
        targets=targets,
        completed=completed,
        committed=committed,
        drain_started=reader.maybe_instant("scaleDownDrainStartedEpoch"),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Attributes by type; anything else is damage."""

    item: Item
    where: str = ""

    def damaged(self, name: str, problem: str) -> StateDamaged:
        found = shown(self.item.get(name))
        return StateDamaged(
            f"cluster state: {self.where}{name} is {found}: {problem}; nothing is done until the item is put right"
        )

    def _typed(self, name: str, kind: type[T], absent: T, expected: str) -> T:
        value = self.item.get(name, absent)
        if type(value) is not kind:
            raise self.damaged(name, f"expected {expected}")
        return value

    def text(self, name: str) -> str:
        return self._typed(name, str, "", "text")

    def flag(self, name: str) -> bool:
        return self._typed(name, bool, absent=False, expected="true or false")

    def number(self, name: str) -> int:
        value = self._typed(name, int, 0, "a whole number")
        if value < 0:
            raise self.damaged(name, "expected a number from 0 up")
        return value

    def instant(self, name: str) -> Instant:
        return Instant.from_epoch_seconds(self.number(name))

    def maybe_instant(self, name: str) -> Instant | None:
        """0 is the seeds' way to say: not since any time."""
        return self.instant(name) if self.number(name) else None

    def texts(self, name: str) -> list[str]:
        values = self._typed(name, list, [], "a list of texts")
        if not all(type(value) is str for value in values):
            raise self.damaged(name, "expected a list of texts")
        return values

    def text_set(self, name: str) -> frozenset[str]:
        values = self._typed(name, frozenset, frozenset(), "a set of texts")
        if not all(type(value) is str for value in values):
            raise self.damaged(name, "expected a set of texts")
        return values

    def items(self, name: str) -> list[Item]:
        values = self._typed(name, list, [], "a list of maps")
        if not all(type(value) is dict for value in values):
            raise self.damaged(name, "expected a list of maps")
        return values

    def choice(self, name: str, kind: type[T], absent: T) -> T:
        if name not in self.item:
            return absent
        try:
            return kind(self.text(name))  # type: ignore[call-arg]
        except ValueError as error:
            raise self.damaged(name, f"expected one of {', '.join(kind)}") from error  # type: ignore[arg-type]
