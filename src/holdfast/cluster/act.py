"""Carry out steps: side effects, and no choices. Each is repeatable, and each promise is stored before its effect.

One process at a time acts, while it holds the lease; one that lost it finds out at its next write, and stops.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.cluster import scale_down, scale_up, steps
from holdfast.cluster.decide import Choices
from holdfast.cluster.drain import drain_view
from holdfast.cluster.lease import Lease, renewed
from holdfast.cluster.ledger import LeaseLost, Ledger, Transition
from holdfast.cluster.memory import drain_pool, forget_failure, remember_failure
from holdfast.cluster.nodes import NodeHand
from holdfast.cluster.seen import ACTION_TAG, ATTEMPT_TAG, SEQUENCE_TAG, SLOT_TAG, Seen
from holdfast.cluster.state import ScaleDown, ScaleUp
from holdfast.cluster.steps import Step
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.fleet.options import Option, launch_options
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.kube import Eviction, Kube
from holdfast.ports.machines import LaunchOrder, Machine, MachineError, Machines
from holdfast.ports.store import Store, attr

# EC2 forgets a machine within an hour of its end, and may not know one within minutes of its birth.
UNKNOWN_IS_GONE_SECONDS: Final = 660


@dataclass(frozen=True, slots=True)
class Hands:
    """The ports that are acted through, and what every launch has in common."""

    store: Store
    clock: Clock
    machines: Machines
    kube: Kube
    tags: Mapping[str, str]
    template: str
    user_data: str
    choices: Choices


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
            machine = self._hands.machines.launch(self._order(up, step.slot))
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
            pool = _option(up, number).pool
            failure = remember_failure(
                self._hands.store, self.seen.cluster, pool, self.seen.failures.get(pool), self.seen.now
            )
            self.seen = replace(self.seen, failures={**self.seen.failures, pool: failure})
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

    def _order(self, up: ScaleUp, number: int) -> LaunchOrder:
        slot = up.slots[number]
        return LaunchOrder(
            token=scale_up.launch_token(self.seen.cluster, up.action, number, slot.attempt),
            template=up.template,
            instance_type=slot.instance_type,
            market=slot.market,
            subnet_id=slot.subnet_id,
            zone=slot.zone,
            tags={
                **self._hands.tags,
                ACTION_TAG: up.action,
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
    slot = up.slots[number]
    return Option(slot.instance_type, slot.zone, slot.subnet_id, slot.market)
