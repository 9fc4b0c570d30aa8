"""Scale-up: a durable machine that any process can carry on.

    phase        what happens                                    leads to
    (none)       BEGIN: the plan is stored, slot by slot         LAUNCHING
    LAUNCHING    each open slot: launch, then RECORD its id;     VERIFYING, when no slot is open
                 a definitive refusal BUMPs it to another try,
                 or marks it exhausted; a code that nobody       CLEANUP, when nothing was launched
                 knows is such a refusal after five minutes
    VERIFYING    a node that is Ready is accepted: its start-up  COMPLETE, when all launched are accepted
                 taint is removed under our fence                CLEANUP, at JOIN_TIMEOUT_SEC
    CLEANUP      what was not accepted is terminated             COMPLETE or FAIL

Nothing is rolled back: after BEGIN each successor only goes forward. A launch whose answer was lost is repeated with
the same token and the same order, which launches nothing twice; the attempt, and with it the token, changes only on a
refusal that is certain.
"""

import hashlib
from collections.abc import Iterator
from typing import Final

from holdfast.cluster.ledger import Transition
from holdfast.cluster.legacy import adoptable
from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import Seen, Worker
from holdfast.cluster.state import ScaleUp, Slot, UpPhase
from holdfast.cluster.steps import (
    AcceptNode,
    AdoptMachine,
    AdoptUntagged,
    CompleteScaleUp,
    EnterPhase,
    FailScaleUp,
    LaunchSlot,
    Step,
    TerminateUnjoined,
)
from holdfast.fleet.options import Option
from holdfast.kernel.backoff import Backoff
from holdfast.kernel.ids import ActionId, ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import some
from holdfast.ports.readings import Unknown
from holdfast.ports.store import Condition, Update, attr, remove_all, set_all

UNLISTED_SECONDS: Final = 300  # a machine that is not listed by then was not launched
ATTEMPTS_MOST: Final = 12  # per slot and action: then the action goes on without it
# An action does not go from place to place for longer, if EC2 answers with codes that nobody knows.
DOUBT_MOST_SECONDS: Final = 900
FAILURE_BACKOFF: Final = Backoff(first_seconds=60, factor=2, most_seconds=1800)

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


def record(up: ScaleUp, number: int, instance: InstanceId) -> Transition:
    """The machine of a slot is known. The seed's list is written whole: no id is ever in it twice."""
    instances = [*up.instances, instance]
    update = attr("scaleUpPlan")[number]["i"].set_to(instance) + attr("scaleUpInstanceIds").set_to(instances)
    return Transition(f"record {instance} in slot {number}", update, _slot_is_open(up, number))


def adopt(up: ScaleUp, instance: InstanceId) -> Transition:
    """A machine of an older autoscaler's action, which stored no plan, is known."""
    update = attr("scaleUpInstanceIds").set_to([*up.instances, instance])
    return Transition(f"record {instance}", update, _is_this(up) & attr("scaleUpPlan").is_absent())


def carry_on(action: ActionId, instances: tuple[InstanceId, ...], now: Instant) -> Transition:
    """Begin again with what an earlier action launched: its name is gone, so nothing more is launched for it."""
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
    return Transition(f"carry on scale-up {action}", update, nothing_under_way() & attr("scaleUpPlan").exists())


def bump(up: ScaleUp, number: int, option: Option) -> Transition:
    """Another try, under another token."""
    slot = Slot(option.subnet_id, option.zone, option.market, option.instance_type, up.slots[number].attempt + 1)
    update = attr("scaleUpPlan")[number].set_to(slot.stored())
    return Transition(f"move slot {number} to {option.pool}", update, _slot_is_open(up, number))


def doubt(up: ScaleUp, number: int, now: Instant) -> Transition:
    """EC2 answers with a code that nobody knows, since now. The order stays as it is."""
    slot = attr("scaleUpPlan")[number]
    update = slot["u"].set_to(now.epoch_seconds)
    return Transition(f"slot {number} is in doubt", update, _slot_is_open(up, number) & slot["u"].is_absent())


def exhaust(up: ScaleUp, number: int, error: str) -> Transition:
    update = attr("scaleUpPlan")[number]["x"].set_to(error[:200])
    return Transition(f"give up slot {number}", update, _slot_is_open(up, number))


def enter(up: ScaleUp, phase: UpPhase, now: Instant) -> Transition:
    """Since when is stored with it: machines may be launched long after the action began."""
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
    """No cooldown, as the seed says; but a back-off that grows."""
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


