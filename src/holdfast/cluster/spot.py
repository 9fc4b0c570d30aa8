"""Spot: a machine is to be taken away in two minutes, or may be soon.

    phase       what happens                                              leads to
    (none)      the id is noted among the open ones, then the notice      NOTICED
    NOTICED     the node is cordoned at once                              CORDONED
    CORDONED    its pods are evicted                                      DRAINED, when none is left
                                                                          EXPIRED, 110 s after the notice
    DRAINED     the machine is terminated: it is empty and closed         CLOSED, once the replacement is settled
    EXPIRED     EC2 takes it                                              CLOSED, once the replacement is settled

Beside it the replacement: PLANNED → LAUNCHED → ACCEPTED, or GIVEN_UP.

A rebalance hint is a notice that waits: by itself it cordons nothing and terminates nothing. With REBALANCE=replace it
gets its replacement first, and only when that is accepted it goes the way of an interruption. It is forgotten when
nothing comes of it.

Independent of scale-up and scale-down: no attribute of theirs is touched, and the cordon waits for no lease. Only the
replacement is planned under the cluster's lease, so that the maximum is kept exactly. Any process can carry a notice
on from any line: the handler of the event does, and so does every tick.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from holdfast.cluster.drain import DrainRules, drain_view
from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.state import NEVER, Slot, StateDamaged, read_slot
from holdfast.cluster.steps import (
    AcceptReplacement,
    CloseNotice,
    CordonInterrupted,
    EnterSpotPhase,
    EvictInterrupted,
    GiveUpReplacement,
    LaunchReplacement,
    PlanReplacement,
    Step,
    TerminateInterrupted,
)
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.readings import Unknown
from holdfast.ports.store import Item
from holdfast.ports.store.values import shown

if TYPE_CHECKING:
    from holdfast.cluster.seen import Seen

SPOT_DRAIN_SECONDS: Final = 110
HINT_KEPT_SECONDS: Final = 3600
ACTION_PREFIX: Final = "spot:"


class SpotKind(StrEnum):
    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"


class SpotPhase(StrEnum):
    NOTICED = "NOTICED"
    CORDONED = "CORDONED"
    DRAINED = "DRAINED"
    EXPIRED = "EXPIRED"
    CLOSED = "CLOSED"


class Replacement(StrEnum):
    OPEN = "OPEN"
    PLANNED = "PLANNED"
    LAUNCHED = "LAUNCHED"
    ACCEPTED = "ACCEPTED"
    GIVEN_UP = "GIVEN_UP"

    @property
    def is_settled(self) -> bool:
        return self in (Replacement.ACCEPTED, Replacement.GIVEN_UP)


@dataclass(frozen=True, slots=True)
class Notice:
    """What EC2 told of one machine, and how far it has been carried."""

    instance: InstanceId
    kind: SpotKind
    phase: SpotPhase
    noticed: Instant
    replacement: Replacement = Replacement.OPEN
    slot: Slot | None = None
    planned: Instant = NEVER

    @property
    def action(self) -> ActionId:
        """What the replacement's machine is tagged with."""
        return ActionId(f"{ACTION_PREFIX}{self.instance}")

    @property
    def is_leaving(self) -> bool:
        """Whether the machine is no longer counted on."""
        return self.kind is SpotKind.INTERRUPTION or self.phase is not SpotPhase.NOTICED


