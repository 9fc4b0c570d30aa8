"""Whoever holds the lease, and what all its work has in common: writes under the fence, orders, endings.

One process at a time acts, while it holds the lease; one that lost it finds out at its next write, and stops.
"""

from typing import Final

from msgspec.structs import replace

from holdfast.cluster import scale_up
from holdfast.cluster.alarms import refused_terminations
from holdfast.cluster.hands import Hands, NotDone
from holdfast.cluster.lease import Lease, renewed
from holdfast.cluster.ledger import LeaseLost, Ledger, Transition
from holdfast.cluster.memory import remember_failure, remember_undrainable
from holdfast.cluster.nodes import NodeHand
from holdfast.cluster.seen import ACTION_TAG, ATTEMPT_TAG, SEQUENCE_TAG, SLOT_TAG, Seen
from holdfast.cluster.spot import ACTION_PREFIX
from holdfast.cluster.state import ScaleDown, ScaleUp, Slot
from holdfast.fleet.ec2_errors import CODES, FAMILIES, Ec2Verdict, ruling_on
from holdfast.fleet.options import Option, launch_options
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.machines import LaunchOrder, Machine, MachineError
from holdfast.ports.notify import Notice

# EC2 forgets a machine within an hour of its end, and may not know one within minutes of its birth.
UNKNOWN_IS_GONE_SECONDS: Final = 660
TOLD_CHARACTERS_MOST: Final = 500


