"""Carry out the steps of a replacement: a machine in the place of one that leaves."""

from typing import Any

from msgspec.structs import replace

from holdfast.cluster import scale_up, steps
from holdfast.cluster.alarms import refused_replacement
from holdfast.cluster.hands import NotDone
from holdfast.cluster.holder import Holder, is_in_table, option_of
from holdfast.cluster.spot import Notice, Replacement, read_notice
from holdfast.cluster.spot_act import notice_key
from holdfast.cluster.state import Slot
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.fleet.options import Option
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import MachineError
from holdfast.ports.store import CheckItem, Condition, Key, UpdateItem, attr, set_all
from holdfast.ports.store.tables import STATE


class ReplacementHand:
    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def plan_replacement(self, step: steps.PlanReplacement) -> None:
        """Promise a machine, in one write with the proof that the lease is ours: so the maximum is kept exactly."""
        holder = self._holder
        options = holder.options()
        if not options:
            return  # nothing is to be had now; the next tick asks again
        slot = _slot(options[0], holder.seen.notices[step.instance].first_attempt)
        values = {"replacement": str(Replacement.PLANNED), "plan": slot.stored(), "templateRef": holder.hands.template}
        update = set_all({**values, "plannedEpoch": holder.now().epoch_seconds})
        key = notice_key(step.instance)
        fence = CheckItem(STATE, Key(holder.seen.cluster), attr("fence").equals(holder.lease.fence))
        holder.hands.store.transact([fence, UpdateItem(STATE, key, update, attr("replacement").is_absent())])
        self._reread(step.instance)

    def launch_replacement(self, step: steps.LaunchReplacement) -> None:
        holder = self._holder
        notice = holder.seen.notices[step.instance]
        if notice.slot is None:
            return
        asked = holder.now()
        try:
            machine = holder.launch(notice.action, notice.slot, 0, notice.template)
        except MachineError as error:
            self._refused(notice, notice.slot, error, asked)
            return
        plan = replace(notice.slot, instance=machine.id).stored()
        # Its time to join begins now: getting it may have taken several ticks.
        self._settle(notice, Replacement.LAUNCHED, {"plan": plan, "launchedEpoch": holder.now().epoch_seconds})

    def _refused(self, notice: Notice, slot: Slot, error: MachineError, asked: Instant) -> None:
        holder, said, is_last = self._holder, ruling_on(error.code).verdict, False
        if not said.is_definitive:
            if not self._is_beyond_doubt(notice, slot, error, asked):
                raise NotDone(f"replacement of {notice.instance}: {error}") from error
            said, is_last = (
                Ec2Verdict.NOT_HERE,
                holder.seen.seconds_since(notice.planned) >= scale_up.DOUBT_MOST_SECONDS,
            )
        if not holder.may_bump(asked):
            raise NotDone(f"replacement of {notice.instance}: another may be about to launch it") from error
        if said is Ec2Verdict.NOT_HERE:
            holder.remember(option_of(slot).pool)
        options = [] if is_last or said is Ec2Verdict.OPERATOR else holder.options()
        if slot.attempt + 1 >= notice.first_attempt + scale_up.ATTEMPTS_MOST or not options:
            self._settle(notice, Replacement.GIVEN_UP, {"lastError": str(error)[:200]})
            holder.alarms.append(refused_replacement(notice.instance, error))
        else:
            self._settle(notice, Replacement.PLANNED, {"plan": _slot(options[0], slot.attempt + 1).stored()})

    def _is_beyond_doubt(self, notice: Notice, slot: Slot, error: MachineError, asked: Instant) -> bool:
        """As for a slot of a scale-up: a code that nobody knows is a refusal once it has come for long enough."""
        if is_in_table(error.code):
            return False
        if slot.doubted is None:
            self._settle(notice, Replacement.PLANNED, {"plan": replace(slot, doubted=asked).stored()})
            return False
        return self._holder.seen.seconds_since(slot.doubted) >= scale_up.UNLISTED_SECONDS

    def accept_replacement(self, step: steps.AcceptReplacement) -> None:
        holder = self._holder
        notice = holder.seen.notices[step.instance]
        worker = holder.seen.worker(notice.slot.instance) if notice.slot and notice.slot.instance else None
        if worker is not None and worker.node is not None:
            if not worker.is_accepted:
                holder.nodes.accept(worker.node)
            self._settle(notice, Replacement.ACCEPTED, {})

    def give_up_replacement(self, step: steps.GiveUpReplacement) -> None:
        holder = self._holder
        notice = holder.seen.notices[step.instance]
        launched = notice.slot.instance if notice.slot else None
        if launched is None or launched in holder.seen.gone:
            self._settle(notice, Replacement.GIVEN_UP, {})
            return
        if notice.replacement is not Replacement.GIVING_UP:
            # Before anything is done: whoever holds the lease next must not accept what we are about to terminate.
            self._settle(notice, Replacement.GIVING_UP, {})
            notice = holder.seen.notices[step.instance]
        if not holder.close_unaccepted(launched, notice.action):
            self._settle(notice, Replacement.ACCEPTED, {})  # it came into service after all, and is kept
        elif holder.terminate(launched):
            self._settle(notice, Replacement.GIVEN_UP, {})

    def _settle(self, notice: Notice, replacement: Replacement, values: dict[str, Any]) -> None:
        """One step of the replacement; it must still be where it was read, attempt and all."""
        stored: Condition = attr("replacement").equals(str(notice.replacement))
        if notice.replacement is Replacement.OPEN:
            stored = attr("replacement").is_absent()
        condition = stored & attr("plan")["k"].equals(notice.slot.attempt) if notice.slot else stored
        update = set_all({"replacement": str(replacement), **values})
        written = self._holder.hands.store.update(STATE, notice_key(notice.instance), update, condition)
        self._holder.seen = self._holder.seen.with_notice(read_notice(written.new))

    def _reread(self, instance: InstanceId) -> None:
        item = self._holder.hands.store.get(STATE, notice_key(instance))
        if item is not None:
            self._holder.seen = self._holder.seen.with_notice(read_notice(item))


def _slot(option: Option, attempt: int) -> Slot:
    return Slot(option.subnet_id, option.zone, option.market, option.instance_type, attempt)
