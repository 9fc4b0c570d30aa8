"""Scale-up: a durable workflow that any process can resume. `MOVES` has its phases.

    LAUNCHING    launch each open slot, and record the machine's id; a definitive refusal moves the slot to another
                 pool, or exhausts it
    VERIFYING    accept each node that is Ready: remove its start-up taint under our fence
    CLEANUP      terminate what was not accepted

Nothing is rolled back: after BEGIN the workflow only moves forward. A launch whose response was lost is repeated with
the same token and the same order, so nothing launches twice. The attempt, and with it the token, changes only after a
definitive refusal.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.cluster.joining import ended_by_themselves, has_ended, is_prepared, reasons_words, why_not_in_service
from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import Seen, Worker
from holdfast.cluster.state import ScaleUp, UpPhase
from holdfast.cluster.steps import (
    AcceptNode,
    AdoptMachine,
    AdoptUntagged,
    ClusterStep,
    CompleteScaleUp,
    EnterPhase,
    FailScaleUp,
    LaunchSlot,
    TerminateUnjoined,
)
from holdfast.cluster.sweeping.legacy import adoptable
from holdfast.control.ledger import Transition
from holdfast.control.workflows import Move
from holdfast.fleet.options import Option
from holdfast.fleet.refusals import UNLISTED_SECONDS
from holdfast.fleet.slots import Slot
from holdfast.kernel.backoff import Backoff
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import some
from holdfast.ports.readings import Unknown
from holdfast.ports.store import Condition, Update, attr, remove_all, set_all

FAILURE_BACKOFF: Final = Backoff(first_seconds=60, factor=2, most_seconds=1800)

MOVES: Final = (
    Move(None, UpPhase.LAUNCHING, "the plan is stored, slot by slot"),
    Move(None, UpPhase.VERIFYING, "an older autoscaler ended a scale-up of ours; its machines are still verified"),
    Move(UpPhase.LAUNCHING, UpPhase.VERIFYING, "every slot has its machine, or is exhausted"),
    Move(UpPhase.LAUNCHING, UpPhase.CLEANUP, "no slot got a machine"),
    Move(UpPhase.VERIFYING, UpPhase.CLEANUP, "a machine did not join in time"),
    Move(UpPhase.VERIFYING, None, "complete: every machine is accepted"),
    Move(UpPhase.CLEANUP, None, "complete or failed: what was not accepted is terminated"),
)

ATTRIBUTES: Final = (
    "scaleUpActionId",
    "scaleUpStartedEpoch",
    "scaleUpRequested",
    "scaleUpInstanceIds",
    "scaleUpPhase",
    "scaleUpPhaseEpoch",
    "scaleUpPlan",
    "templateRef",
)


# Transitions


def begin(action: ActionId, slots: tuple[Slot, ...], template: str, now: Instant) -> Transition:
    update = set_all(
        {
            "scalingInProgress": True,
            "scaleUpActionId": action,
            "scaleUpStartedEpoch": now.epoch_seconds,
            "scaleUpRequested": len(slots),
            "scaleUpInstanceIds": [],
            "scaleUpPhase": str(UpPhase.LAUNCHING),
            "scaleUpPlan": [slot.stored() for slot in slots],
            "templateRef": template,
        }
    ) + attr("actionSeq").plus(1)
    return Transition(f"begin scale-up {action}", update, nothing_under_way())


def nothing_under_way() -> Condition:
    flag = attr("scalingInProgress")
    return (
        attr("scaleUpActionId").is_absent()
        & attr("scaleDownActionId").is_absent()
        & (flag.is_absent() | flag.equals(False))
    )


def record(up: ScaleUp, number: int, instance: InstanceId, workers: int) -> Transition:
    """Record the machine of a slot. The list of ids is written as a whole, so no id is in it twice.

    `workers` counts it, in the same write: if this process dies now, the next one may have nothing but the stored
    number to count by.
    """
    instances = [*up.instances, instance]
    update = attr("scaleUpPlan")[number]["i"].set_to(instance) + attr("scaleUpInstanceIds").set_to(instances)
    update += attr("workerCount").set_to(workers)
    return Transition(f"record {instance} in slot {number}", update, _slot_is_open(up, number))


def adopt(up: ScaleUp, instance: InstanceId) -> Transition:
    """Record a machine of an older autoscaler's action, which has no plan."""
    update = attr("scaleUpInstanceIds").set_to([*up.instances, instance])
    return Transition(f"record {instance}", update, _is_this(up) & attr("scaleUpPlan").is_absent())


