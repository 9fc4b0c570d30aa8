"""The names by which Holdfast's work is known from outside: tags, labels, annotations, attributes.

Written down once more on purpose: what checks the program does not take its word for them.
"""

from collections.abc import Mapping
from typing import Any, Final

TAINT: Final = "holdfast.dev/unverified"
FENCE: Final = "holdfast.dev/fence"
ACTION: Final = "holdfast.dev/action"
SPOT: Final = "holdfast.dev/spot"
INSTANCE: Final = "holdfast.dev/instance-id"
ACCEPTED: Final = "holdfast.dev/accepted"
SEQUENCE: Final = "holdfast.dev/seq"
SLOT: Final = "holdfast.dev/slot"
ATTEMPT: Final = "holdfast.dev/attempt"
START_UP_TAINTS: Final = frozenset({"node.cloudprovider.kubernetes.io/uninitialized"})
SPOT_ACTION: Final = "spot:"
CRITICAL: Final = frozenset({"system-node-critical", "system-cluster-critical"})

SlotName = tuple[str, int, int]  # action, slot, attempt


def slot_of(tags: Mapping[str, str]) -> SlotName | None:
    """What a machine was launched for; None for one that no action launched."""
    if ACTION not in tags or SLOT not in tags or ATTEMPT not in tags:
        return None
    return tags[ACTION], int(tags[SLOT]), int(tags[ATTEMPT])


def action_of(item: Mapping[str, Any]) -> str:
    return str(item.get("scaleUpActionId") or item.get("scaleDownActionId") or "")
