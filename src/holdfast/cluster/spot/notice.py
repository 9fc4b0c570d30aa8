"""A spot notice: one item per machine, `spot#<instance-id>`, and the list of those that are open.

A notice is stored when EC2 announces that it will or may reclaim a machine, and when a node stays NotReady. `spot.py`
has the workflow; this file stores, reads and repeats notices.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from holdfast.cluster.memory import spots_key
from holdfast.cluster.state import NEVER
from holdfast.control.stored_attributes import StateDamaged
from holdfast.fleet.slots import Slot, read_slot
from holdfast.kernel.errors import StoreUnavailable, WriteConflict
from holdfast.kernel.ids import ActionId, ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import CheckItem, Condition, Item, Key, Store, Update, UpdateItem, attr, remove_all, set_all
from holdfast.ports.store.tables import STATE
from holdfast.ports.store.values import shown

SPOT_DRAIN_SECONDS: Final = 110
HINT_KEPT_SECONDS: Final = 3600
ACTION_PREFIX: Final = "spot:"
_MARK: Final = "@"


class SpotKind(StrEnum):
    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"
    NOT_READY = "not-ready"


class SpotPhase(StrEnum):
    NOTICED = "NOTICED"
    CORDONED = "CORDONED"
    DRAINED = "DRAINED"
    EXPIRED = "EXPIRED"
    OPENING = "OPENING"
    CLOSED = "CLOSED"


class Replacement(StrEnum):
    OPEN = "OPEN"
    PLANNED = "PLANNED"
    LAUNCHED = "LAUNCHED"
    GIVING_UP = "GIVING_UP"  # final: its machine will be terminated, and no process accepts it any more
    ACCEPTED = "ACCEPTED"
    GIVEN_UP = "GIVEN_UP"

    @property
    def is_settled(self) -> bool:
        return self in (Replacement.ACCEPTED, Replacement.GIVEN_UP)


class SpotNotice(Struct, frozen=True):
    """What EC2 announced about one machine, and how far it has been handled."""

    instance: InstanceId
    kind: SpotKind
    phase: SpotPhase
    noticed: Instant
    replacement: Replacement = Replacement.OPEN
    slot: Slot | None = None
    planned: Instant = NEVER
    launched: Instant = NEVER
    template: str = ""  # the replacement's launch template, fixed when it was planned
    first_attempt: int = 0  # more than 0 if an earlier notice of the same machine used launch tokens
    cordoned: Instant = NEVER

    @property
    def action(self) -> ActionId:
        """The action tag of the replacement's machine."""
        return ActionId(f"{ACTION_PREFIX}{self.instance}")

    @property
    def mark(self) -> str:
        """The annotation on a node cordoned for this notice. Each notice of a machine has its own mark."""
        return f"{self.instance}{_MARK}{self.noticed.epoch_seconds}"

    @property
    def moved(self) -> Instant:
        """When it last advanced, as far as that is stored."""
        return max(self.noticed, self.planned, self.launched, self.cordoned)

    @property
    def is_leaving(self) -> bool:
        """Whether the machine no longer counts as a worker."""
        if self.phase in (SpotPhase.OPENING, SpotPhase.CLOSED):
            return False
        return self.kind is not SpotKind.REBALANCE or self.phase is not SpotPhase.NOTICED

    @property
    def is_cancellable(self) -> bool:
        """Whether the machine leaves only because of a hint: if it cannot be drained, it is uncordoned and stays."""
        return self.kind is SpotKind.REBALANCE and self.is_leaving


def mark_time(mark: str) -> Instant:
    """When the notice named by a node's mark was stored; NEVER if the mark has no time."""
    text = mark.rpartition(_MARK)[2]
    return Instant.from_epoch_seconds(int(text)) if text.isascii() and text.isdigit() and len(text) <= 11 else NEVER


