"""Carry out the steps of a scale-up."""

from holdfast.cluster import scale_up, steps
from holdfast.cluster.hands import NotDone
from holdfast.cluster.holder import Holder, is_in_table, is_unreachable, option_of
from holdfast.cluster.memory import forget_failure
from holdfast.cluster.state import ScaleUp
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import MachineError


class ScaleUpHand:
    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def begin_scale_up(self, step: steps.BeginScaleUp) -> None:
        holder = self._holder
        holder.take(scale_up.begin(holder.action, step.slots, holder.hands.template, holder.now()))

    def carry_on_plan(self, step: steps.CarryOnPlan) -> None:
        holder = self._holder
        holder.take(scale_up.carry_on(holder.action, step.instances, holder.now()))

    def adopt_untagged(self, step: steps.AdoptUntagged) -> None:
        self._holder.take(scale_up.adopt(self._holder.up(), step.instance))

    def launch_slot(self, step: steps.LaunchSlot) -> None:
        holder, up = self._holder, self._holder.up()
        slot = up.slots[step.slot]
        asked = holder.now()
        try:
            machine = holder.launch(up.action, slot, step.slot, up.template)
        except MachineError as error:
            self._refused(up, step.slot, error, asked)
            return
        holder.take(scale_up.record(up, step.slot, machine.id))
        pool = option_of(slot).pool
        if pool in holder.seen.failures:
            forget_failure(holder.hands.store, holder.seen.cluster, pool)

    def _refused(self, up: ScaleUp, number: int, error: MachineError, asked: Instant) -> None:
        holder, said, is_last = self._holder, ruling_on(error.code).verdict, False
        if said in (Ec2Verdict.AGAIN, Ec2Verdict.NO_ANSWER):
            if not self._is_beyond_doubt(up, number, error, asked):
                # The same token, the same order, at the next tick.
                raise NotDone(f"slot {number}: {error}", stops=is_unreachable(error)) from error
            said, is_last = Ec2Verdict.NOT_HERE, holder.seen.seconds_since(up.started) >= scale_up.DOUBT_MOST_SECONDS
        if not holder.may_bump(asked):
            raise NotDone(f"slot {number}: who held the lease before may be about to launch it") from error
        if said is Ec2Verdict.NOT_HERE:
            holder.remember(option_of(up.slots[number]).pool)
        is_last |= said is Ec2Verdict.OPERATOR
        option = None if is_last else scale_up.next_option(up, number, holder.options())
        if option is None:
            holder.take(scale_up.exhaust(up, number, str(error)))
        else:
            holder.take(scale_up.bump(up, number, option))

    def _is_beyond_doubt(self, up: ScaleUp, number: int, error: MachineError, asked: Instant) -> bool:
        """Whether a code that nobody knows has come for so long that nothing was launched: it would be listed."""
        if is_in_table(error.code):
            return False
        doubted = up.slots[number].doubted
        if doubted is None:
            self._holder.take(scale_up.doubt(up, number, asked))
            return False
        return self._holder.seen.seconds_since(doubted) >= scale_up.UNLISTED_SECONDS

    def adopt_machine(self, step: steps.AdoptMachine) -> None:
        self._holder.take(scale_up.record(self._holder.up(), step.slot, step.instance))

    def enter_phase(self, step: steps.EnterPhase) -> None:
        self._holder.take(scale_up.enter(self._holder.up(), step.phase, self._holder.now()))

    def accept_node(self, step: steps.AcceptNode) -> None:
        worker = self._holder.seen.worker(step.instance)
        if worker is not None and worker.node is not None:
            self._holder.nodes.accept(worker.node)

    def terminate_unjoined(self, step: steps.TerminateUnjoined) -> bool:
        holder = self._holder
        return holder.close_unaccepted(step.instance, holder.up().action) and holder.terminate(step.instance)

    def complete_scale_up(self, _: steps.CompleteScaleUp) -> None:
        holder = self._holder
        holder.take(scale_up.complete(holder.up(), holder.now(), len(holder.seen.staying)))

    def fail_scale_up(self, _: steps.FailScaleUp) -> None:
        holder = self._holder
        holder.take(scale_up.fail(holder.up(), holder.seen.state.up_failures + 1, holder.now()))
