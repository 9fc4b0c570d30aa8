"""Spot: EC2 reclaims a machine in two minutes, or may soon. `PHASE_MOVES` and `REPLACEMENT_MOVES` have the phases.

    NOTICED     cordon the node at once
    CORDONED    evict its pods, until 110 s after the notice
    DRAINED     terminate the machine: it is empty and cordoned
    EXPIRED     EC2 reclaims the machine
    OPENING     uncordon the node: it stays after all

A rebalance hint waits: alone it cordons nothing and terminates nothing. With REBALANCE=replace its replacement comes
first, and once that is accepted the notice follows the phases of an interruption. A hint expires if nothing happens,
and is cancelled (CORDONED → OPENING) if its node cannot be drained. EC2 is not about to reclaim this machine, so its
node is checked again before the machine is terminated: it must still be cordoned and empty.

A node that stays NotReady is handled like a hint; the sweeper stores its notice. Its kubelet does not respond, so there
is no waiting for pods that are terminating. If the node becomes Ready again it is left alone, or uncordoned.

EC2 may not reclaim the machine after all. After STUCK_SEC its node is uncordoned, and it counts as a worker again.

DRAINED and OPENING exclude each other, and both are final: each is stored, conditional on the phase before it, ahead of
its side effect. So a machine that will be terminated is not uncordoned, and an uncordoned one is not terminated.

A machine may get a second notice while a slow process still handles the first. So the cordon carries the mark of its
notice: a cordon with another mark does not count, and is not undone. The node is read before the notice is read again,
so an old mark never replaces a newer one. model/Opening.tla models all of this.

Notices are independent of scale-up and scale-down: they change none of their attributes, and a cordon needs no lease.
Only the replacement is planned under the cluster's lease, so that the maximum is never exceeded. Any process can resume
a notice from any phase: the event handler does, and so does every tick.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.cluster.drain import DrainRules, drain_view
from holdfast.cluster.joining import has_ended, is_prepared, reasons_words
from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.seen import Seen, Worker
from holdfast.cluster.spot.notice import (
    HINT_KEPT_SECONDS,
    SPOT_DRAIN_SECONDS,
    Replacement,
    SpotKind,
    SpotNotice,
    SpotPhase,
)
from holdfast.cluster.state import DownPhase
from holdfast.cluster.steps import (
    AcceptReplacement,
    CloseNotice,
    ClusterStep,
    CordonInterrupted,
    EnterSpotPhase,
    EvictInterrupted,
    GiveUpReplacement,
    LaunchReplacement,
    OpenInterrupted,
    PlanReplacement,
    TerminateInterrupted,
)
from holdfast.control.workflows import Move
from holdfast.kernel.text import some
from holdfast.ports.readings import Unknown

PHASE_MOVES: Final = (
    Move(None, SpotPhase.NOTICED, "the notice is stored, and listed as open"),
    Move(SpotPhase.NOTICED, SpotPhase.CORDONED, "the node is cordoned, or the machine has none"),
    Move(SpotPhase.NOTICED, SpotPhase.CLOSED, "a hint that is not acted on, or a node that is Ready again"),
    Move(SpotPhase.CORDONED, SpotPhase.DRAINED, "no pod is left to move"),
    Move(SpotPhase.CORDONED, SpotPhase.EXPIRED, "110 s have passed, or the machine is gone"),
    Move(SpotPhase.CORDONED, SpotPhase.OPENING, "the node cannot be drained, or is Ready again"),
    Move(SpotPhase.DRAINED, SpotPhase.CLOSED, "the machine is gone, and its replacement is settled"),
    Move(SpotPhase.EXPIRED, SpotPhase.CLOSED, "the machine is gone, and its replacement is settled"),
    Move(SpotPhase.EXPIRED, SpotPhase.OPENING, "EC2 has not taken the machine"),
    Move(SpotPhase.OPENING, SpotPhase.CLOSED, "the node is uncordoned"),
    # An interruption replaces a milder notice, and a closed notice may be given again.
    Move(SpotPhase.CORDONED, SpotPhase.NOTICED, "an interruption replaces a hint"),
    Move(SpotPhase.OPENING, SpotPhase.NOTICED, "an interruption comes while the node is uncordoned"),
    Move(SpotPhase.CLOSED, SpotPhase.NOTICED, "another notice of the same machine"),
)
REPLACEMENT_MOVES: Final = (
    Move(Replacement.OPEN, Replacement.PLANNED, "its slot is stored, under the cluster's lease"),
    Move(Replacement.OPEN, Replacement.GIVEN_UP, "at maximum workers, or a scale-down removes the machine anyway"),
    Move(Replacement.PLANNED, Replacement.LAUNCHED, "EC2 launched it"),
    Move(Replacement.PLANNED, Replacement.GIVEN_UP, "nothing is left to try"),
    Move(Replacement.LAUNCHED, Replacement.ACCEPTED, "its node is Ready, and taken into service"),
    Move(Replacement.LAUNCHED, Replacement.GIVING_UP, "it did not join in time"),
    Move(Replacement.LAUNCHED, Replacement.GIVEN_UP, "it is gone before it joined"),
    Move(Replacement.GIVING_UP, Replacement.GIVEN_UP, "it is terminated"),
    Move(Replacement.GIVING_UP, Replacement.ACCEPTED, "it came into service after all, and is kept"),
    Move(Replacement.GIVEN_UP, Replacement.OPEN, "another notice of the same machine"),
)


# What comes next


def notice_steps(notice: SpotNotice, seen: Seen, policy: Policy, rules: DrainRules) -> Iterator[ClusterStep]:
    """The steps that resume the notice. Steps that need the lease come after those that do not."""
    instance = notice.instance
    is_gone = instance in seen.gone
    if notice.phase is SpotPhase.CLOSED:
        yield CloseNotice(instance=instance, because="the notice is closed but still listed as open")
        return
    if notice.kind is not SpotKind.INTERRUPTION and notice.phase is SpotPhase.NOTICED:
        yield from _waiting_steps(notice, seen, policy, is_gone=is_gone)
        return
    yield from _phase_steps(notice, seen, policy, rules, is_gone=is_gone)
    if not notice.replacement.is_settled:
        yield from _replacement_steps(notice, seen, policy)
    elif notice.phase in (SpotPhase.DRAINED, SpotPhase.EXPIRED) and is_gone:
        yield CloseNotice(instance=instance, because="the machine is gone and its replacement is settled")


def _phase_steps(
    notice: SpotNotice, seen: Seen, policy: Policy, rules: DrainRules, *, is_gone: bool
) -> Iterator[ClusterStep]:
    instance = notice.instance
    match notice.phase:
        # Without Kubernetes it is unknown whether the machine has a node that must be cordoned first.
        case SpotPhase.NOTICED if is_gone or not isinstance(seen.kube, Unknown):
            yield CordonInterrupted(instance=instance, because="EC2 is about to reclaim it")
        case SpotPhase.CORDONED:
            yield from _drain_steps(notice, seen, policy, rules, is_gone=is_gone)
        case SpotPhase.DRAINED if not is_gone:
            yield from _end_steps(notice, seen, rules)
        case SpotPhase.OPENING if is_gone or not isinstance(seen.kube, Unknown):
            yield OpenInterrupted(instance=instance, because="it stays after all, and may still be cordoned")
        case SpotPhase.EXPIRED if not is_gone and notice.replacement.is_settled and not isinstance(seen.kube, Unknown):
            if seen.seconds_since(notice.noticed) >= policy.stuck_seconds:
                yield OpenInterrupted(
                    instance=instance, because=f"EC2 did not reclaim it within {policy.stuck_seconds} s"
                )


def _waiting_steps(notice: SpotNotice, seen: Seen, policy: Policy, *, is_gone: bool) -> Iterator[ClusterStep]:
    """A hint or a NotReady node: first the replacement, then the phases of an interruption."""
    if is_gone and notice.replacement in (Replacement.PLANNED, Replacement.LAUNCHED, Replacement.GIVING_UP):
        yield from _replacement_steps(notice, seen, policy)  # finish the replacement that was planned
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


def _reason_to_close(notice: SpotNotice, seen: Seen, policy: Policy) -> str | None:
    if notice.replacement is Replacement.GIVEN_UP:
        return "it has no replacement, so it stays"
    if notice.kind is not SpotKind.REBALANCE:
        is_open = notice.replacement is Replacement.OPEN
        is_well = _is_ready(notice, seen) if is_open else _has_recovered(notice, seen, policy)
        return "its node is Ready again" if is_well else None
    if policy.rebalance is Rebalance.REPLACE:
        return None
    if notice.replacement is Replacement.ACCEPTED:
        return "REBALANCE is no longer set to replace"
    is_old = notice.replacement is Replacement.OPEN and seen.seconds_since(notice.noticed) >= HINT_KEPT_SECONDS
    return "the hint expired" if is_old else None


def _is_ready(notice: SpotNotice, seen: Seen) -> bool:
    worker = seen.worker(notice.instance)
    return worker is not None and worker.is_ready


def _has_recovered(notice: SpotNotice, seen: Seen, policy: Policy) -> bool:
    """Whether a NotReady node is Ready again, and the maximum leaves room for it beside its replacement."""
    is_settled = notice.kind is SpotKind.NOT_READY and notice.replacement is Replacement.ACCEPTED
    return is_settled and _is_ready(notice, seen) and seen.most_expected < policy.max_workers


def _must_wait(notice: SpotNotice, seen: Seen, policy: Policy) -> bool:
    """Hints need REBALANCE=replace, and are handled one at a time: a wave must not replace the whole cluster."""
    if notice.kind is not SpotKind.REBALANCE:
        return False
    others = (other for other in seen.notices.values() if other.instance != notice.instance)
    return policy.rebalance is not Rebalance.REPLACE or any(
        other.kind is SpotKind.REBALANCE
        and (other.phase is not SpotPhase.NOTICED or other.replacement not in (Replacement.OPEN, Replacement.GIVEN_UP))
        for other in others
    )


def _drain_steps(
    notice: SpotNotice, seen: Seen, policy: Policy, rules: DrainRules, *, is_gone: bool
) -> Iterator[ClusterStep]:
    instance, is_interruption = notice.instance, notice.kind is SpotKind.INTERRUPTION
    if is_gone or (is_interruption and seen.now >= notice.noticed.plus(SPOT_DRAIN_SECONDS)):
        because = "it is gone" if is_gone else f"{SPOT_DRAIN_SECONDS} s have passed since the notice"
        yield EnterSpotPhase(instance=instance, phase=SpotPhase.EXPIRED, because=because)
        return
    if isinstance(seen.kube, Unknown):
        return
    if _has_recovered(notice, seen, policy):
        yield OpenInterrupted(instance=instance, because="its node is Ready again")
        return
    if not is_interruption and seen.seconds_since(notice.cordoned) >= policy.stuck_seconds:
        yield OpenInterrupted(instance=instance, because=f"it could not be drained within {policy.stuck_seconds} s")
        return
    worker = seen.worker(instance)
    if worker is None or worker.node is None:
        return
    drained = EnterSpotPhase(instance=instance, phase=SpotPhase.DRAINED, because="no pods are left to evict")
    yield from _emptying_steps(notice, worker, seen, rules, drained)


def _emptying_steps(
    notice: SpotNotice, worker: Worker, seen: Seen, rules: DrainRules, then: ClusterStep
) -> Iterator[ClusterStep]:
    """Cordon the node and evict its pods; `then` when that is done."""
    view = drain_view(seen.pods_of(worker), rules)
    if worker.node is None or not worker.node.is_unschedulable:
        yield CordonInterrupted(instance=worker.id, because="it was uncordoned")
    elif worker.spot_mark != notice.mark:
        yield CordonInterrupted(instance=worker.id, because="it is not cordoned for this notice")
    elif view.to_evict:
        pods = tuple(str(pod) for pod in view.to_evict)
        yield EvictInterrupted(instance=worker.id, pods=pods, because=f"{some(len(pods), 'pod')} still on it")
    elif view.is_drained or (view.is_left_to_die and not worker.is_ready):
        yield then


def _end_steps(notice: SpotNotice, seen: Seen, rules: DrainRules) -> Iterator[ClusterStep]:
    """Terminate a drained machine. EC2 reclaims an interrupted one anyway; any other must still be empty."""
    end = TerminateInterrupted(instance=notice.instance, because="it is drained and cordoned")
    if notice.kind is SpotKind.INTERRUPTION:
        yield end
    elif not isinstance(seen.kube, Unknown):
        worker = seen.worker(notice.instance)
        if worker is None or worker.node is None:
            yield end
        else:
            yield from _emptying_steps(notice, worker, seen, rules, end)


def _replacement_steps(notice: SpotNotice, seen: Seen, policy: Policy) -> Iterator[ClusterStep]:
    instance = notice.instance
    match notice.replacement:
        case Replacement.OPEN:
            others = seen.most_expected - 1 if notice.is_leaving else seen.most_expected
            down = seen.state.down
            if down is not None and instance in down.targets and down.phase is not DownPhase.ABORTING:
                yield GiveUpReplacement(instance=instance, because="a scale-down removes it anyway")
            elif seen.is_paused:
                return  # nothing new begins during a pause; the replacement is planned after it
            elif others < policy.max_workers:
                yield PlanReplacement(instance=instance, because="a leaving worker is replaced at once")
            elif isinstance(seen.kube, Unknown):
                return  # the count may be too high, and giving up is final: wait until Kubernetes answers
            else:
                yield GiveUpReplacement(instance=instance, because=f"at maximum workers: {others}")
        case Replacement.PLANNED:
            attempt = notice.slot.attempt if notice.slot else 0
            because = "its replacement is planned but not launched"
            yield LaunchReplacement(instance=instance, attempt=attempt, because=because)
        case Replacement.LAUNCHED:
            yield from _join_steps(notice, seen, policy)
        case Replacement.GIVING_UP:
            yield GiveUpReplacement(instance=instance, because="its replacement did not join and is terminated")


def _join_steps(notice: SpotNotice, seen: Seen, policy: Policy) -> Iterator[ClusterStep]:
    launched = notice.slot.instance if notice.slot else None
    worker = seen.worker(launched) if launched else None
    if is_prepared(worker):
        yield AcceptReplacement(instance=notice.instance, because="its replacement's node is Ready")
    elif launched is not None and has_ended(seen, launched):
        because = f"its replacement ended before it joined: {reasons_words(seen, [launched])}"
        yield GiveUpReplacement(instance=notice.instance, because=because)
    elif seen.seconds_since(notice.launched) >= policy.join_timeout_seconds:
        why = f": {reasons_words(seen, [launched])}" if launched is not None else ""
        yield GiveUpReplacement(instance=notice.instance, because=f"its replacement did not join in time{why}")
