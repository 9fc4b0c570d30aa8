"""Carry out steps: side effects, and no choices. Each is repeatable, and each promise is stored before its effect.

One process at a time acts, while it holds the lease; one that lost it finds out at its next write, and stops.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from holdfast.cluster import scale_down, scale_up, steps
from holdfast.cluster.drain import drain_view
from holdfast.cluster.hands import Hands
from holdfast.cluster.lease import Lease, renewed
from holdfast.cluster.ledger import LeaseLost, Ledger, Transition
from holdfast.cluster.memory import drain_pool, forget_failure, remember_failure
from holdfast.cluster.nodes import NodeHand
from holdfast.cluster.seen import ACTION_TAG, ATTEMPT_TAG, SEQUENCE_TAG, SLOT_TAG, Seen
from holdfast.cluster.spot import Notice, Replacement, read_notice
from holdfast.cluster.spot_act import notice_key
from holdfast.cluster.state import ScaleDown, ScaleUp, Slot
from holdfast.cluster.steps import Step
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.fleet.options import Option, launch_options
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Eviction
from holdfast.ports.machines import LaunchOrder, Machine, MachineError
from holdfast.ports.store import CheckItem, Condition, Key, UpdateItem, attr, set_all
from holdfast.ports.store.tables import STATE

# EC2 forgets a machine within an hour of its end, and may not know one within minutes of its birth.
UNKNOWN_IS_GONE_SECONDS: Final = 660


class Actor:
    """A process that holds the lease. `seen` follows what it does."""

    def __init__(self, hands: Hands, ledger: Ledger, lease: Lease, seen: Seen, action: ActionId) -> None:
        self._hands = hands
        self._ledger = ledger
        self._action = action  # the name of whatever this process begins
        self.lease = lease
        self.seen = seen
        self._nodes = NodeHand(hands.kube, lease.fence)

    def carry_out(self, step: Step) -> bool:
        """Do it. False: nothing more can be done before another look."""
        self._hold_on()
        doing: Callable[[Any], bool | None] = getattr(self, f"_{step.kind}")
        return doing(step) is not False

    # Any action

    def _repair(self, _: steps.Repair) -> None:
        flag = attr("scalingInProgress")
        idle = attr("scaleUpActionId").is_absent() & attr("scaleDownActionId").is_absent() & flag.equals(True)
        self._take(Transition("repair the flag", flag.set_to(False), idle))

    # Scale-up

    def _begin_scale_up(self, step: steps.BeginScaleUp) -> None:
        self._take(scale_up.begin(self._action, step.slots, self._hands.template, self._now()))

    def _launch_slot(self, step: steps.LaunchSlot) -> bool:
        up = self._up()
        try:
            machine = self._hands.machines.launch(self._order(up.action, up.slots[step.slot], step.slot, up.template))
        except MachineError as error:
            return self._launch_refused(up, step.slot, error)
        self._learn(machine)
        self._take(scale_up.record(up, step.slot, machine.id))
        pool = _option(up, step.slot).pool
        if pool in self.seen.failures:
            forget_failure(self._hands.store, self.seen.cluster, pool)
        return True

    def _launch_refused(self, up: ScaleUp, number: int, error: MachineError) -> bool:
        said = ruling_on(error.code).verdict
        if said in (Ec2Verdict.AGAIN, Ec2Verdict.NO_ANSWER):
            return False  # the same token, the same order, at the next tick
        if self.lease.took_over or self._now() < self.seen.state.bump_after:
            return False  # whoever held the lease before may still be about to use this very token
        if said is Ec2Verdict.NOT_HERE:
            self._remember(_option(up, number).pool)
        option = None if said is Ec2Verdict.OPERATOR else scale_up.next_option(up, number, self._options())
        if option is None:
            self._take(scale_up.exhaust(up, number, str(error)))
        else:
            self._take(scale_up.bump(up, number, option))
        return True

    def _adopt_machine(self, step: steps.AdoptMachine) -> None:
        self._take(scale_up.record(self._up(), step.slot, step.instance))

    def _enter_phase(self, step: steps.EnterPhase) -> None:
        self._take(scale_up.enter(self._up(), step.phase))

    def _accept_node(self, step: steps.AcceptNode) -> None:
        worker = self.seen.worker(step.instance)
        if worker is not None and worker.node is not None:
            self._nodes.accept(worker.node, self._up().action)

    def _terminate_unjoined(self, step: steps.TerminateUnjoined) -> bool:
        worker = self.seen.worker(step.instance)
        # Closed first, and only while it bears the start-up taint: one that was accepted meanwhile is kept.
        if (
            worker is not None
            and worker.node is not None
            and not self._nodes.close_unaccepted(worker.node, self._up().action)
        ):
            return False
        return self._terminate(step.instance)

    def _complete_scale_up(self, _: steps.CompleteScaleUp) -> None:
        self._take(scale_up.complete(self._up(), self._now(), len(self.seen.staying)))

    def _fail_scale_up(self, _: steps.FailScaleUp) -> None:
        self._take(scale_up.fail(self._up(), self.seen.state.up_failures + 1, self._now()))

    # Scale-down

    def _begin_scale_down(self, step: steps.BeginScaleDown) -> None:
        self._take(scale_down.begin(self._action, step.targets, self._now()))

    def _cordon_target(self, step: steps.CordonTarget) -> bool:
        worker = self.seen.worker(step.instance)
        if worker is None or worker.node is None:
            return False
        down = self._down()
        if down.drain_started is None:
            self._take(scale_down.start_drain(down, self._now()))
        self._nodes.close(worker.node, down.action)
        # Pods are listed anew before any is evicted: one may have come just before the node was closed.
        return False

    def _evict_pods(self, step: steps.EvictPods) -> bool:
        worker = self.seen.worker(step.instance)
        if worker is None or worker.node is None or not self._nodes.stamp(worker.node, self._down().action):
            return False
        view = drain_view(self._hands.kube.pods_on(worker.node.name), self._hands.choices.drain)
        if view.blocked_by is None:
            for pod in view.to_evict:
                if self._hands.kube.evict(pod) is Eviction.BLOCKED:
                    continue  # a disruption budget: the next tick asks again, until the drain's time is over
                self._hold_on()
        return False

    def _commit_target(self, step: steps.CommitTarget) -> bool:
        worker = self.seen.worker(step.instance)
        if worker is None or worker.node is None or not self._nodes.stamp(worker.node, self._down().action):
            return False
        # Looked at once more, now that the node is closed under our fence: nothing can come to it any more.
        if not drain_view(self._hands.kube.pods_on(worker.node.name), self._hands.choices.drain).is_drained:
            return False
        self._take(scale_down.commit(self._down(), step.instance))
        return True

    def _terminate_target(self, step: steps.TerminateTarget) -> bool:
        if not self._terminate(step.instance):
            return False
        self._take(scale_down.done(self._down(), step.instance))
        return True

    def _mark_gone(self, step: steps.MarkGone) -> None:
        self._take(scale_down.gone(self._down(), step.instance))

    def _abort_scale_down(self, _: steps.AbortScaleDown) -> None:
        down = self._down()
        for instance in down.open_targets[:1]:
            pool = drain_pool(instance)
            remember_failure(self._hands.store, self.seen.cluster, pool, None, self.seen.now)
        self._take(scale_down.abort(down))

    def _uncordon_target(self, step: steps.UncordonTarget) -> bool:
        worker = self.seen.worker(step.instance)
        if worker is not None and worker.node is not None:
            self._nodes.open_again(worker.node)
        return False  # cleared only after a look that shows it open

    def _clear_scale_down(self, _: steps.ClearScaleDown) -> None:
        self._take(scale_down.clear(self._down()))

    def _complete_scale_down(self, _: steps.CompleteScaleDown) -> None:
        self._take(scale_down.complete(self._down(), self._now()))

    # Replacing what spot takes

    def _plan_replacement(self, step: steps.PlanReplacement) -> bool:
        """Promise a machine, in one write with the proof that the lease is ours: so the maximum is kept exactly."""
        options = self._options()
        if not options:
            return True  # nothing is to be had now; the next tick asks again
        slot = Slot(options[0].subnet_id, options[0].zone, options[0].market, options[0].instance_type)
        values = {"replacement": str(Replacement.PLANNED), "plan": slot.stored(), "templateRef": self._hands.template}
        update = set_all({**values, "plannedEpoch": self._now().epoch_seconds})
        key = notice_key(step.instance)
        fence = CheckItem(STATE, Key(self.seen.cluster), attr("fence").equals(self.lease.fence))
        self._hands.store.transact([fence, UpdateItem(STATE, key, update, attr("replacement").is_absent())])
        self._reread(step.instance)
        return True

    def _launch_replacement(self, step: steps.LaunchReplacement) -> bool:
        notice = self.seen.notices[step.instance]
        if notice.slot is None:
            return True
        slot = notice.slot
        try:
            machine = self._hands.machines.launch(self._order(notice.action, slot, 0, self._hands.template))
        except MachineError as error:
            return self._replacement_refused(notice, slot, error)
        self._learn(machine)
        self._settle(notice, Replacement.LAUNCHED, {"plan": replace(slot, instance=machine.id).stored()})
        return True

    def _replacement_refused(self, notice: Notice, slot: Slot, error: MachineError) -> bool:
        said = ruling_on(error.code).verdict
        if not said.is_definitive or self.lease.took_over or self._now() < self.seen.state.bump_after:
            return True
        if said is Ec2Verdict.NOT_HERE:
            self._remember(_pool(slot).pool)
        options = [] if said is Ec2Verdict.OPERATOR else self._options()
        if slot.attempt + 1 >= scale_up.ATTEMPTS_MOST or not options:
            self._settle(notice, Replacement.GIVEN_UP, {"lastError": str(error)[:200]})
        else:
            best = options[0]
            again = Slot(best.subnet_id, best.zone, best.market, best.instance_type, slot.attempt + 1)
            self._settle(notice, Replacement.PLANNED, {"plan": again.stored()})
        return True

    def _accept_replacement(self, step: steps.AcceptReplacement) -> None:
        notice = self.seen.notices[step.instance]
        worker = self.seen.worker(notice.slot.instance) if notice.slot and notice.slot.instance else None
        if worker is not None and worker.node is not None:
            if not worker.is_accepted:
                self._nodes.accept(worker.node, notice.action)
            self._settle(notice, Replacement.ACCEPTED, {})

    def _give_up_replacement(self, step: steps.GiveUpReplacement) -> bool:
        notice = self.seen.notices[step.instance]
        launched = notice.slot.instance if notice.slot else None
        worker = self.seen.worker(launched) if launched else None
        if launched is not None and launched not in self.seen.gone:
            if (
                worker is not None
                and worker.node is not None
                and not self._nodes.close_unaccepted(worker.node, notice.action)
            ):
                return True
            if not self._terminate(launched):
                return True
        self._settle(notice, Replacement.GIVEN_UP, {})
        return True

    def _settle(self, notice: Notice, replacement: Replacement, values: dict[str, Any]) -> None:
        """One step of the replacement; it must still be where it was read, attempt and all."""
        stored: Condition = attr("replacement").equals(str(notice.replacement))
        if notice.replacement is Replacement.OPEN:
            stored = attr("replacement").is_absent()
        condition = stored & attr("plan")["k"].equals(notice.slot.attempt) if notice.slot else stored
        update = set_all({"replacement": str(replacement), **values})
        written = self._hands.store.update(STATE, notice_key(notice.instance), update, condition)
        self.seen = self.seen.with_notice(read_notice(written.new))

    def _reread(self, instance: InstanceId) -> None:
        item = self._hands.store.get(STATE, notice_key(instance))
        if item is not None:
            self.seen = self.seen.with_notice(read_notice(item))

    # Sweeping

    def _collect_machine(self, step: steps.CollectMachine) -> bool:
        worker = self.seen.worker(step.instance)
        if worker is None:
            return True
        if worker.node is not None and not self._nodes.close_unaccepted(worker.node, self._action):
            return True  # accepted meanwhile, and kept
        return self._terminate(step.instance)

    def _remove_node(self, step: steps.RemoveNode) -> None:
        node = self._hands.kube.node(step.node)
        if node is not None and not node.is_ready:
            self._hands.kube.delete_node(node)
            # K3s refuses a node of the same name with another password, and EC2 uses addresses, so names, again.
            self._hands.kube.delete_secret("kube-system", f"{step.node}.node-password.k3s")
        self.seen = self.seen.without_node(step.node)

    # Helpers

    def _terminate(self, instance: InstanceId) -> bool:
        try:
            self._hands.machines.terminate(instance)
        except MachineError as error:
            if ruling_on(error.code).verdict is not Ec2Verdict.UNKNOWN_MACHINE:
                return False
            if self.seen.now.seconds_since(self._first_known(instance)) < UNKNOWN_IS_GONE_SECONDS:
                return False  # too young to be forgotten: EC2 may not know it yet
        self.seen = replace(self.seen, known_gone=self.seen.known_gone | {instance})
        return True

    def _take(self, transition: Transition) -> None:
        self.seen = replace(self.seen, state=self._ledger.write(transition, self.lease.fence))

    def _hold_on(self) -> None:
        """Keep the lease while we act; stop when it ran out meanwhile, whatever the fence says."""
        now = self._now()
        if now >= self.lease.until:
            raise LeaseLost("the lease ran out while acting; the next tick goes on", None)
        if self.lease.is_renewal_due(now):
            self.lease = renewed(self._ledger, self.lease, now)

    def _order(self, action: ActionId, slot: Slot, number: int, template: str) -> LaunchOrder:
        return LaunchOrder(
            token=scale_up.launch_token(self.seen.cluster, action, number, slot.attempt),
            template=template,
            instance_type=slot.instance_type,
            market=slot.market,
            subnet_id=slot.subnet_id,
            zone=slot.zone,
            tags={
                **self._hands.tags,
                ACTION_TAG: action,
                SEQUENCE_TAG: str(self.seen.state.action_seq),
                SLOT_TAG: str(number),
                ATTEMPT_TAG: str(slot.attempt),
            },
            user_data=self._hands.user_data,
        )

    def _options(self) -> list[Option]:
        choices = self._hands.choices
        return launch_options(
            choices.instance_types,
            self.seen.subnets,
            self.seen.fill,
            self.seen.failures,
            self.seen.now,
            spot=choices.use_spot,
        )

    def _remember(self, pool: str) -> None:
        earlier = self.seen.failures.get(pool)
        failure = remember_failure(self._hands.store, self.seen.cluster, pool, earlier, self.seen.now)
        self.seen = replace(self.seen, failures={**self.seen.failures, pool: failure})

    def _learn(self, machine: Machine) -> None:
        others = tuple(m for m in self.seen.machines if m.id != machine.id)
        self.seen = replace(self.seen, machines=(*others, machine))

    def _up(self) -> ScaleUp:
        if self.seen.state.up is None:
            raise LeaseLost("the scale-up is no longer under way", None)
        return self.seen.state.up

    def _down(self) -> ScaleDown:
        if self.seen.state.down is None:
            raise LeaseLost("the scale-down is no longer under way", None)
        return self.seen.state.down

    def _first_known(self, instance: InstanceId) -> Instant:
        """Since when there has been such a machine, at the latest."""
        worker, state = self.seen.worker(instance), self.seen.state
        if worker is not None:
            return worker.machine.launched
        return state.up.started if state.up else self._down().started

    def _now(self) -> Instant:
        return self._hands.clock.now()


def _option(up: ScaleUp, number: int) -> Option:
    return _pool(up.slots[number])


def _pool(slot: Slot) -> Option:
    return Option(slot.instance_type, slot.zone, slot.subnet_id, slot.market)
