"""The cluster's lease holder: launching, terminating and remembering, shared by all steps that need the lease."""

from typing import Final

from msgspec.structs import replace

from holdfast.cluster.drain import has_work
from holdfast.cluster.memory import forget_marks_refused, remember_marks_refused, remember_undrainable
from holdfast.cluster.nodes import FencedNodes
from holdfast.cluster.notifications import refused_terminations
from holdfast.cluster.ports import WritePorts
from holdfast.cluster.seen import (
    ACTION_TAG,
    ATTEMPT_TAG,
    CONDEMNED_ANNOTATION,
    SEQUENCE_TAG,
    SLOT_TAG,
    Seen,
    Worker,
    is_marked,
)
from holdfast.cluster.spot.notice import ACTION_PREFIX
from holdfast.cluster.state import ClusterState, ScaleDown, ScaleUp
from holdfast.control.lease import Lease
from holdfast.control.lease_holder import LeaseHolder
from holdfast.control.ledger import LeaseLost, Ledger, Transition
from holdfast.control.steps import NotDone
from holdfast.fleet.capacity_memory import forget_failure, remember_failure
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.fleet.options import Option, launch_options
from holdfast.fleet.refusals import Doubt, GiveUp, NextAttempt, Repeat, is_unreachable, judge_refusal, next_option
from holdfast.fleet.slots import Slot, launch_token
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node
from holdfast.ports.machines import ACCEPTED_TAG, LaunchOrder, Machine, MachineError

# EC2 forgets a machine within an hour of its termination, and may not list a new one for minutes.
UNKNOWN_IS_GONE_SECONDS: Final = 660


