"""Spot: a machine is to be taken away in two minutes, or may be soon.

    phase       what happens                                              leads to
    (none)      the id is noted among the open ones, then the notice      NOTICED
    NOTICED     the node is cordoned at once                              CORDONED
    CORDONED    its pods are evicted                                      DRAINED, when none is left
                                                                          EXPIRED, 110 s after the notice
    DRAINED     the machine is terminated: it is empty and closed         CLOSED, once the replacement is settled
    EXPIRED     EC2 takes it                                              CLOSED, once the replacement is settled
                                                                          OPENING, when EC2 does not take it
    OPENING     the node is uncordoned: it stays after all                CLOSED

Beside it the replacement: PLANNED → LAUNCHED → ACCEPTED, or GIVEN_UP.

A rebalance hint is a notice that waits: by itself it cordons nothing and terminates nothing. With REBALANCE=replace it
gets its replacement first, and only when that is accepted it goes the way of an interruption. It is forgotten when
nothing comes of it, and given up (CORDONED → OPENING) when its node cannot be drained. Nobody is about to take its
machine, so before that is terminated it is looked at once more: open, or with pods on it, it is not.

A node that stays NotReady is handled like such a hint, and noted by the sweeper. Its kubelet does not answer, so pods
that are on their way out are not waited for. One that is Ready again is left alone, or opened again.

EC2 may not take what it gave notice of: after a while the machine is opened again, and counts again.

DRAINED and OPENING exclude each other, and neither is taken back: each is stored, from the phase before, ahead of what
it leads to. So a machine that is to be terminated is not opened, and one that was opened is not terminated.

A machine may be given notice of again, and whoever handled the first notice may be late. So the cordon bears the mark
of its notice: no other counts as closed, and no other is undone. It is put on a node that was read before the notice
was read once more, so that an old mark never takes the place of a newer one. model/Opening.tla has all of this.

Independent of scale-up and scale-down: no attribute of theirs is touched, and the cordon waits for no lease. Only the
replacement is planned under the cluster's lease, so that the maximum is kept exactly. Any process can carry a notice
on from any line: the handler of the event does, and so does every tick.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from holdfast.cluster.attributes import StateDamaged
from holdfast.cluster.drain import DrainRules, drain_view
from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.state import NEVER, DownPhase, Slot, read_slot
from holdfast.cluster.steps import (
    AcceptReplacement,
    CloseNotice,
    CordonInterrupted,
    EnterSpotPhase,
    EvictInterrupted,
    GiveUpReplacement,
    LaunchReplacement,
    OpenInterrupted,
    PlanReplacement,
    Step,
    TerminateInterrupted,
)
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import some
from holdfast.ports.readings import Unknown
from holdfast.ports.store import Item
from holdfast.ports.store.values import shown

if TYPE_CHECKING:
    from holdfast.cluster.seen import Seen, Worker

SPOT_DRAIN_SECONDS: Final = 110
HINT_KEPT_SECONDS: Final = 3600
ACTION_PREFIX: Final = "spot:"
_MARK: Final = "@"


class SpotKind(StrEnum):
    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"
    NOT_READY = "not-ready"


class SpotPhase(StrEnum):
    NOTICED = "NOTICED"
    CORDONED = "CORDONED"
    DRAINED = "DRAINED"
    EXPIRED = "EXPIRED"
    OPENING = "OPENING"
    CLOSED = "CLOSED"


class Replacement(StrEnum):
    OPEN = "OPEN"
    PLANNED = "PLANNED"
    LAUNCHED = "LAUNCHED"
    GIVING_UP = "GIVING_UP"  # for good: its machine goes, and nobody accepts it any more
    ACCEPTED = "ACCEPTED"
    GIVEN_UP = "GIVEN_UP"

    @property
    def is_settled(self) -> bool:
        return self in (Replacement.ACCEPTED, Replacement.GIVEN_UP)


class Notice(Struct, frozen=True):
    """What EC2 told of one machine, and how far it has been carried."""

    instance: InstanceId
    kind: SpotKind
    phase: SpotPhase
    noticed: Instant
    replacement: Replacement = Replacement.OPEN
    slot: Slot | None = None
    planned: Instant = NEVER
    launched: Instant = NEVER
    template: str = ""  # of the replacement, as it was when it was planned
    first_attempt: int = 0  # more than 0, if an earlier notice of the same machine had tokens of its own
    cordoned: Instant = NEVER

    @property
    def action(self) -> ActionId:
        """What the replacement's machine is tagged with."""
        return ActionId(f"{ACTION_PREFIX}{self.instance}")

    @property
    def mark(self) -> str:
        """What a node bears that was closed for it: another notice of the same machine has another one."""
        return f"{self.instance}{_MARK}{self.noticed.epoch_seconds}"

    @property
    def moved(self) -> Instant:
        """When it was carried on last, as far as that is known."""
        return max(self.noticed, self.planned, self.launched, self.cordoned)

    @property
    def is_leaving(self) -> bool:
        """Whether the machine is no longer counted on."""
        if self.phase in (SpotPhase.OPENING, SpotPhase.CLOSED):
            return False
        return self.kind is not SpotKind.REBALANCE or self.phase is not SpotPhase.NOTICED

    @property
    def may_stay(self) -> bool:
        """Whether it was only hinted that the machine leaves: one that cannot be drained is opened, and works on."""
        return self.kind is SpotKind.REBALANCE and self.is_leaving


