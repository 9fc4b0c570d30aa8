"""Open notices as people see them, each with its deadline."""

from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.spot.notice import (
    HINT_KEPT_SECONDS,
    SPOT_DRAIN_SECONDS,
    Replacement,
    SpotKind,
    SpotNotice,
    SpotPhase,
)
from holdfast.kernel.instants import Instant


def deadline_of(notice: SpotNotice, policy: Policy) -> Instant | None:
    """When its phase times out; None if it does not."""
    is_interruption = notice.kind is SpotKind.INTERRUPTION
    match notice.phase:
        case SpotPhase.NOTICED | SpotPhase.CORDONED if is_interruption:
            return notice.noticed.plus(SPOT_DRAIN_SECONDS)
        case SpotPhase.EXPIRED if is_interruption:
            return notice.noticed.plus(policy.stuck_seconds)
        case SpotPhase.CORDONED:
            return notice.cordoned.plus(policy.stuck_seconds)
        case SpotPhase.NOTICED if _expires(notice, policy):
            return notice.noticed.plus(HINT_KEPT_SECONDS)
    return None


def _expires(notice: SpotNotice, policy: Policy) -> bool:
    is_idle_hint = notice.kind is SpotKind.REBALANCE and notice.replacement is Replacement.OPEN
    return is_idle_hint and policy.rebalance is not Rebalance.REPLACE
