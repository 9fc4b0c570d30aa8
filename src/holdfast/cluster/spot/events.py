"""Handle EC2's events about our machines: store a spot notice, which the next tick acts on."""

from collections.abc import Mapping
from typing import Final, Literal

from holdfast.cluster.observe import NoLook
from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.spot.notice import HINT_KEPT_SECONDS, SpotKind, store_notice
from holdfast.cluster.tick import Cluster
from holdfast.fleet.ec2_events import Ec2Event
from holdfast.ports.machines import MachineError, Market

EventOutcome = Literal["noted", "known", "ignored", "not ours", "too old"]
# Outcomes after which a tick may have something to do.
WORTH_A_LOOK: Final = ("noted", "known")
AHEAD_SECONDS: Final = 3600  # an event further ahead of our clock is not believed


def take_event(cluster: Cluster, event: Ec2Event) -> EventOutcome:
    """Store the notice if the machine is ours, and return the outcome in a word."""
    kind = SpotKind(event.kind)
    if kind is SpotKind.REBALANCE and cluster.policy.rebalance is Rebalance.IGNORE:
        return "ignored"
    try:
        machines = cluster.reads.machines.found([event.instance])
    except MachineError as error:
        raise NoLook(f"EC2 did not describe {event.instance}: {error}; the event must be delivered again") from error
    ours = [machine for machine in machines if _is_ours(machine.tags, cluster.reads.tags)]
    if not ours or ours[0].market is not Market.SPOT or ours[0].is_gone:
        return "not ours"
    # By EC2's clock if it is known: with a wrong one of ours, a fresh event would be dropped as too old.
    now = cluster.reads.machines.server_time() or cluster.writes.clock.now()
    if now.seconds_since(event.at) >= _expiry_seconds(kind, cluster.policy):
        return "too old"
    # Use AWS's time: a late event has less time left, and with the time of a slow clock the notice would look expired
    # to every other process.
    noticed = event.at if event.at.seconds_since(now) <= AHEAD_SECONDS else now
    is_new = store_notice(cluster.writes.store, cluster.reads.cluster, event.instance, kind, noticed)
    return "noted" if is_new else "known"


def _expiry_seconds(kind: SpotKind, policy: Policy) -> float:
    """When a notice expires. An older event (an unread queue, a replay) would only launch a needless replacement."""
    return policy.stuck_seconds if kind is SpotKind.INTERRUPTION else HINT_KEPT_SECONDS


def _is_ours(tags: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(tags.get(name) == value for name, value in wanted.items())