def carry_on(action: ActionId, instances: tuple[InstanceId, ...], now: Instant) -> Transition:
    """Resume with the machines of an earlier action. Its id is gone, so nothing more is launched for it."""
    values = {
        "scalingInProgress": True,
        "scaleUpActionId": action,
        "scaleUpStartedEpoch": now.epoch_seconds,
        "scaleUpRequested": len(instances),
        "scaleUpInstanceIds": list(instances),
        "scaleUpPhase": str(UpPhase.VERIFYING),
        "scaleUpPhaseEpoch": now.epoch_seconds,
    }
    update = set_all(values) + remove_all("scaleUpPlan") + attr("actionSeq").plus(1)
    return Transition(f"resume scale-up {action}", update, nothing_under_way() & attr("scaleUpPlan").exists())


def bump(up: ScaleUp, number: int, option: Option) -> Transition:
    """The next attempt: another pool and another token."""
    slot = Slot.of(option, up.slots[number].attempt + 1)
    update = attr("scaleUpPlan")[number].set_to(slot.stored())
    return Transition(f"move slot {number} to {option.pool}", update, _slot_is_open(up, number))


def doubt(up: ScaleUp, number: int, now: Instant) -> Transition:
    """EC2 answers with an unknown error code since `now`. The order stays the same."""
    slot = attr("scaleUpPlan")[number]
    update = slot["u"].set_to(now.epoch_seconds)
    return Transition(f"slot {number} is in doubt", update, _slot_is_open(up, number) & slot["u"].is_absent())


def exhaust(up: ScaleUp, number: int, error: str) -> Transition:
    update = attr("scaleUpPlan")[number]["x"].set_to(error[:200])
    return Transition(f"give up slot {number}", update, _slot_is_open(up, number))


def enter(up: ScaleUp, phase: UpPhase, now: Instant) -> Transition:
    """Store the phase with its start time: machines may be launched long after the action began."""
    condition = _is_this(up) & attr("scaleUpPhase").equals(str(up.phase))
    if not up.slots:  # an older autoscaler stored no phase
        condition = _is_this(up) & (attr("scaleUpPhase").is_absent() | attr("scaleUpPhase").equals(str(up.phase)))
    update = set_all({"scaleUpPhase": str(phase), "scaleUpPhaseEpoch": now.epoch_seconds})
    return Transition(f"scale-up {phase}", update, condition)


def complete(up: ScaleUp, now: Instant, workers: int) -> Transition:
    """The cooldown starts here, and nowhere else."""
    update = set_all({"scalingInProgress": False, "lastScaleEpoch": now.epoch_seconds, "workerCount": workers})
    cleared = remove_all(*ATTRIBUTES, "upFailures", "upBackoffUntilEpoch")
    return Transition(f"complete scale-up {up.action}", update + cleared, _is_this(up))


def fail(up: ScaleUp, failures: int, now: Instant) -> Transition:
    """Start a growing back-off and, as in the seed, no cooldown."""
    until = now.plus(FAILURE_BACKOFF.ceiling_seconds(failures))
    update: Update = set_all(
        {"scalingInProgress": False, "upFailures": failures, "upBackoffUntilEpoch": until.epoch_seconds}
    )
    condition = _is_this(up) & attr("scaleUpPhase").equals(str(UpPhase.CLEANUP))
    return Transition(f"fail scale-up {up.action}", update + remove_all(*ATTRIBUTES), condition)


def _is_this(up: ScaleUp) -> Condition:
    return attr("scaleUpActionId").equals(up.action)


def _slot_is_open(up: ScaleUp, number: int) -> Condition:
    slot = attr("scaleUpPlan")[number]
    return (
        _is_this(up)
        & attr("scaleUpPhase").equals(str(UpPhase.LAUNCHING))
        & slot["k"].equals(up.slots[number].attempt)
        & slot["i"].is_absent()
    )


# What comes next


def next_steps(up: ScaleUp, seen: Seen, policy: Policy) -> Iterator[ClusterStep]:
    """The steps that resume the action from its current phase. None: wait and look again."""
    if up.phase is not UpPhase.LAUNCHING and isinstance(seen.kube, Unknown):
        return  # without Kubernetes it is unknown which machines have joined
    match up.phase:
        case UpPhase.LAUNCHING:
            yield from _launching(up, seen)
        case UpPhase.VERIFYING:
            yield from _verifying(up, seen, policy)
        case UpPhase.CLEANUP:
            yield from _cleanup(up, seen)


