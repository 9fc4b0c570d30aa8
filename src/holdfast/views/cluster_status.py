"""The cluster's stored state, as `holdfast status`, the API and the console show it."""

from typing import Literal

from msgspec import UNSET, UnsetType, field

from holdfast.cluster.memory import spots_key
from holdfast.cluster.policy import Policy
from holdfast.cluster.spot.notice import Replacement, SpotKind, SpotNotice, SpotPhase, read_notices
from holdfast.cluster.spot.notice_views import deadline_of
from holdfast.cluster.state import ClusterState, cluster_ledger
from holdfast.cluster.tick_summary import cluster_log
from holdfast.control.failures import newest_failure
from holdfast.control.pause import PauseStatus, read_pause
from holdfast.control.stored_attributes import AttributeReader
from holdfast.fleet.slots import Slot
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Count, Shape, Time
from holdfast.ports.machines import Market
from holdfast.ports.store import Store
from holdfast.ports.store.tables import STATE
from holdfast.views.decisions import DecisionEntry, decision_of

_OpenPhase = Literal[SpotPhase.NOTICED, SpotPhase.CORDONED, SpotPhase.DRAINED, SpotPhase.EXPIRED, SpotPhase.OPENING]


class SlotStatus(Shape, frozen=True, kw_only=True):
    """A machine that a scale-up wants, with the short attribute names of the store."""

    subnet: str = field(name="s")
    zone: str = field(name="z")
    market: Literal["spot", "od"] = field(name="m")
    instance_type: str = field(name="t")
    attempt: Count = field(name="k")
    instance: str | UnsetType = field(name="i", default=UNSET)
    gave_up_because: str | UnsetType = field(name="x", default=UNSET)
    uncertain_since: Count | UnsetType = field(name="u", default=UNSET)


class ScaleUpAction(Shape, frozen=True, kw_only=True):
    kind: Literal["scale-up"] = "scale-up"
    id: str
    phase: str
    seconds: int
    requested: Count
    machines: list[str]
    slots: list[SlotStatus]


class ScaleDownAction(Shape, frozen=True, kw_only=True):
    kind: Literal["scale-down"] = "scale-down"
    id: str
    phase: str
    seconds: int
    targets: list[str]
    committed: list[str]
    completed: list[str]


class ReplacementSlot(Shape, frozen=True, kw_only=True):
    instance: str | None
    type: str
    market: Market
    zone: str
    subnet: str
    attempt: Count


class ReplacementStatus(Shape, frozen=True, kw_only=True):
    """The machine that replaces one that leaves; `deadline`: when it has to have joined."""

    state: Replacement
    slot: ReplacementSlot | None
    deadline: Time | None

    def words(self) -> str:
        """Its state, machine, type and zone."""
        if self.slot is None:
            return "none yet" if self.state is Replacement.OPEN else str(self.state)
        what = f"{self.slot.type} {self.slot.market} in {self.slot.zone}"
        return " ".join(filter(None, (self.state, self.slot.instance, what)))


class NoticeStatus(Shape, frozen=True, kw_only=True):
    """A machine that EC2 announced to take back, or a node that is being replaced; `deadline`: of its phase."""

    instance: str
    kind: SpotKind
    phase: _OpenPhase
    since: Time
    deadline: Time | None
    replacement: ReplacementStatus


class LeaseStatus(Shape, frozen=True, kw_only=True):
    owner: str
    until: Time | None
    fence: Count


class FailureStatus(Shape, frozen=True, kw_only=True):
    what: str
    at: Time
    why: str


class ClusterStatus(Shape, frozen=True, kw_only=True, rename="camel"):
    """The stored state, machines that leave, the last tick, and the newest failure. `workers` is None if unknown.

    `failed_ticks`: those that failed after the last tick.
    """

    cluster: str
    workers: Count | None
    action: ScaleUpAction | ScaleDownAction | None
    notices: list[NoticeStatus]
    last_scale_at: Time | None
    pending_since: Time | None
    idle_since: Time | None
    up_failures: Count
    up_backoff_until: Time | None
    lease: LeaseStatus
    paused: PauseStatus | None
    last_tick: DecisionEntry | None
    failed_ticks: DecisionEntry | None
    last_failure: FailureStatus | None


