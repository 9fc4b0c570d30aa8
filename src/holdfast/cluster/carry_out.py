"""Carry out the steps that need the lease: side effects, and no decisions.

Each step can be repeated, and each intent is stored before its side effect. A step without a case does not type-check.
"""

from typing import assert_never

from holdfast.cluster import steps
from holdfast.cluster.lease_holder import ClusterLeaseHolder
from holdfast.cluster.scaling import scale_down_act, scale_up_act
from holdfast.cluster.spot import replacement
from holdfast.cluster.sweeping import sweep_act


def carry_out(holder: ClusterLeaseHolder, step: steps.LeasedStep) -> bool:  # noqa: C901 -- a table: one case a step
    """Carry out one step. False: the rest needs another look first. NotDone: retry this step at the next tick."""
    holder.keep_lease()
    match step:
        case steps.BeginScaleUp():
            scale_up_act.begin_scale_up(holder, step)
        case steps.CarryOnPlan():
            scale_up_act.carry_on_plan(holder, step)
        case steps.AdoptUntagged():
            scale_up_act.adopt_untagged(holder, step)
        case steps.LaunchSlot():
            scale_up_act.launch_slot(holder, step)
        case steps.AdoptMachine():
            scale_up_act.adopt_machine(holder, step)
        case steps.EnterPhase():
            scale_up_act.enter_phase(holder, step)
        case steps.AcceptNode():
            scale_up_act.accept_node(holder, step)
        case steps.TerminateUnjoined():
            return scale_up_act.terminate_unjoined(holder, step)
        case steps.CompleteScaleUp():
            scale_up_act.complete_scale_up(holder)
        case steps.FailScaleUp():
            scale_up_act.fail_scale_up(holder)
        case steps.BeginScaleDown():
            scale_down_act.begin_scale_down(holder, step)
        case steps.CarryOnCommitted():
            scale_down_act.carry_on_committed(holder, step)
        case steps.CordonTarget():
            return scale_down_act.cordon_target(holder, step)
        case steps.EvictPods():
            return scale_down_act.evict_pods(holder, step)
        case steps.CommitTarget():
            return scale_down_act.commit_target(holder, step)
        case steps.TerminateTarget():
            return scale_down_act.terminate_target(holder, step)
        case steps.MarkGone():
            scale_down_act.mark_gone(holder, step)
        case steps.AbortScaleDown():
            scale_down_act.abort_scale_down(holder)
        case steps.UncordonTarget():
            return scale_down_act.uncordon_target(holder, step)
        case steps.ClearScaleDown():
            scale_down_act.clear_scale_down(holder)
        case steps.CompleteScaleDown():
            scale_down_act.complete_scale_down(holder)
        case steps.PlanReplacement():
            replacement.plan_replacement(holder, step)
        case steps.LaunchReplacement():
            replacement.launch_replacement(holder, step)
        case steps.AcceptReplacement():
            replacement.accept_replacement(holder, step)
        case steps.GiveUpReplacement():
            replacement.give_up_replacement(holder, step)
        case steps.Repair():
            sweep_act.repair(holder, step)
        case steps.CollectMachine():
            return sweep_act.collect_machine(holder, step)
        case steps.AcceptAgain():
            sweep_act.accept_again(holder, step)
        case steps.MarkAccepted():
            sweep_act.mark_accepted(holder, step)
        case steps.RemoveNode():
            sweep_act.remove_node(holder, step)
        case steps.DeletePasswords():
            sweep_act.delete_passwords(holder, step)
        case steps.OpenLeftClosed():
            sweep_act.open_left_closed(holder, step)
        case steps.OpenLeftMarked():
            sweep_act.open_left_marked(holder, step)
        case steps.ReplaceNotReady():
            sweep_act.replace_not_ready(holder, step)
        case _:
            assert_never(step)
    return True
