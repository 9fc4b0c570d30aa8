"""The cluster now: its stored state beside what the latest tick observed; and its last hours as a time line."""

from msgspec import field

from holdfast.cluster.memory import memory_keys, read_memory
from holdfast.cluster.policy import choices_of, policy_of
from holdfast.control.decision_log import TICK_KIND
from holdfast.control.pause import PauseStatus
from holdfast.fleet.options import PoolFailure
from holdfast.jobs.cost.prices import Prices
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Count, Shape, Time
from holdfast.kernel.settings import Settings
from holdfast.ports.store import Store
from holdfast.ports.store.tables import STATE
from holdfast.views.cluster_history import (
    ActionSpan,
    Moment,
    TimelineMark,
    TimelinePoint,
    action_spans,
    timeline_marks,
)
from holdfast.views.cluster_status import (
    FailureStatus,
    LeaseStatus,
    NoticeStatus,
    ScaleDownAction,
    ScaleUpAction,
    cluster_status,
)
from holdfast.views.decisions import RuleResult
from holdfast.views.latest_tick import LatestTick, NodeStatus, TickFailure, node_statuses


class FailingPool(Shape, frozen=True, kw_only=True):
    """A pool that EC2 refused lately; it is tried again after `until`."""

    type: str
    zone: str
    market: str
    failures: Count
    until: Time
    is_failing: bool


class UndrainableNode(Shape, frozen=True, kw_only=True):
    """A machine whose node could not be drained; it is tried again after `until`."""

    id: str
    failures: Count
    until: Time
    is_failing: bool


class ClusterNow(Shape, frozen=True, kw_only=True):
    """`nodes_are_seen` is false until a tick of this process has completed: then `nodes` is empty, and `pods` None.

    `runs_ticks` is false in a process that leaves the ticks to another one. `workers` is None if unknown.
    """

    name: str
    workers: Count | None
    runs_ticks: bool
    nodes_are_seen: bool
    nodes: list[NodeStatus]
    pods: Count | None
    pending: Count | None
    cpu: float | None
    action: ScaleUpAction | ScaleDownAction | None
    notices: list[NoticeStatus]
    paused: PauseStatus | None
    last_scale_at: Time | None
    pending_since: Time | None
    idle_since: Time | None
    up_failures: Count
    up_backoff_until: Time | None
    lease: LeaseStatus
    failure: TickFailure | None
    newest_failure: FailureStatus | None
    last_tick_at: Time | None
    last_tick_seconds: float | None
    rules: list[RuleResult]
    capacity: list[FailingPool]
    undrainable: list[UndrainableNode]
    min_workers: Count
    max_workers: Count
    pods_per_node: Count


class TimeLine(Shape, frozen=True, kw_only=True):
    """The last hours: a point for each tick, the actions, and what else happened."""

    hours: Count
    points: list[TimelinePoint]
    actions: list[ActionSpan]
    marks: list[TimelineMark]
    cpu_up: float
    cpu_down: float
    max_workers: Count


class PolicyShown(Shape, frozen=True, kw_only=True):
    """The settings that decide when to scale, by their names."""

    cpu_up: float = field(name="CPU_UP")
    cpu_down: float = field(name="CPU_DOWN")
    pending_up_sec: int = field(name="PENDING_UP_SEC")
    idle_down_sec: int = field(name="IDLE_DOWN_SEC")
    cooldown_up_sec: int = field(name="COOLDOWN_UP_SEC")
    cooldown_down_sec: int = field(name="COOLDOWN_DOWN_SEC")


def cluster_now(
    store: Store, settings: Settings, latest: LatestTick, prices: Prices, moments: list[Moment], now: Instant
) -> ClusterNow:
    name = ClusterId(settings.cluster_id)
    policy = policy_of(settings)
    state = cluster_status(store, name, policy, now)
    memory = read_memory(store.batch_get(STATE, memory_keys(name)))
    seen = latest.seen
    # The last tick, not the newest moment: a pause or a failed tick is in the log too, and has observed nothing.
    last = state.last_tick
    observed = last.seen if last else None
    nodes = [] if seen is None else node_statuses(seen, now, prices, policy, choices_of(settings).drain)
    return ClusterNow(
        name=name,
        workers=state.workers,
        runs_ticks=latest.runs_ticks,
        nodes_are_seen=seen is not None,
        nodes=nodes,
        pods=None if seen is None else sum(node.pods for node in nodes),
        pending=observed.pending.pods if observed and observed.pending else None,
        cpu=observed.cpu if observed else None,
        action=state.action,
        notices=state.notices,
        paused=state.paused,
        last_scale_at=state.last_scale_at,
        pending_since=state.pending_since,
        idle_since=state.idle_since,
        up_failures=state.up_failures,
        up_backoff_until=state.up_backoff_until,
        lease=state.lease,
        failure=latest.failure or _unresolved(state.last_failure, moments),
        newest_failure=state.last_failure,
        last_tick_at=last.at if last else None,
        last_tick_seconds=max(0.0, now.seconds_since(Instant.from_iso(last.at))) if last else None,
        rules=last.rules if last else [],
        capacity=[_failing_pool(pool, failure, now) for pool, failure in sorted(memory.failures.items())],
        undrainable=[_undrainable(str(name), failure, now) for name, failure in sorted(memory.undrainable.items())],
        min_workers=settings.min_workers,
        max_workers=settings.max_workers,
        pods_per_node=settings.pods_per_node,
    )


def _unresolved(failure: FailureStatus | None, moments: list[Moment]) -> TickFailure | None:
    """The failure, of whichever process, if no tick has completed since."""
    ticked = [moment.at for moment in moments if moment.kind == TICK_KIND]
    if failure is None or (ticked and Instant.from_iso(failure.at) <= ticked[-1]):
        return None
    return TickFailure(at=failure.at, why=failure.why)


def _failing_pool(name: str, failure: PoolFailure, now: Instant) -> FailingPool:
    instance_type, zone, market = [*name.split("|"), "", ""][:3]
    return FailingPool(
        type=instance_type,
        zone=zone,
        market=market,
        failures=failure.failures,
        until=failure.until.iso(),
        is_failing=now < failure.until,
    )


def _undrainable(instance: str, failure: PoolFailure, now: Instant) -> UndrainableNode:
    return UndrainableNode(
        id=instance, failures=failure.failures, until=failure.until.iso(), is_failing=now < failure.until
    )


def time_line(settings: Settings, moments: list[Moment], hours: int) -> TimeLine:
    return TimeLine(
        hours=hours,
        points=[moment.point() for moment in moments if moment.kind == TICK_KIND],
        actions=action_spans(moments),
        marks=timeline_marks(moments),
        cpu_up=settings.cpu_up,
        cpu_down=settings.cpu_down,
        max_workers=settings.max_workers,
    )


def policy_shown(settings: Settings) -> PolicyShown:
    return PolicyShown(
        cpu_up=settings.cpu_up,
        cpu_down=settings.cpu_down,
        pending_up_sec=settings.pending_up_sec,
        idle_down_sec=settings.idle_down_sec,
        cooldown_up_sec=settings.cooldown_up_sec,
        cooldown_down_sec=settings.cooldown_down_sec,
    )