def read_notice(item: Item) -> SpotNotice:
    """The item ``spot#<instance-id>``, or StateDamaged."""
    try:
        return SpotNotice(
            instance=InstanceId(str(item["pk"]).removeprefix("spot#")),
            kind=SpotKind(item["kind"]),
            phase=SpotPhase(item["phase"]),
            noticed=Instant.from_epoch_seconds(int(item["noticeEpoch"])),
            replacement=Replacement(item.get("replacement", Replacement.OPEN)),
            slot=read_slot(item["plan"], "spot plan: ") if "plan" in item else None,
            planned=Instant.from_epoch_seconds(int(item.get("plannedEpoch", 0))),
            launched=Instant.from_epoch_seconds(int(item.get("launchedEpoch") or item.get("plannedEpoch", 0))),
            template=str(item.get("templateRef", "")),
            first_attempt=int(item.get("firstAttempt", 0)),
            cordoned=Instant.from_epoch_seconds(int(item.get("cordonedEpoch", 0))),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise StateDamaged(f"spot notice {shown(item)}: {error}; remove the item") from error


def read_notices(
    store: Store, noticed: Iterable[InstanceId], *, consistent: bool = True
) -> dict[InstanceId, SpotNotice]:
    """The notices of the machines in the list of open ones."""
    instances = sorted(noticed)
    items = store.batch_get(STATE, [notice_key(instance) for instance in instances], consistent=consistent)
    # A notice that does not exist yet is being stored by another process.
    return {instance: read_notice(item) for instance, item in zip(instances, items, strict=True) if item}


CLOSED_KEPT_SECONDS: Final = 86_400
# A repeated event within this time is the same notice. NOT_READY: a node that could not be replaced is retried later.
AGAIN_SECONDS: Final = {SpotKind.INTERRUPTION: 300, SpotKind.REBALANCE: 300, SpotKind.NOT_READY: 3600}
NOTE_TRIES_MOST: Final = 5


def notice_key(instance: InstanceId) -> Key:
    return Key(f"spot#{instance}")


def store_notice(store: Store, cluster: ClusterId, instance: InstanceId, kind: SpotKind, now: Instant) -> bool:
    """Store a notice; False if it is already stored. An interruption replaces a hint or a NotReady notice.

    A notice that is not closed is always in the list of open ones: one transaction writes both, and an id leaves the
    list only in a transaction that checks that its notice is closed.
    """
    values: dict[str, Any] = {"kind": str(kind), "phase": str(SpotPhase.NOTICED), "noticeEpoch": now.epoch_seconds}
    update = set_all(values)
    same: Condition = attr("pk").is_absent()
    listed = UpdateItem(STATE, spots_key(cluster), attr("open").add_elements([instance]))
    for _ in range(NOTE_TRIES_MOST):
        try:
            store.transact([listed, UpdateItem(STATE, notice_key(instance), update, same)])
        except WriteConflict as conflict:
            found = conflict.item
            if found is None or _is_covered(found, kind, now):
                _drop_closed(store, cluster, instance, found)
                return False
            update, same = _repeated(found, values), _is_unchanged(found)
        else:
            return True
    # The sender delivers the event again, and no concurrent notice is lost.
    raise StoreUnavailable(
        f"spot notice of {instance}: other processes changed it at the same time; the event is delivered again"
    )


def _is_covered(found: Item, kind: SpotKind, now: Instant) -> bool:
    """Whether the stored notice covers the new one. A closed one covers only repetitions of the same event.

    An interruption that was closed because the machine stays covers nothing, even if recent: a wrong clock may have
    closed it.
    """
    is_interruption = kind is SpotKind.INTERRUPTION
    phase = found.get("phase")
    if phase != SpotPhase.CLOSED:
        is_milder = found.get("kind") != SpotKind.INTERRUPTION and phase in (SpotPhase.NOTICED, SpotPhase.CORDONED)
        return not (is_interruption and (is_milder or phase == SpotPhase.OPENING))
    is_as_grave = found.get("kind") in (kind, SpotKind.INTERRUPTION)
    is_over = is_as_grave and not (is_interruption and found.get("stays", False))
    return is_over and now.epoch_seconds < found.get("noticeEpoch", 0) + AGAIN_SECONDS[kind]


def _repeated(found: Item, values: Mapping[str, Any]) -> Update:
    """The machine's next notice. Never in the same second as the last one: their marks would be the same."""
    earlier = read_notice(found)
    new = {**values, "noticeEpoch": max(values["noticeEpoch"], earlier.noticed.epoch_seconds + 1)}
    update = remove_all("expiresAt", "cordonedEpoch", "lastError", "stays")
    # An open notice keeps its replacement; a closed one only if the replacement came into service.
    if earlier.phase is SpotPhase.CLOSED and earlier.replacement is not Replacement.ACCEPTED:
        # Tokens are never reused: the next replacement's attempts start after those of the last one.
        new["firstAttempt"] = earlier.slot.attempt + 1 if earlier.slot else earlier.first_attempt
        update += remove_all("replacement", "plan", "plannedEpoch", "launchedEpoch", "templateRef")
    return set_all(new) + update


def _is_unchanged(found: Item) -> Condition:
    """No process has advanced or replaced the notice since it was read."""
    notice = read_notice(found)
    same = attr("phase").equals(str(notice.phase)) & attr("kind").equals(str(notice.kind))
    return same & is_same_notice(notice)


def _drop_closed(store: Store, cluster: ClusterId, instance: InstanceId, found: Item | None) -> None:
    """Remove a closed notice from the list of open ones, if the process that closed it crashed before that."""
    if found is not None and found.get("phase") == SpotPhase.CLOSED:
        dropped = UpdateItem(STATE, spots_key(cluster), attr("open").drop_elements([instance]))
        with suppress(WriteConflict):  # another process is storing the next notice
            store.transact([CheckItem(STATE, notice_key(instance), _is_unchanged(found)), dropped])


def is_same_notice(notice: SpotNotice) -> Condition:
    """The stored notice is this one, not a later one of the same machine."""
    return attr("noticeEpoch").equals(notice.noticed.epoch_seconds)