def marked(mark: str) -> Instant:
    """When the notice was given that a node's mark names; long ago, if it does not tell."""
    text = mark.rpartition(_MARK)[2]
    return Instant.from_epoch_seconds(int(text)) if text.isascii() and text.isdigit() and len(text) <= 11 else NEVER


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
            launched=Instant.from_epoch_seconds(int(item.get("launchedEpoch") or item.get("plannedEpoch", 0))),
            template=str(item.get("templateRef", "")),
            first_attempt=int(item.get("firstAttempt", 0)),
            cordoned=Instant.from_epoch_seconds(int(item.get("cordonedEpoch", 0))),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise StateDamaged(f"spot notice {shown(item)}: {error}; remove the item") from error


# What comes next


def notice_steps(notice: Notice, seen: "Seen", policy: Policy, rules: DrainRules) -> Iterator[Step]:
    """What carries the notice on. Steps that need the lease come after those that do not."""
    instance = notice.instance
    is_gone = instance in seen.gone
    if notice.phase is SpotPhase.CLOSED:
        yield CloseNotice(instance=instance, because="it is closed, and still listed as open")
        return
    if notice.kind is not SpotKind.INTERRUPTION and notice.phase is SpotPhase.NOTICED:
        yield from _waiting_steps(notice, seen, policy, is_gone=is_gone)
        return
    yield from _phase_steps(notice, seen, policy, rules, is_gone=is_gone)
    if not notice.replacement.is_settled:
        yield from _replacement_steps(notice, seen, policy)
    elif notice.phase in (SpotPhase.DRAINED, SpotPhase.EXPIRED) and is_gone:
        yield CloseNotice(instance=instance, because="it is gone, and its replacement is settled")


def _phase_steps(notice: Notice, seen: "Seen", policy: Policy, rules: DrainRules, *, is_gone: bool) -> Iterator[Step]:
    instance = notice.instance
    match notice.phase:
        # Without Kubernetes there is no telling whether it has a node that must be closed first.
        case SpotPhase.NOTICED if is_gone or not isinstance(seen.kube, Unknown):
            yield CordonInterrupted(instance=instance, because="EC2 is about to take it")
        case SpotPhase.CORDONED:
            yield from _drain_steps(notice, seen, policy, rules, is_gone=is_gone)
        case SpotPhase.DRAINED if not is_gone:
            yield from _end_steps(notice, seen, rules)
        case SpotPhase.OPENING if is_gone or not isinstance(seen.kube, Unknown):
            yield OpenInterrupted(instance=instance, because="it stays after all, and may still be closed")
        case SpotPhase.EXPIRED if not is_gone and notice.replacement.is_settled and not isinstance(seen.kube, Unknown):
            if seen.seconds_since(notice.noticed) >= policy.stuck_seconds:
                yield OpenInterrupted(instance=instance, because=f"EC2 has not taken it for {policy.stuck_seconds} s")


