"""What EventBridge tells of EC2: spot interruptions and rebalance recommendations.

Events are anybody's words until checked: the shape here, and against EC2 that the machine is one of ours and is spot.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.cluster.observe import NoLook
from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.spot import HINT_KEPT_SECONDS, SpotKind
from holdfast.cluster.spot_act import note
from holdfast.cluster.tick import Cluster
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import MachineError, Market

_KINDS: Final = {
    "EC2 Spot Instance Interruption Warning": SpotKind.INTERRUPTION,
    "EC2 Instance Rebalance Recommendation": SpotKind.REBALANCE,
}
# Outcomes of an event that a tick may have something to do for.
WORTH_A_LOOK: Final = ("noted", "known")
AHEAD_SECONDS: Final = 3600  # of our clock
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SpotEvent:
    instance: InstanceId
    kind: SpotKind
    at: Instant


def spot_event(event: Mapping[str, Any]) -> SpotEvent | None:
    """The event, if it is one for us; None for other events of EC2's; BadRequest for what is no event."""
    if event.get("source") != "aws.ec2" or not isinstance(event.get("detail"), Mapping):
        raise BadRequest("not an event of EC2's: expected source aws.ec2 and a detail")
    kind = _KINDS.get(str(event.get("detail-type")))
    if kind is None:
        return None
    instance = event["detail"].get("instance-id")
    if not isinstance(instance, str) or not _INSTANCE.fullmatch(instance):
        raise BadRequest("an event of EC2's without an instance id")
    try:
        at = Instant.from_iso(str(event.get("time")))
    except ValueError as error:
        raise BadRequest(f"an event of EC2's without its time: {error}") from error
    return SpotEvent(InstanceId(instance), kind, at)


def take_event(cluster: Cluster, event: SpotEvent) -> str:
    """Store what the event tells; the tick that follows acts on it. What became of it, in a word."""
    if event.kind is SpotKind.REBALANCE and cluster.policy.rebalance is Rebalance.IGNORE:
        return "ignored"
    try:
        machines = cluster.senses.machines.found([event.instance])
    except MachineError as error:
        raise NoLook(f"EC2 does not tell whose {event.instance} is: {error}; the event is to be sent again") from error
    ours = [machine for machine in machines if _is_ours(machine.tags, cluster.senses.tags)]
    if not ours or ours[0].market is not Market.SPOT or ours[0].is_gone:
        return "not ours"
    now = cluster.hands.clock.now()
    if now.seconds_since(event.at) >= _believed_seconds(event.kind, cluster.policy):
        return "too old"
    # AWS's own time: a late event has less time left, not more, and a clock that is behind would make it seem long ago
    # to everybody else. One from further ahead than a clock of ours may be wrong is not believed.
    noticed = event.at if event.at.seconds_since(now) <= AHEAD_SECONDS else now
    is_new = note(cluster.hands.store, cluster.senses.cluster, event.instance, event.kind, noticed)
    return "noted" if is_new else "known"


def _believed_seconds(kind: SpotKind, policy: Policy) -> float:
    """After so long a notice is given up. One that old (a queue nobody read, a replay) would only buy a machine."""
    return policy.stuck_seconds if kind is SpotKind.INTERRUPTION else HINT_KEPT_SECONDS


def _is_ours(tags: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(tags.get(name) == value for name, value in wanted.items())