class Holder:
    """A process that holds the lease. `seen` follows what it does; `told` is what became of it, for the log.

    `alarms` are what a person is to be told at once.
    """

    def __init__(self, hands: Hands, ledger: Ledger, lease: Lease, seen: Seen, action: ActionId) -> None:
        self.hands = hands
        self.action = action  # the name of whatever this process begins
        self.lease = lease
        self.seen = seen
        self.told: list[str] = []
        self.alarms: list[Notice] = []
        self.nodes = NodeHand(hands.kube, lease.fence)
        self._ledger = ledger

    def take(self, transition: Transition) -> None:
        self.seen = replace(self.seen, state=self._ledger.write(transition, self.lease.fence))

    def raise_counters(self, transition: Transition) -> None:
        """Go on under a higher fence: the world bears a higher one than the state did."""
        self.take(transition)
        self.lease = replace(self.lease, fence=self.seen.state.fence)
        self.nodes = NodeHand(self.hands.kube, self.lease.fence)

    def hold_on(self) -> None:
        """Keep the lease while we act; stop when it ran out meanwhile, whatever the fence says."""
        now = self.now()
        if now >= self.lease.until:
            raise LeaseLost("the lease ran out while acting; the next tick goes on", None)
        if self.lease.is_renewal_due(now):
            self.lease = renewed(self._ledger, self.lease, now)

    def tell(self, text: str) -> None:
        self.told.append(cut(text, TOLD_CHARACTERS_MOST))

    def now(self) -> Instant:
        return self.hands.clock.now()

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
        """Order the machine of a slot; MachineError as EC2 says it."""
        # A replacement has no number: it is judged by its notice, and one that changed would change the order.
        order = LaunchOrder(
            token=scale_up.launch_token(self.seen.cluster, action, number, slot.attempt),
            template=template,
            instance_type=slot.instance_type,
            market=slot.market,
            subnet_id=slot.subnet_id,
            zone=slot.zone,
            tags={
                **self.hands.tags,
                ACTION_TAG: action,
                SEQUENCE_TAG: str(0 if action.startswith(ACTION_PREFIX) else self.seen.state.action_seq),
                SLOT_TAG: str(number),
                ATTEMPT_TAG: str(slot.attempt),
            },
            user_data=self.hands.user_data,
        )
        where = f"{slot.instance_type} in {slot.zone}, {slot.market}"
        try:
            machine = self.hands.machines.launch(order)
        except MachineError as error:
            remedy = ruling_on(error.code).remedy
            self.tell(f"no {where}: {error}{f'; {remedy}' if remedy else ''}")
            raise
        self.tell(f"launched {machine.id}: {where}")
        others = tuple(known for known in self.seen.machines if known.id != machine.id)
        self.seen = replace(self.seen, machines=(*others, machine))
        return machine

    def may_bump(self, asked: Instant) -> bool:
        """Whether a slot that was refused when asked then may get another token.

        Whoever held the lease before may still be about to use this one.
        """
        return not self.lease.took_over and asked >= self.seen.state.bump_after

    def options(self) -> list[Option]:
        choices = self.hands.choices
        return launch_options(
            choices.instance_types,
            self.seen.subnets,
            self.seen.fill,
            self.seen.failures,
            self.seen.now,
            spot=choices.use_spot,
        )

    def remember(self, pool: str) -> None:
        earlier = self.seen.failures.get(pool)
        failure = remember_failure(self.hands.store, self.seen.cluster, pool, earlier, self.seen.now)
        self.seen = replace(self.seen, failures={**self.seen.failures, pool: failure})

    def remember_undrainable(self, instance: InstanceId) -> None:
        seen = self.seen
        known = remember_undrainable(self.hands.store, seen.cluster, seen.undrainable, instance, seen.now)
        self.seen = replace(seen, undrainable=known)

    # Ending

    def close_unaccepted(self, instance: InstanceId, action: ActionId) -> bool:
        """Close the node of a machine that is to go because it never came into service; False if it did, after all.

        Only while it bears the start-up taint. A node that was not listed is asked for by the name that our bootstrap
        gives it: lists may be old.
        """
        worker = self.seen.worker(instance)
        node = worker.node if worker is not None and worker.node is not None else self.hands.kube.node(instance)
        return node is None or self.nodes.close_unaccepted(node, action)

    def terminate(self, instance: InstanceId) -> bool:
        """End the machine; NotDone when EC2 refuses, False when it does not know the machine yet."""
        try:
            self.hands.machines.terminate(instance)
        except MachineError as error:
            if ruling_on(error.code).verdict is not Ec2Verdict.UNKNOWN_MACHINE:
                self.tell(f"{instance} could not be terminated: {error}")
                self.alarms.extend(refused_terminations(instance, error))
                raise NotDone(f"{instance} could not be terminated", stops=is_unreachable(error)) from error
            if self.seen.now.seconds_since(self._first_known(instance)) < UNKNOWN_IS_GONE_SECONDS:
                return False  # too young to be forgotten: EC2 may not know it yet
        self.seen = replace(self.seen, known_gone=self.seen.known_gone | {instance})
        return True

    def _first_known(self, instance: InstanceId) -> Instant:
        """Since when there has been such a machine, at the latest."""
        worker, state = self.seen.worker(instance), self.seen.state
        if worker is not None:
            return worker.machine.launched
        if state.up is not None and instance in state.up.instances:
            # Not since the action began: it may have been launched just before the clean-up.
            return state.up.phase_since or state.up.started
        if state.down is not None and instance in state.down.targets:
            return state.down.started
        slots = {notice.slot.instance: notice.launched for notice in self.seen.notices.values() if notice.slot}
        return slots.get(instance, self.seen.now)


def is_unreachable(error: MachineError) -> bool:
    """Whether EC2 throttles or does not answer, so that another call would fare no better."""
    verdict = ruling_on(error.code).verdict
    return is_in_table(error.code) and verdict in (Ec2Verdict.AGAIN, Ec2Verdict.NO_ANSWER)


def is_in_table(code: str) -> bool:
    """Whether anything is known of this code. One that is unknown is asked again, but not for ever."""
    plain = code.removeprefix("Client.").removeprefix("Server.")
    return plain in CODES or plain.startswith(tuple(FAMILIES))


def option_of(slot: Slot) -> Option:
    return Option(slot.instance_type, slot.zone, slot.subnet_id, slot.market)