def _launching(up: ScaleUp, seen: Seen) -> Iterator[ClusterStep]:
    launched = seen.launched_by(up.action)
    for number, slot in enumerate(up.slots):
        if not slot.is_open:
            continue
        machine = launched.get((number, slot.attempt))
        if machine is not None:
            yield AdoptMachine(slot=number, instance=machine.id, because="its launch was not recorded")
        else:
            because = f"slot {number} of {up.action} has no machine yet"
            yield LaunchSlot(slot=number, attempt=slot.attempt, because=because)
    if not any(slot.is_open for slot in up.slots):
        if up.instances:
            yield EnterPhase(phase=UpPhase.VERIFYING, because="every slot has a machine or was given up")
        else:
            yield EnterPhase(phase=UpPhase.CLEANUP, because="no machine could be launched")


def _verifying(up: ScaleUp, seen: Seen, policy: Policy) -> Iterator[ClusterStep]:
    untagged = adoptable(up, seen)
    for machine in untagged:
        yield AdoptUntagged(instance=machine.id, because=f"it was launched after {up.action} began, but not recorded")
    if untagged:
        return
    workers = {instance: seen.worker(instance) for instance in up.instances}
    waiting = [instance for instance, worker in workers.items() if not _is_in_service(worker)]
    age = seen.seconds_since(up.phase_since or up.started)
    # An older autoscaler may have launched a machine that it did not record and that EC2 does not list yet.
    is_complete = bool(up.slots) or len(up.instances) >= max(1, up.requested) or age >= UNLISTED_SECONDS
    if not waiting and up.instances and is_complete:
        yield CompleteScaleUp(because=f"{some(len(up.instances), 'machine')} joined and Ready{_why_fewer(up)}")
        return
    if age >= policy.join_timeout_seconds:
        late = f"{len(waiting)} of {len(up.instances)} did not join within {policy.join_timeout_seconds} s"
        because = f"{late}: {reasons_words(seen, waiting)}" if waiting else late
        yield EnterPhase(phase=UpPhase.CLEANUP, because=because)
        return
    if waiting and all(has_ended(seen, instance) for instance in waiting):
        yield EnterPhase(phase=UpPhase.CLEANUP, because=f"ended before joining: {reasons_words(seen, waiting)}")
        return
    for instance in waiting:
        worker = workers[instance]
        if worker is not None and is_prepared(worker) and not worker.is_accepted:
            yield AcceptNode(instance=instance, because="its node is Ready")


def _cleanup(up: ScaleUp, seen: Seen) -> Iterator[ClusterStep]:
    workers = {instance: seen.worker(instance) for instance in up.instances}
    # A kept machine may have the start-up taint again. The sweeper removes it once the action is over.
    failed = [instance for instance, worker in workers.items() if worker is None or not seen.is_kept(worker)]
    for instance in failed:
        if instance not in seen.gone:
            because = f"it did not join: {why_not_in_service(seen, instance)}"
            yield TerminateUnjoined(instance=instance, because=because)
    if all(instance in seen.gone for instance in failed):
        # An older autoscaler's nodes have no start-up taint, so an accepted one may never have been Ready.
        if up.instances and not failed and (up.slots or all(map(_is_in_service, workers.values()))):
            yield CompleteScaleUp(because=f"every launched machine joined after all{_why_fewer(up)}")
        else:
            missing = [instance for instance, worker in workers.items() if not _is_in_service(worker)]
            ended = reasons_words(seen, ended_by_themselves(seen, missing))
            because = _why_failed(len(missing), len(up.instances), up.requested) + (f": {ended}" if ended else "")
            yield FailScaleUp(because=because + _why_fewer(up))


def _is_in_service(worker: Worker | None) -> bool:
    return worker is not None and worker.is_accepted and is_prepared(worker)


def _why_fewer(up: ScaleUp) -> str:
    """EC2's last errors for the slots without a machine."""
    errors = dict.fromkeys(slot.exhausted for slot in up.slots if slot.exhausted is not None)
    return f"; no more could be launched: {', '.join(errors)}" if errors else ""


def _why_failed(missing: int, launched: int, requested: int) -> str:
    if not launched:
        return f"no machine could be launched for {some(requested, 'slot')}"
    return f"{missing} of {launched} machines did not join"