def _waiting_steps(notice: Notice, seen: "Seen", policy: Policy, *, is_gone: bool) -> Iterator[Step]:
    """A hint, or a node that is NotReady: first the replacement, then the way of an interruption."""
    if is_gone and notice.replacement in (Replacement.PLANNED, Replacement.LAUNCHED, Replacement.GIVING_UP):
        yield from _replacement_steps(notice, seen, policy)  # what was promised is brought to its end
        return
    reason = "it is gone" if is_gone else _reason_to_close(notice, seen, policy)
    if reason is not None:
        yield CloseNotice(instance=notice.instance, because=reason)
    elif notice.replacement is Replacement.OPEN and _must_wait(notice, seen, policy):
        return
    elif notice.replacement is not Replacement.ACCEPTED:
        yield from _replacement_steps(notice, seen, policy)
    elif not isinstance(seen.kube, Unknown):
        yield CordonInterrupted(instance=notice.instance, because="its replacement is in service")


def _reason_to_close(notice: Notice, seen: "Seen", policy: Policy) -> str | None:
    if notice.replacement is Replacement.GIVEN_UP:
        return "it got no replacement, so it stays"
    if notice.kind is not SpotKind.REBALANCE:
        is_open = notice.replacement is Replacement.OPEN
        is_well = _is_ready(notice, seen) if is_open else _may_stay(notice, seen, policy)
        return "its node is Ready again" if is_well else None
    if policy.rebalance is Rebalance.REPLACE:
        return None
    if notice.replacement is Replacement.ACCEPTED:
        return "hints are no longer to be acted on"
    is_old = notice.replacement is Replacement.OPEN and seen.seconds_since(notice.noticed) >= HINT_KEPT_SECONDS
    return "nothing came of the hint" if is_old else None


def _is_ready(notice: Notice, seen: "Seen") -> bool:
    worker = seen.worker(notice.instance)
    return worker is not None and worker.is_ready


def _may_stay(notice: Notice, seen: "Seen", policy: Policy) -> bool:
    """Whether a node that was NotReady is Ready again, and there is room for it beside its replacement."""
    is_settled = notice.kind is SpotKind.NOT_READY and notice.replacement is Replacement.ACCEPTED
    return is_settled and _is_ready(notice, seen) and seen.most_expected < policy.max_workers


def _must_wait(notice: Notice, seen: "Seen", policy: Policy) -> bool:
    """Hints are acted on only if wanted, and one after the other: a wave must not turn over the whole cluster."""
    if notice.kind is not SpotKind.REBALANCE:
        return False
    others = (other for other in seen.notices.values() if other.instance != notice.instance)
    return policy.rebalance is not Rebalance.REPLACE or any(
        other.kind is SpotKind.REBALANCE
        and (other.phase is not SpotPhase.NOTICED or other.replacement not in (Replacement.OPEN, Replacement.GIVEN_UP))
        for other in others
    )