def cluster_status(store: Store, cluster: ClusterId, policy: Policy, now: Instant) -> ClusterStatus:
    state = cluster_ledger(store, cluster).read()
    pause = read_pause(store, cluster)
    last, failed = cluster_log(store, cluster).last_ticks(now)
    failure = newest_failure(store, cluster)
    return ClusterStatus(
        cluster=cluster,
        # Before the first tick nothing has been counted: 0 would be a guess.
        workers=None if last is None and not state.timers.workers else state.timers.workers,
        action=_action_of(state, now),
        notices=_notices(store, cluster, policy),
        last_scale_at=_time(state.last_scale),
        pending_since=_time(state.timers.pending_since),
        idle_since=_time(state.timers.idle_since),
        up_failures=state.up_failures,
        up_backoff_until=_time(state.up_backoff_until),
        lease=LeaseStatus(owner=state.lock_owner, until=_time(state.lock_until), fence=state.fence),
        paused=None if pause is None else pause.status(),
        last_tick=None if last is None else decision_of(last),
        failed_ticks=None if failed is None else decision_of(failed),
        last_failure=None
        if failure is None
        else FailureStatus(what=failure.what, at=failure.at.iso(), why=failure.why),
    )


def _action_of(state: ClusterState, now: Instant) -> ScaleUpAction | ScaleDownAction | None:
    if state.up is not None:
        return ScaleUpAction(
            id=state.up.action,
            phase=str(state.up.phase),
            seconds=round(now.seconds_since(state.up.started)),
            requested=state.up.requested,
            machines=[str(instance) for instance in state.up.instances],
            slots=[_slot_status(slot) for slot in state.up.slots],
        )
    if state.down is not None:
        return ScaleDownAction(
            id=state.down.action,
            phase=str(state.down.phase),
            seconds=round(now.seconds_since(state.down.started)),
            targets=[str(instance) for instance in state.down.targets],
            committed=sorted(str(instance) for instance in state.down.committed),
            completed=[str(instance) for instance in state.down.completed],
        )
    return None


def _slot_status(slot: Slot) -> SlotStatus:
    return SlotStatus(
        subnet=slot.subnet_id,
        zone=slot.zone,
        market="spot" if slot.market is Market.SPOT else "od",
        instance_type=slot.instance_type,
        attempt=slot.attempt,
        instance=UNSET if slot.instance is None else slot.instance,
        gave_up_because=UNSET if slot.exhausted is None else slot.exhausted,
        uncertain_since=UNSET if slot.doubted is None else slot.doubted.epoch_seconds,
    )


def _notices(store: Store, cluster: ClusterId, policy: Policy) -> list[NoticeStatus]:
    """Those that are not closed, oldest first."""
    noticed = AttributeReader(store.get(STATE, spots_key(cluster)) or {}, "spots: ").text_set("open")
    found = read_notices(store, map(InstanceId, noticed)).values()
    ordered = sorted(found, key=lambda notice: (notice.noticed, notice.instance))
    return [_notice_status(notice, notice.phase, policy) for notice in ordered if notice.phase is not SpotPhase.CLOSED]


def _notice_status(notice: SpotNotice, phase: _OpenPhase, policy: Policy) -> NoticeStatus:
    deadline = deadline_of(notice, policy)
    is_joining = notice.replacement is Replacement.LAUNCHED
    join_deadline = notice.launched.plus(policy.join_timeout_seconds).iso() if is_joining else None
    return NoticeStatus(
        instance=notice.instance,
        kind=notice.kind,
        phase=phase,
        since=notice.noticed.iso(),
        deadline=None if deadline is None else deadline.iso(),
        replacement=ReplacementStatus(
            state=notice.replacement,
            slot=None if notice.slot is None else _replacement_slot(notice.slot),
            deadline=join_deadline,
        ),
    )


def _replacement_slot(slot: Slot) -> ReplacementSlot:
    return ReplacementSlot(
        instance=slot.instance,
        type=slot.instance_type,
        market=slot.market,
        zone=slot.zone,
        subnet=slot.subnet_id,
        attempt=slot.attempt,
    )


def _time(instant: Instant | None) -> str | None:
    return None if instant is None or instant.epoch_ms == 0 else instant.iso()