class ClusterLeaseHolder(LeaseHolder[ClusterState]):
    """Keeps `seen` up to date. `action` is the id of an action that it begins."""

    def __init__(
        self, ports: WritePorts, ledger: Ledger[ClusterState], lease: Lease, seen: Seen, action: ActionId
    ) -> None:
        super().__init__(ports.clock, ledger, lease)
        self.ports = ports
        self.action = action
        self.seen = seen
        self.nodes = FencedNodes(ports.kube, lease.fence)

    def take(self, transition: Transition) -> None:
        self.seen = replace(self.seen, state=self.write(transition))

    def raise_counters(self, transition: Transition) -> None:
        """Continue under a higher fence, because nodes have a higher one than the state."""
        self.take(transition)
        self.lease = replace(self.lease, fence=self.seen.state.fence)
        self.nodes = FencedNodes(self.ports.kube, self.lease.fence)

    # The action under way

    def up(self) -> ScaleUp:
        if self.seen.state.up is None:
            raise LeaseLost("the scale-up is no longer under way", None)
        return self.seen.state.up

    def down(self) -> ScaleDown:
        if self.seen.state.down is None:
            raise LeaseLost("the scale-down is no longer under way", None)
        return self.seen.state.down

    # Launching

    def launch(self, action: ActionId, slot: Slot, number: int, template: str) -> Machine:
        """Launch the machine of a slot; MachineError as EC2 raises it."""
        # A replacement has no sequence number: it could change between retries, and with it the order.
        order = LaunchOrder(
            token=launch_token(self.seen.cluster, action, number, slot.attempt),
            template=template,
            instance_type=slot.instance_type,
            market=slot.market,
            subnet_id=slot.subnet_id,
            zone=slot.zone,
            tags={
                **self.ports.tags,
                ACTION_TAG: action,
                SEQUENCE_TAG: str(0 if action.startswith(ACTION_PREFIX) else self.seen.state.action_seq),
                SLOT_TAG: str(number),
                ATTEMPT_TAG: str(slot.attempt),
            },
            user_data=self.ports.user_data,
        )
        where = f"{slot.instance_type} in {slot.zone}, {slot.market}"
        try:
            machine = self.ports.machines.launch(order)
        except MachineError as error:
            remedy = ruling_on(error.code).remedy
            self.report(f"no {where}: {error}{f'; {remedy}' if remedy else ''}")
            raise
        self.report(f"launched {machine.id}: {where}")
        others = tuple(known for known in self.seen.machines if known.id != machine.id)
        self.seen = replace(self.seen, machines=(*others, machine))
        return machine

    def after_refusal(
        self,
        error: MachineError,
        slot: Slot,
        asked: Instant,
        planned: Instant,
        what: str,
        action: ActionId,
        first_attempt: int = 0,
    ) -> Doubt | NextAttempt | GiveUp:
        """What to store after a failed launch; NotDone if the next tick must repeat the same order.

        `action`: the scale-up or replacement that the slot belongs to.
        """
        # The previous lease holder may still be about to use this attempt's token.
        is_token_ours = not self.lease.took_over and asked >= self.seen.state.bump_after
        refusal = judge_refusal(
            error, slot, asked=asked, now=self.seen.now, planned=planned, is_token_ours=is_token_ours
        )
        if isinstance(refusal, Repeat):
            raise NotDone(f"{what}: {refusal.why}", stops=refusal.stops) from error
        if isinstance(refusal, Doubt):
            return refusal
        if refusal.failed_pool is not None:
            self._remember_failure(refusal.failed_pool, action)
        option = None if refusal.is_final else next_option(slot, self.options(), first_attempt)
        return GiveUp() if option is None else NextAttempt(option)

    def options(self) -> list[Option]:
        seen, choices = self.seen, self.ports.choices
        return launch_options(
            choices.instance_types, seen.subnets, seen.fill, seen.failures, seen.now, spot=choices.use_spot
        )

    def _remember_failure(self, pool: str, action: ActionId) -> None:
        earlier = self.seen.failures.get(pool)
        failure = remember_failure(self.ports.store, self.seen.cluster, pool, earlier, self.seen.now, action)
        self.seen = replace(self.seen, failures={**self.seen.failures, pool: failure})

    def forget_failure(self, pool: str) -> None:
        """A launch in the pool succeeded."""
        if pool in self.seen.failures:
            forget_failure(self.ports.store, self.seen.cluster, pool)
            # Also here: the next slot that this pool refuses must be stored as a new shortage.
            others = {name: failure for name, failure in self.seen.failures.items() if name != pool}
            self.seen = replace(self.seen, failures=others)

    def remember_undrainable(self, instance: InstanceId, action: str = "") -> None:
        seen = self.seen
        known = remember_undrainable(self.ports.store, seen.cluster, seen.undrainable, instance, seen.now, action)
        self.seen = replace(seen, undrainable=known)

    # Taking into service

    def accept(self, worker: Worker, node: Node, action: ActionId) -> Node:
        """Mark the machine as accepted, then remove the start-up taint. NotDone if EC2 may accept the mark later.

        In this order: a Node that is registered anew has the taint again, and then only the mark shows that its
        machine was in service.
        """
        if not worker.is_marked:
            self.mark_accepted(worker.id, action)
        return self.nodes.accept(node)

    def mark_accepted(self, instance: InstanceId, action: ActionId) -> bool:
        """Tag the machine. False if EC2 refuses until a person acts: that must not stop scaling, and is reported."""
        try:
            self.ports.machines.mark_accepted(instance, action)
        except MachineError as error:
            ruling = ruling_on(error.code)
            if is_unreachable(error) or ruling.verdict is Ec2Verdict.UNKNOWN_MACHINE:
                raise NotDone(f"{instance} could not be tagged: {error}", stops=is_unreachable(error)) from error
            remedy = f"; {ruling.remedy}" if ruling.remedy else ""
            self.report(f"{instance} could not be tagged with {ACCEPTED_TAG}: {error}{remedy}")
            self._remember_marks_refused()
            return False
        if self.seen.marks_refused is not None:
            forget_marks_refused(self.ports.store, self.seen.cluster)
            self.seen = replace(self.seen, marks_refused=None)
        machines = tuple(_marked(known, action) if known.id == instance else known for known in self.seen.machines)
        self.seen = replace(self.seen, machines=machines, marks_written=self.seen.marks_written + 1)
        return True

    def _remember_marks_refused(self) -> None:
        seen = self.seen
        if not seen.are_marks_refused:  # once a tick, however many were refused
            failure = remember_marks_refused(self.ports.store, seen.cluster, seen.marks_refused, seen.now)
            self.seen = replace(seen, marks_refused=failure)

    # Terminating

    def condemn(self, instance: InstanceId, action: ActionId) -> bool:
        """Cordon the node of a machine that never came into service; False if it did after all, or has work.

        Everything is read anew, because lists may be old: the tag before the cordon, the start-up taint with it, and
        the pods after it. From the cordon on no process accepts the node, and no pod can be scheduled on it. A node
        that was not listed is looked up by the name that our bootstrap gives it.
        """
        worker, kube = self.seen.worker(instance), self.ports.kube
        name = worker.node.name if worker is not None and worker.node is not None else instance
        node = kube.node(name)
        is_condemned = node is not None and CONDEMNED_ANNOTATION in node.annotations
        if not is_condemned and self._is_marked_now(instance):
            return False
        if node is not None and not self.nodes.condemn(node, action):
            return False
        return not has_work(kube.pods_on(name))

    def _is_marked_now(self, instance: InstanceId) -> bool:
        try:
            machines = self.ports.machines.found([instance])
        except MachineError as error:
            raise NotDone(f"{instance} is not terminated yet: {error}", stops=is_unreachable(error)) from error
        return any(map(is_marked, machines))

    def terminate(self, instance: InstanceId) -> bool:
        """Terminate the machine; NotDone if EC2 refuses, False if EC2 does not know the machine yet."""
        try:
            self.ports.machines.terminate(instance)
        except MachineError as error:
            if ruling_on(error.code).verdict is not Ec2Verdict.UNKNOWN_MACHINE:
                self.report(f"{instance} could not be terminated: {error}")
                self.notifications.extend(refused_terminations(instance, error))
                raise NotDone(f"{instance} could not be terminated", stops=is_unreachable(error)) from error
            if self.seen.now.seconds_since(self._first_known(instance)) < UNKNOWN_IS_GONE_SECONDS:
                return False  # a new machine: EC2 may not know it yet
        self.seen = replace(self.seen, known_gone=self.seen.known_gone | {instance})
        return True

    def _first_known(self, instance: InstanceId) -> Instant:
        """The latest time at which the machine can have been launched."""
        worker, state = self.seen.worker(instance), self.seen.state
        if worker is not None:
            return worker.machine.launched
        if state.up is not None and instance in state.up.instances:
            # Not when the action began: the machine may have been launched just before the clean-up.
            return state.up.phase_since or state.up.started
        if state.down is not None and instance in state.down.targets:
            return state.down.started
        slots = {notice.slot.instance: notice.launched for notice in self.seen.notices.values() if notice.slot}
        return slots.get(instance, self.seen.now)


def _marked(machine: Machine, action: ActionId) -> Machine:
    return replace(machine, tags={**machine.tags, ACCEPTED_TAG: action})
