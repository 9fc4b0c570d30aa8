"""Carry out the steps of a replacement: a new machine for one that is leaving."""

from typing import Any

from msgspec.structs import replace

from holdfast.cluster import steps
from holdfast.cluster.lease_holder import ClusterLeaseHolder
from holdfast.cluster.notifications import refused_replacement
from holdfast.cluster.spot.notice import Replacement, SpotNotice, notice_key, read_notice
from holdfast.control.steps import NotDone
from holdfast.fleet.refusals import Doubt, GiveUp, NextAttempt
from holdfast.fleet.slots import Slot
from holdfast.ports.machines import MachineError
from holdfast.ports.store import CheckItem, Condition, Key, UpdateItem, attr, set_all
from holdfast.ports.store.tables import STATE


def plan_replacement(holder: ClusterLeaseHolder, step: steps.PlanReplacement) -> None:
    """Plan a machine in a transaction that also checks the fence, so that the maximum is never exceeded."""
    options = holder.options()
    if not options:
        # It was decided when there was one: a launch of this tick has failed since.
        raise NotDone(f"no pool is left for the replacement of {step.instance}")
    slot = Slot.of(options[0], holder.seen.notices[step.instance].first_attempt)
    values = {"replacement": str(Replacement.PLANNED), "plan": slot.stored(), "templateRef": holder.ports.template}
    update = set_all({**values, "plannedEpoch": holder.now().epoch_seconds})
    key = notice_key(step.instance)
    fence = CheckItem(STATE, Key(holder.seen.cluster), attr("fence").equals(holder.lease.fence))
    holder.ports.store.transact([fence, UpdateItem(STATE, key, update, attr("replacement").is_absent())])
    item = holder.ports.store.get(STATE, key)
    if item is not None:
        holder.seen = holder.seen.with_notice(read_notice(item))


def launch_replacement(holder: ClusterLeaseHolder, step: steps.LaunchReplacement) -> None:
    notice = holder.seen.notices[step.instance]
    slot, asked = notice.slot, holder.now()
    if slot is None:
        return
    try:
        machine = holder.launch(notice.action, slot, 0, notice.template)
    except MachineError as error:
        what = f"replacement of {notice.instance}"
        match holder.after_refusal(error, slot, asked, notice.planned, what, notice.action, notice.first_attempt):
            case Doubt(since=since):
                _settle(holder, notice, Replacement.PLANNED, {"plan": replace(slot, doubted=since).stored()})
                raise NotDone(f"{what}: {error}") from error
            case NextAttempt(option=option):
                _settle(holder, notice, Replacement.PLANNED, {"plan": Slot.of(option, slot.attempt + 1).stored()})
            case GiveUp():
                _settle(holder, notice, Replacement.GIVEN_UP, {"lastError": str(error)[:200]})
                holder.notifications.append(refused_replacement(notice.instance, error))
        return
    plan = replace(slot, instance=machine.id).stored()
    # The join timeout starts now: the launch may have taken several ticks.
    _settle(holder, notice, Replacement.LAUNCHED, {"plan": plan, "launchedEpoch": holder.now().epoch_seconds})
    holder.forget_failure(slot.pool)


def accept_replacement(holder: ClusterLeaseHolder, step: steps.AcceptReplacement) -> None:
    notice = holder.seen.notices[step.instance]
    worker = holder.seen.worker(notice.slot.instance) if notice.slot and notice.slot.instance else None
    if worker is not None and worker.node is not None:
        if not worker.is_accepted:
            accepted = holder.accept(worker, worker.node, notice.action)  # also changes what is seen of the machine
            # The next round must not take it for a node that registered anew, and accept it once more.
            holder.seen = holder.seen.with_node(accepted)
        _settle(holder, notice, Replacement.ACCEPTED, {})


def give_up_replacement(holder: ClusterLeaseHolder, step: steps.GiveUpReplacement) -> None:
    notice = holder.seen.notices[step.instance]
    launched = notice.slot.instance if notice.slot else None
    if launched is None or launched in holder.seen.gone:
        _settle(holder, notice, Replacement.GIVEN_UP, {})
        return
    if notice.replacement is not Replacement.GIVING_UP:
        # Stored first: the next lease holder must not accept what we are about to terminate.
        _settle(holder, notice, Replacement.GIVING_UP, {})
        notice = holder.seen.notices[step.instance]
    if not holder.condemn(launched, notice.action):
        # It came into service after all, or has pods, and is kept. The sweeper removes a start-up taint.
        _settle(holder, notice, Replacement.ACCEPTED, {})
    elif holder.terminate(launched):
        _settle(holder, notice, Replacement.GIVEN_UP, {})


def _settle(holder: ClusterLeaseHolder, notice: SpotNotice, replacement: Replacement, values: dict[str, Any]) -> None:
    """Store the replacement's next state, conditional on the state and attempt that were read."""
    stored: Condition = attr("replacement").equals(str(notice.replacement))
    if notice.replacement is Replacement.OPEN:
        stored = attr("replacement").is_absent()
    condition = stored & attr("plan")["k"].equals(notice.slot.attempt) if notice.slot else stored
    update = set_all({"replacement": str(replacement), **values})
    written = holder.ports.store.update(STATE, notice_key(notice.instance), update, condition)
    holder.seen = holder.seen.with_notice(read_notice(written.new))
