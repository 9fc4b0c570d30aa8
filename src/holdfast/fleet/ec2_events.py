"""EventBridge's events about EC2: spot interruptions and rebalance recommendations.

Events are untrusted. Their shape is checked here; whether the machine is ours is checked by the handler.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant


class Ec2EventKind(StrEnum):
    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"


_KINDS: Final = {
    "EC2 Spot Instance Interruption Warning": Ec2EventKind.INTERRUPTION,
    "EC2 Instance Rebalance Recommendation": Ec2EventKind.REBALANCE,
}
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ec2Event:
    instance: InstanceId
    kind: Ec2EventKind
    at: Instant


def parse_ec2_event(event: Mapping[str, Any]) -> Ec2Event | None:
    """The event, if we handle its kind; None for EC2's other events; BadRequest for anything else."""
    if event.get("source") != "aws.ec2" or not isinstance(event.get("detail"), Mapping):
        raise BadRequest("not an EC2 event: expected source aws.ec2 and a detail")
    kind = _KINDS.get(str(event.get("detail-type")))
    if kind is None:
        return None
    instance = event["detail"].get("instance-id")
    if not isinstance(instance, str) or not _INSTANCE.fullmatch(instance):
        raise BadRequest("EC2 event without an instance id")
    try:
        at = Instant.from_iso(str(event.get("time")))
    except ValueError as error:
        raise BadRequest(f"EC2 event without a time: {error}") from error
    return Ec2Event(InstanceId(instance), kind, at)
