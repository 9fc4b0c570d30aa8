"""Carry out the steps of a scale-up."""

from holdfast.cluster import steps
from holdfast.cluster.lease_holder import ClusterLeaseHolder
from holdfast.cluster.scaling import scale_up
from holdfast.control.steps import NotDone
from holdfast.fleet.refusals import Doubt, GiveUp, NextAttempt
from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import MachineError


def begin_scale_up(holder: ClusterLeaseHolder, step: steps.BeginScaleUp) -> None:
    holder.take(scale_up.begin(holder.action, step.slots, holder.ports.template, holder.now()))


def carry_on_plan(holder: ClusterLeaseHolder, step: steps.CarryOnPlan) -> None:
    holder.take(scale_up.carry_on(holder.action, step.instances, holder.now()))


def adopt_untagged(holder: ClusterLeaseHolder, step: steps.AdoptUntagged) -> None:
    holder.take(scale_up.adopt(holder.up(), step.instance))


def launch_slot(holder: ClusterLeaseHolder, step: steps.LaunchSlot) -> None:
    up, number, asked = holder.up(), step.slot, holder.now()
    slot = up.slots[number]
    try:
        machine = holder.launch(up.action, slot, number, up.template)
    except MachineError as error:
        match holder.after_refusal(error, slot, asked, up.started, f"slot {number}", up.action):
            case Doubt(since=since):
                holder.take(scale_up.doubt(up, number, since))
                raise NotDone(f"slot {number}: {error}") from error
            case NextAttempt(option=option):
                holder.take(scale_up.bump(up, number, option))
            case GiveUp():
                holder.take(scale_up.exhaust(up, number, str(error)))
        return
    _record(holder, number, machine.id)
    holder.forget_failure(slot.pool)


def adopt_machine(holder: ClusterLeaseHolder, step: steps.AdoptMachine) -> None:
    _record(holder, step.slot, step.instance)


def _record(holder: ClusterLeaseHolder, number: int, instance: InstanceId) -> None:
    # One more than stored, not what is listed: the list may be incomplete.
    workers = holder.seen.state.timers.workers + 1
    holder.take(scale_up.record(holder.up(), number, instance, workers))


def enter_phase(holder: ClusterLeaseHolder, step: steps.EnterPhase) -> None:
    holder.take(scale_up.enter(holder.up(), step.phase, holder.now()))


def accept_node(holder: ClusterLeaseHolder, step: steps.AcceptNode) -> None:
    worker = holder.seen.worker(step.instance)
    if worker is not None and worker.node is not None:
        holder.accept(worker, worker.node, holder.up().action)


def terminate_unjoined(holder: ClusterLeaseHolder, step: steps.TerminateUnjoined) -> bool:
    return holder.condemn(step.instance, holder.up().action) and holder.terminate(step.instance)


def complete_scale_up(holder: ClusterLeaseHolder) -> None:
    holder.take(scale_up.complete(holder.up(), holder.now(), holder.seen.counted))


def fail_scale_up(holder: ClusterLeaseHolder) -> None:
    holder.take(scale_up.fail(holder.up(), holder.seen.state.up_failures + 1, holder.now()))