def read_notice(item: Item) -> Notice:
    """The item ``spot#<instance-id>``, or StateDamaged."""
    try:
        return Notice(
            instance=InstanceId(str(item["pk"]).removeprefix("spot#")),
            kind=SpotKind(item["kind"]),
            phase=SpotPhase(item["phase"]),
            noticed=Instant.from_epoch_seconds(int(item["noticeEpoch"])),
            replacement=Replacement(item.get("replacement", Replacement.OPEN)),
            slot=read_slot(item["plan"], "spot plan: ") if "plan" in item else None,
            planned=Instant.from_epoch_seconds(int(item.get("plannedEpoch", 0))),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise StateDamaged(f"spot notice {shown(item)}: {error}; remove the item") from error


# What comes next


def notice_steps(notice: Notice, seen: "Seen", policy: Policy, rules: DrainRules) -> Iterator[Step]:
    """What carries the notice on. Steps that need the lease come after those that do not."""
    instance = notice.instance
    is_gone = instance in seen.gone
    if notice.kind is SpotKind.REBALANCE and notice.phase is SpotPhase.NOTICED:
        yield from _hint_steps(notice, seen, policy, is_gone=is_gone)
        return
    match notice.phase:
        case SpotPhase.NOTICED:
            yield CordonInterrupted(instance=instance, because="EC2 is about to take it")
        case SpotPhase.CORDONED:
            yield from _drain_steps(notice, seen, rules, is_gone=is_gone)
        case SpotPhase.DRAINED if not is_gone:
            yield TerminateInterrupted(instance=instance, because="it is drained, and EC2 is about to take it")
    if not notice.replacement.is_settled:
        yield from _replacement_steps(notice, seen, policy)
    elif notice.phase in (SpotPhase.DRAINED, SpotPhase.EXPIRED) and is_gone:
        yield CloseNotice(instance=instance, because="it is gone, and its replacement is settled")


def _hint_steps(notice: Notice, seen: "Seen", policy: Policy, *, is_gone: bool) -> Iterator[Step]:
    if is_gone:
        yield CloseNotice(instance=notice.instance, because="it is gone")
    elif policy.rebalance is Rebalance.REPLACE:
        if notice.replacement is Replacement.ACCEPTED:
            yield CordonInterrupted(instance=notice.instance, because="its replacement is in service")
        elif notice.replacement is Replacement.GIVEN_UP:
            yield CloseNotice(instance=notice.instance, because="it got no replacement, so it stays")
        else:
            yield from _replacement_steps(notice, seen, policy)
    elif seen.now.seconds_since(notice.noticed) >= HINT_KEPT_SECONDS:
        yield CloseNotice(instance=notice.instance, because="nothing came of the hint")


def _drain_steps(notice: Notice, seen: "Seen", rules: DrainRules, *, is_gone: bool) -> Iterator[Step]:
    instance = notice.instance
    deadline = notice.noticed.plus(SPOT_DRAIN_SECONDS)
    is_hint = notice.kind is SpotKind.REBALANCE
    if is_gone or (seen.now >= deadline and not is_hint):
        because = "it is gone" if is_gone else f"{SPOT_DRAIN_SECONDS} s have passed since the notice"
        yield EnterSpotPhase(instance=instance, phase=SpotPhase.EXPIRED, because=because)
        return
    worker = seen.worker(instance)
    if isinstance(seen.kube, Unknown) or worker is None or worker.node is None:
        return
    view = drain_view((pod for pod in seen.kube.value.pods if pod.node == worker.node.name), rules)
    if view.to_evict:
        pods = tuple(str(pod) for pod in view.to_evict)
        yield EvictInterrupted(instance=instance, pods=pods, because=f"{len(pods)} pods are still on it")
    elif view.is_drained:
        yield EnterSpotPhase(instance=instance, phase=SpotPhase.DRAINED, because="no pod is left on it")


def _replacement_steps(notice: Notice, seen: "Seen", policy: Policy) -> Iterator[Step]:
    instance = notice.instance
    match notice.replacement:
        case Replacement.OPEN:
            if seen.expected < policy.max_workers:
                yield PlanReplacement(instance=instance, because="what leaves is replaced at once")
            else:
                because = f"{seen.expected} workers are the maximum already"
                yield GiveUpReplacement(instance=instance, because=because)
        case Replacement.PLANNED:
            yield LaunchReplacement(instance=instance, because="its replacement is planned, and not launched")
        case Replacement.LAUNCHED:
            yield from _join_steps(notice, seen, policy)


def _join_steps(notice: Notice, seen: "Seen", policy: Policy) -> Iterator[Step]:
    launched = notice.slot.instance if notice.slot else None
    worker = seen.worker(launched) if launched else None
    if worker is not None and worker.is_ready:
        yield AcceptReplacement(instance=notice.instance, because="its replacement's node is Ready")
    elif launched in seen.gone or seen.now.seconds_since(notice.planned) >= policy.join_timeout_seconds:
        yield GiveUpReplacement(instance=notice.instance, because="its replacement did not join in time")
