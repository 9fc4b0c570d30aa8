"""The notices that are under way: read from the store, and shown with the moment up to which each may last."""

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.spot import (
    HINT_KEPT_SECONDS,
    SPOT_DRAIN_SECONDS,
    Notice,
    Replacement,
    SpotKind,
    SpotPhase,
    read_notice,
)
from holdfast.cluster.spot_act import notice_key
from holdfast.cluster.state import Slot
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Store
from holdfast.ports.store.tables import STATE


def read_notices(store: Store, noticed: Iterable[InstanceId], *, consistent: bool = True) -> dict[InstanceId, Notice]:
    """Those of the machines in the list of open ones."""
    instances = sorted(noticed)
    items = store.batch_get(STATE, [notice_key(instance) for instance in instances], consistent=consistent)
    # An id whose notice is not there yet is being noted just now, by another process.
    return {instance: read_notice(item) for instance, item in zip(instances, items, strict=True) if item}


def deadline_of(notice: Notice, policy: Policy) -> Instant | None:
    """Up to when it may stay in its phase; None where it is not time that ends it."""
    is_interruption = notice.kind is SpotKind.INTERRUPTION
    match notice.phase:
        case SpotPhase.NOTICED | SpotPhase.CORDONED if is_interruption:
            return notice.noticed.plus(SPOT_DRAIN_SECONDS)
        case SpotPhase.EXPIRED if is_interruption:
            return notice.noticed.plus(policy.stuck_seconds)
        case SpotPhase.CORDONED:
            return notice.cordoned.plus(policy.stuck_seconds)
        case SpotPhase.NOTICED if _is_forgotten_in_time(notice, policy):
            return notice.noticed.plus(HINT_KEPT_SECONDS)
    return None


def _is_forgotten_in_time(notice: Notice, policy: Policy) -> bool:
    is_idle_hint = notice.kind is SpotKind.REBALANCE and notice.replacement is Replacement.OPEN
    return is_idle_hint and policy.rebalance is not Rebalance.REPLACE


def notice_shown(notice: Notice, policy: Policy) -> dict[str, Any]:
    deadline = deadline_of(notice, policy)
    is_joining = notice.replacement is Replacement.LAUNCHED
    return {
        "instance": notice.instance,
        "kind": str(notice.kind),
        "phase": str(notice.phase),
        "since": notice.noticed.iso(),
        "deadline": None if deadline is None else deadline.iso(),
        "replacement": {
            "state": str(notice.replacement),
            "slot": None if notice.slot is None else _slot_shown(notice.slot),
            "deadline": notice.launched.plus(policy.join_timeout_seconds).iso() if is_joining else None,
        },
    }


def _slot_shown(slot: Slot) -> dict[str, Any]:
    return {
        "instance": slot.instance,
        "type": slot.instance_type,
        "market": str(slot.market),
        "zone": slot.zone,
        "subnet": slot.subnet_id,
        "attempt": slot.attempt,
    }


def replacement_words(shown: Mapping[str, Any]) -> str:
    """A notice's replacement, for people: what was asked for, and how far that is."""
    replacement = shown["replacement"]
    slot = replacement["slot"]
    if slot is None:
        return "none so far" if replacement["state"] == Replacement.OPEN else str(replacement["state"])
    what = f"{slot['type']} {slot['market']} in {slot['zone']}"
    return " ".join(filter(None, (replacement["state"], slot["instance"], what)))