def _drain_steps(notice: Notice, seen: "Seen", policy: Policy, rules: DrainRules, *, is_gone: bool) -> Iterator[Step]:
    instance, is_interruption = notice.instance, notice.kind is SpotKind.INTERRUPTION
    if is_gone or (is_interruption and seen.now >= notice.noticed.plus(SPOT_DRAIN_SECONDS)):
        because = "it is gone" if is_gone else f"{SPOT_DRAIN_SECONDS} s have passed since the notice"
        yield EnterSpotPhase(instance=instance, phase=SpotPhase.EXPIRED, because=because)
        return
    if isinstance(seen.kube, Unknown):
        return
    if _may_stay(notice, seen, policy):
        yield OpenInterrupted(instance=instance, because="its node is Ready again")
        return
    if not is_interruption and seen.seconds_since(notice.cordoned) >= policy.stuck_seconds:
        yield OpenInterrupted(instance=instance, because=f"it could not be drained within {policy.stuck_seconds} s")
        return
    worker = seen.worker(instance)
    if worker is None or worker.node is None:
        return
    drained = EnterSpotPhase(instance=instance, phase=SpotPhase.DRAINED, because="no pod is left to move")
    yield from _emptying_steps(notice, worker, seen, rules, drained)


def _emptying_steps(notice: Notice, worker: "Worker", seen: "Seen", rules: DrainRules, then: Step) -> Iterator[Step]:
    """Close the node and empty it; `then`, when that is done."""
    view = drain_view(seen.pods_of(worker), rules)
    if worker.node is None or not worker.node.is_unschedulable:
        yield CordonInterrupted(instance=worker.id, because="somebody has opened it")
    elif worker.spot_mark != notice.mark:
        yield CordonInterrupted(instance=worker.id, because="it is not closed for this notice")
    elif view.to_evict:
        pods = tuple(str(pod) for pod in view.to_evict)
        yield EvictInterrupted(instance=worker.id, pods=pods, because=f"{some(len(pods), 'pod')} still on it")
    elif view.is_drained or (view.is_left_to_die and not worker.is_ready):
        yield then


def _end_steps(notice: Notice, seen: "Seen", rules: DrainRules) -> Iterator[Step]:
    """It is drained. EC2 takes an interrupted one anyway; of any other, what came to it since is moved first."""
    end = TerminateInterrupted(instance=notice.instance, because="it is drained, and closed for good")
    if notice.kind is SpotKind.INTERRUPTION:
        yield end
    elif not isinstance(seen.kube, Unknown):
        worker = seen.worker(notice.instance)
        if worker is None or worker.node is None:
            yield end
        else:
            yield from _emptying_steps(notice, worker, seen, rules, end)


def _replacement_steps(notice: Notice, seen: "Seen", policy: Policy) -> Iterator[Step]:
    instance = notice.instance
    match notice.replacement:
        case Replacement.OPEN:
            others = seen.most_expected - 1 if notice.is_leaving else seen.most_expected
            down = seen.state.down
            if down is not None and instance in down.targets and down.phase is not DownPhase.ABORTING:
                yield GiveUpReplacement(instance=instance, because="a scale-down takes it away, so it is not missed")
            elif seen.is_paused:
                return  # nothing new is begun; it is asked again when the pause is over
            elif others < policy.max_workers:
                yield PlanReplacement(instance=instance, because="what leaves is replaced at once")
            else:
                yield GiveUpReplacement(instance=instance, because=f"{others} workers are the maximum already")
        case Replacement.PLANNED:
            attempt = notice.slot.attempt if notice.slot else 0
            because = "its replacement is planned, and not launched"
            yield LaunchReplacement(instance=instance, attempt=attempt, because=because)
        case Replacement.LAUNCHED:
            yield from _join_steps(notice, seen, policy)
        case Replacement.GIVING_UP:
            yield GiveUpReplacement(instance=instance, because="its replacement did not join, and goes")


def _join_steps(notice: Notice, seen: "Seen", policy: Policy) -> Iterator[Step]:
    launched = notice.slot.instance if notice.slot else None
    worker = seen.worker(launched) if launched else None
    if worker is not None and worker.is_ready:
        yield AcceptReplacement(instance=notice.instance, because="its replacement's node is Ready")
    elif launched in seen.gone or seen.seconds_since(notice.launched) >= policy.join_timeout_seconds:
        yield GiveUpReplacement(instance=notice.instance, because="its replacement did not join in time")
