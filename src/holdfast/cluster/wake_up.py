"""When to look again: the next moment at which the passing of time alone changes what would be decided. Pure.

Facts may change at any time; the interval between ticks (and the watch on pods and nodes) is for those. But a limit of
our own, such as PENDING_UP_SEC, is reached at a moment that is known in advance, and no process should sleep through
it. To add a rule that depends on the time, add its moment here; a test compares decisions at moments in between.

Not here: slots without a machine. Every tick asks EC2 for them again, and while there are any, ticks follow each other
within seconds.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct

from holdfast.cluster.plan import ClusterPlan
from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.rules import SOMEWHERE_TO_LAUNCH
from holdfast.cluster.scaling.protections import in_service, newest_kept_until, newest_of
from holdfast.cluster.seen import (
    ACTION_ANNOTATION,
    NODE_DEAD_SECONDS,
    SEQUENCE_TAG,
    Seen,
    Worker,
    machine_named_on,
    tag_number,
)
from holdfast.cluster.spot.notice import (
    HINT_KEPT_SECONDS,
    SPOT_DRAIN_SECONDS,
    Replacement,
    SpotKind,
    SpotNotice,
    SpotPhase,
    mark_time,
)
from holdfast.cluster.state import DownPhase, ScaleDown, ScaleUp, Timers, UpPhase
from holdfast.cluster.steps import BeginScaleUp, PlanReplacement
from holdfast.cluster.sweeping.lost_state import SUCCESSOR_SECONDS
from holdfast.cluster.sweeping.sweep import LEFT_CLOSED_SECONDS, not_ready_since
from holdfast.control.action_ids import action_begun
from holdfast.fleet.refusals import UNLISTED_SECONDS
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node
from holdfast.ports.readings import Unknown

# A moment that is closer, or has passed while the tick ran, is still this far away: no tick follows another at once.
SOONEST_SECONDS: Final = 1.0


class Why(StrEnum):
    """What will be true at that moment, if nothing else changes."""

    PENDING_LONG_ENOUGH = "pods will have been pending long enough"
    IDLE_LONG_ENOUGH = "the cluster will have been idle long enough"
    COOLDOWN_UP_OVER = "the cooldown before a scale-up will be over"
    COOLDOWN_DOWN_OVER = "the cooldown before a scale-down will be over"
    BACKOFF_OVER = "the back-off after a failed scale-up will be over"
    POOL_RETRIED = "a pool without capacity may be tried again"
    JOIN_TIMEOUT = "the join timeout will be over"
    ALL_LISTED = "EC2 will list every machine of an older autoscaler's scale-up"
    DRAIN_LIMIT = "the time limit of a drain will be over"
    STUCK_LIMIT = "the time limit of an action or a notice will be over"
    SPOT_DRAIN_OVER = "EC2 will be about to reclaim a machine"
    HINT_EXPIRED = "a rebalance recommendation will expire"
    ORPHAN = "a machine that did not come into service will count as an orphan"
    NOT_READY_LONG_ENOUGH = "a node will have been NotReady for too long"
    NODE_DEAD = "an unlisted machine with a NotReady node will count as gone"
    CORDON_FORGOTTEN = "a cordon without an action or a notice will be removed"
    TAG_RETRIED = "the tag of accepted machines, which EC2 refused, may be tried again"
    DRAIN_RETRIED = "a node that could not be drained may be tried again"
    NEWEST_MAY_LEAVE = "the newest worker will no longer be protected"
    NUMBER_BELIEVED = "a machine's action number will count although it is higher than the stored one"


class Change(Struct, frozen=True, order=True):
    """A moment at which something else may be decided, although no fact has changed."""

    at: Instant
    why: Why

    def seconds_from(self, now: Instant) -> float:
        """How long to sleep until then; not too short, however late it is."""
        return max(SOONEST_SECONDS, self.at.seconds_since(now))

    def __str__(self) -> str:
        return f"next look at {self.at.iso_seconds()}: {self.why}"


def next_change(seen: Seen, policy: Policy, plan: ClusterPlan) -> Change | None:
    """The earliest change after `seen.now`, where `plan` is what was decided then. None if there is none.

    A moment that has passed does not count, so each one leads to one look, whatever comes of it.
    """
    return min((change for change in _changes(seen, policy, plan) if change.at > seen.now), default=None)


def _changes(seen: Seen, policy: Policy, plan: ClusterPlan) -> Iterator[Change]:
    """All moments that matter to what is seen; some have passed."""
    yield from _rules(seen, policy, plan.timers)
    is_launching = any(isinstance(step, BeginScaleUp | PlanReplacement) for step in plan.steps)
    if is_launching or any(rule.name == SOMEWHERE_TO_LAUNCH.name for rule in plan.rules):
        for failure in seen.failures.values():
            yield Change(failure.until, Why.POOL_RETRIED)
    if seen.state.up is not None:
        yield from _scale_up(seen.state.up, policy)
    if seen.state.down is not None:
        yield from _scale_down(seen.state.down, policy)
    for notice in seen.notices.values():
        yield from _notice(notice, policy)
    yield from _sweep(seen, policy)


def _rules(seen: Seen, policy: Policy, timers: Timers) -> Iterator[Change]:
    if timers.pending_since is not None:
        yield Change(timers.pending_since.plus(policy.pending_up_seconds), Why.PENDING_LONG_ENOUGH)
    if timers.idle_since is not None:
        yield Change(timers.idle_since.plus(policy.idle_down_seconds), Why.IDLE_LONG_ENOUGH)
    yield Change(seen.state.last_scale.plus(policy.cooldown_up_seconds), Why.COOLDOWN_UP_OVER)
    yield Change(seen.state.last_scale.plus(policy.cooldown_down_seconds), Why.COOLDOWN_DOWN_OVER)
    yield Change(seen.state.up_backoff_until, Why.BACKOFF_OVER)


def _scale_up(up: ScaleUp, policy: Policy) -> Iterator[Change]:
    if up.phase is UpPhase.VERIFYING:
        since = up.phase_since or up.started
        yield Change(since.plus(policy.join_timeout_seconds), Why.JOIN_TIMEOUT)
        if not up.slots:
            yield Change(since.plus(UNLISTED_SECONDS), Why.ALL_LISTED)


def _scale_down(down: ScaleDown, policy: Policy) -> Iterator[Change]:
    if down.phase is DownPhase.DRAINING:
        yield Change(down.started.plus(policy.stuck_seconds), Why.STUCK_LIMIT)
        if down.drain_started is not None:
            yield Change(down.drain_started.plus(policy.drain_seconds), Why.DRAIN_LIMIT)


def _notice(notice: SpotNotice, policy: Policy) -> Iterator[Change]:
    match notice.phase, notice.kind:
        case SpotPhase.NOTICED, SpotKind.REBALANCE if policy.rebalance is not Rebalance.REPLACE:
            yield Change(notice.noticed.plus(HINT_KEPT_SECONDS), Why.HINT_EXPIRED)
        case SpotPhase.CORDONED, SpotKind.INTERRUPTION:
            yield Change(notice.noticed.plus(SPOT_DRAIN_SECONDS), Why.SPOT_DRAIN_OVER)
        case SpotPhase.CORDONED, _:
            yield Change(notice.cordoned.plus(policy.stuck_seconds), Why.STUCK_LIMIT)
        case SpotPhase.EXPIRED, _:
            yield Change(notice.noticed.plus(policy.stuck_seconds), Why.STUCK_LIMIT)
    if notice.replacement is Replacement.LAUNCHED:
        yield Change(notice.launched.plus(policy.join_timeout_seconds), Why.JOIN_TIMEOUT)


def _sweep(seen: Seen, policy: Policy) -> Iterator[Change]:
    for machine in seen.machines:
        if tag_number(machine.tags.get(SEQUENCE_TAG)) > seen.state.action_seq:
            yield Change(machine.launched.plus(SUCCESSOR_SECONDS), Why.NUMBER_BELIEVED)
    if isinstance(seen.kube, Unknown):
        return  # without the nodes, the sweeper waits
    newest = newest_of(in_service(seen))
    kept_until = None if newest is None else newest_kept_until(seen, newest, policy)
    if kept_until is not None:
        yield Change(kept_until, Why.NEWEST_MAY_LEAVE)
    if seen.marks_refused is not None:
        yield Change(seen.marks_refused.until, Why.TAG_RETRIED)
    for worker in seen.workers:
        yield from _worker(worker, seen, policy)
    for node in seen.kube.value.nodes:
        if machine_named_on(node) and not node.is_ready and node.ready_changed is not None:
            yield Change(node.ready_changed.plus(NODE_DEAD_SECONDS), Why.NODE_DEAD)


def _worker(worker: Worker, seen: Seen, policy: Policy) -> Iterator[Change]:
    failure = seen.undrainable.get(worker.id)
    if failure is not None:
        yield Change(failure.until, Why.DRAIN_RETRIED)
    if not worker.was_accepted:
        yield Change(worker.machine.launched.plus(policy.join_timeout_seconds), Why.ORPHAN)
    elif worker.node is not None and not worker.is_ready and policy.not_ready_seconds:
        yield Change(not_ready_since(worker).plus(policy.not_ready_seconds), Why.NOT_READY_LONG_ENOUGH)
    if worker.node is not None:
        yield from _cordon(worker, worker.node, seen)


def _cordon(worker: Worker, node: Node, seen: Seen) -> Iterator[Change]:
    begun = action_begun(node.annotations.get(ACTION_ANNOTATION, ""), seen.state.fence)
    for since in (begun, mark_time(worker.spot_mark) if worker.spot_mark is not None else None):
        if since is not None:
            yield Change(since.plus(LEFT_CLOSED_SECONDS), Why.CORDON_FORGOTTEN)