def launch_token(cluster: ClusterId, action: ActionId, number: int, attempt: int) -> str:
    """One token for each attempt at each slot: EC2 launches at most one machine for it."""
    return hashlib.sha256(f"{cluster}\0{action}\0{number}\0{attempt}".encode()).hexdigest()[:48]


# What comes next


def next_steps(up: ScaleUp, seen: Seen, policy: Policy) -> Iterator[Step]:
    """What carries the action on, from whatever point it was left at. None: wait, and look again."""
    if up.phase is not UpPhase.LAUNCHING and isinstance(seen.kube, Unknown):
        return  # one that joined cannot be told from one that did not
    match up.phase:
        case UpPhase.LAUNCHING:
            yield from _launching(up, seen)
        case UpPhase.VERIFYING:
            yield from _verifying(up, seen, policy)
        case UpPhase.CLEANUP:
            yield from _cleanup(up, seen)


def _launching(up: ScaleUp, seen: Seen) -> Iterator[Step]:
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
            yield EnterPhase(phase=UpPhase.VERIFYING, because="every slot has its machine, or has given up")
        else:
            yield EnterPhase(phase=UpPhase.CLEANUP, because="no slot got a machine")


def _verifying(up: ScaleUp, seen: Seen, policy: Policy) -> Iterator[Step]:
    untagged = adoptable(up, seen)
    for machine in untagged:
        yield AdoptUntagged(instance=machine.id, because=f"it was launched after {up.action} began, and not recorded")
    if untagged:
        return
    workers = {instance: seen.worker(instance) for instance in up.instances}
    waiting = [instance for instance, worker in workers.items() if not _is_in_service(worker)]
    age = seen.seconds_since(up.phase_since or up.started)
    # One that was launched and not recorded may not be listed yet, if the action is not ours.
    is_complete = bool(up.slots) or len(up.instances) >= max(1, up.requested) or age >= UNLISTED_SECONDS
    if not waiting and up.instances and is_complete:
        yield CompleteScaleUp(because=f"{some(len(up.instances), 'machine')} joined and Ready{_why_fewer(up)}")
        return
    if age >= policy.join_timeout_seconds:
        because = f"{len(waiting)} of {len(up.instances)} did not join within {policy.join_timeout_seconds} s"
        yield EnterPhase(phase=UpPhase.CLEANUP, because=because)
        return
    if waiting and all(instance in seen.gone for instance in waiting):
        yield EnterPhase(phase=UpPhase.CLEANUP, because=f"{', '.join(waiting)} ended before joining")
        return
    for instance in waiting:
        worker = workers[instance]
        if worker is not None and worker.is_ready and not worker.is_accepted:
            yield AcceptNode(instance=instance, because="its node is Ready")


def _cleanup(up: ScaleUp, seen: Seen) -> Iterator[Step]:
    workers = {instance: seen.worker(instance) for instance in up.instances}
    failed = [instance for instance, worker in workers.items() if worker is None or not worker.is_accepted]
    for instance in failed:
        if instance not in seen.gone:
            yield TerminateUnjoined(instance=instance, because="it did not join in time")
    if all(instance in seen.gone for instance in failed):
        # A node of an older autoscaler's bears no start-up taint: that it exists does not say that it was ever Ready.
        if up.instances and not failed and (up.slots or all(map(_is_in_service, workers.values()))):
            yield CompleteScaleUp(because=f"every machine that was launched joined after all{_why_fewer(up)}")
        else:
            missing = sum(1 for worker in workers.values() if not _is_in_service(worker))
            yield FailScaleUp(because=_why_failed(missing, len(up.instances), up.requested) + _why_fewer(up))


def _is_in_service(worker: Worker | None) -> bool:
    return worker is not None and worker.is_ready and worker.is_accepted


def next_option(up: ScaleUp, number: int, options: list[Option]) -> Option | None:
    """Where to try the slot next; None when there is nothing left, or enough was tried."""
    if up.slots[number].attempt + 1 >= ATTEMPTS_MOST or not options:
        return None
    return options[0]


def _why_fewer(up: ScaleUp) -> str:
    """What EC2 said last of the slots that got no machine."""
    errors = dict.fromkeys(slot.exhausted for slot in up.slots if slot.exhausted is not None)
    return f"; no other was to be had: {', '.join(errors)}" if errors else ""


def _why_failed(missing: int, launched: int, requested: int) -> str:
    if not launched:
        return f"no machine was to be had for any of {requested} slots"
    return f"{missing} of {launched} machines did not join"
