"""The simulated EC2.

It behaves as EC2 does: a token belongs to one order and one machine per zone; capacity runs out per type, zone and
market; a new machine is missing from lists for some seconds; a terminated one is listed for an hour; a spot machine is
terminated two minutes after its notice.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import (
    ACCEPTED_TAG,
    LaunchOrder,
    Machine,
    MachineError,
    MachineState,
    Market,
    StateReason,
    Subnet,
)
from holdfast.simulator.world.timeline import Timeline

NOTICE_SECONDS: Final = 120
LISTED_AFTER_END_SECONDS: Final = 3600
TERMINATED_BY_CALL: Final = StateReason("Client.UserInitiatedShutdown", "User initiated shutdown")
RECLAIMED: Final = StateReason("Server.SpotInstanceTermination", "Spot instance termination")
BROKEN: Final = StateReason("Server.InternalError", "Internal error on launch")
NO_DISK_KEY: Final = StateReason("Client.InternalError", "Client error on launch")
BIRTH_SECONDS: Final = 5.0  # how long a machine that dies at birth is pending
NO_CAPACITY: Final = "InsufficientInstanceCapacity"


def ignored(*_: object) -> None:
    """The default callback. Not a lambda, which could not be stored."""


def never(_: int) -> bool:
    """The default for what can happen to a launch."""
    return False


@dataclass(frozen=True, slots=True)
class Ec2Habits:
    """How the simulated EC2 behaves, in seconds from … to …."""

    unlisted_seconds: tuple[float, float] = (0.0, 6.0)
    boot_seconds: tuple[float, float] = (15.0, 35.0)
    shutdown_seconds: tuple[float, float] = (10.0, 40.0)


class SimulatedEc2:
    """Implements `holdfast.ports.machines.Machines`."""

    def __init__(
        self, timeline: Timeline, chance: random.Random, subnets: Sequence[Subnet], habits: Ec2Habits | None = None
    ) -> None:
        self._timeline = timeline
        self._chance = chance
        self._subnets = {subnet.id: subnet for subnet in subnets}
        self._habits = habits or Ec2Habits()
        self._machines: dict[InstanceId, Machine] = {}
        self._visible_from: dict[InstanceId, Instant] = {}
        self._ended: dict[InstanceId, Instant] = {}
        self._tokens: dict[tuple[str, str], tuple[LaunchOrder, InstanceId | None]] = {}
        self._exhausted: dict[tuple[str, str, Market], str] = {}  # the code with which each is refused
        self._full: set[str] = set()  # subnets without a free address
        self._free: dict[str, list[str]] = {}  # the addresses of terminated machines, by subnet
        self.refusal = ""  # the code with which every launch is refused, if any
        self.is_refusal_true = True  # False: the machine is launched all the same
        self.dies_at_birth: Callable[[int], bool] = never  # whether the launch of this number does
        self.reuses_address: Callable[[int], bool] = never
        self._omitted: set[InstanceId] = set()
        self._before: dict[InstanceId, tuple[Machine, Instant]] = {}  # the last state but one, and until when it was
        self.lag_seconds = 0.0  # lists have machines in the state that they were in so long ago
        self.on_running: Callable[[Machine, LaunchOrder], None] = ignored
        self.on_gone: Callable[[Machine], None] = ignored
        self.on_notice: Callable[[Machine], None] = ignored
        self.launches: list[tuple[LaunchOrder, InstanceId]] = []
        self.is_tagging_refused = False  # an IAM policy without the permission
        self.is_dated = True  # False: its responses have no date

    # The port

    def launch(self, order: LaunchOrder) -> Machine:
        known = self._tokens.get((order.token, order.zone))
        if known is not None:
            return self._launched_before(order, *known)
        self._tokens[order.token, order.zone] = (order, None)
        subnet = self._subnets.get(order.subnet_id)
        if subnet is None or subnet.zone != order.zone:
            raise MachineError("InvalidSubnetID.NotFound", f"The subnet ID '{order.subnet_id}' does not exist")
        if subnet.free_addresses < 1 or subnet.id in self._full:
            raise MachineError("InsufficientFreeAddressesInSubnet", f"no free addresses in {subnet.id}")
        code = self._exhausted.get((order.instance_type, order.zone, order.market))
        if code is not None:
            raise MachineError(code, f"There is no {order.market} capacity for {order.instance_type} in {order.zone}")
        if self.refusal and self.is_refusal_true:
            raise MachineError(self.refusal, "simulated: nothing was launched")
        machine = self._launched(order, subnet)
        if self.refusal:
            raise MachineError(self.refusal, "simulated: the machine was launched all the same")
        return machine

    def terminate(self, machine: InstanceId) -> None:
        self._check_known(machine)
        self._end(machine, TERMINATED_BY_CALL)

    def mark_accepted(self, machine: InstanceId, action: str) -> None:
        self.tag(machine, {ACCEPTED_TAG: action})

    def tag(self, machine: InstanceId, tags: Mapping[str, str]) -> None:
        """CreateTags: tags that exist get the new value."""
        self._check_known(machine)
        if self.is_tagging_refused:
            raise MachineError("UnauthorizedOperation", "You are not authorized to perform: ec2:CreateTags")
        self.tag_now(machine, tags)

    def tagged(self, tags: Mapping[str, str]) -> list[Machine]:
        wanted = tags.items()
        return [machine for machine in self._listed() if wanted <= machine.tags.items()]

    def found(self, machines: Sequence[InstanceId]) -> list[Machine]:
        wanted = set(machines)
        return [machine for machine in self._listed() if machine.id in wanted]

    def subnets(self, subnets: Sequence[str]) -> list[Subnet]:
        found = [self._subnets[name] for name in subnets if name in self._subnets]
        return [replace(subnet, free_addresses=0) if subnet.id in self._full else subnet for subnet in found]

    def server_time(self) -> Instant | None:
        return self._timeline.now() if self.is_dated else None

    # Changes by the world

    def add(self, order: LaunchOrder) -> Machine:
        """Launch a machine for someone else, whatever is short for us."""
        return self._launched(order, self._subnets[order.subnet_id])

    def run_out(self, instance_type: str, zone: str, market: Market, code: str = NO_CAPACITY) -> None:
        self._exhausted[instance_type, zone, market] = code

    def restock(self, instance_type: str, zone: str, market: Market) -> None:
        self._exhausted.pop((instance_type, zone, market), None)

    def fill_subnet(self, subnet: str) -> None:
        """Let others use up its addresses."""
        self._full.add(subnet)

    def free_subnet(self, subnet: str) -> None:
        self._full.discard(subnet)

    def interrupt(self, machine: InstanceId) -> None:
        """Give notice to a spot machine, and terminate it two minutes later."""
        self.on_notice(self._machines[machine])
        self._timeline.after(NOTICE_SECONDS, partial(self._end, machine, RECLAIMED))

    def break_down(self, machine: InstanceId, reason: StateReason = BROKEN) -> None:
        """Let it fail without notice."""
        self._end(machine, reason)

    def stop(self, machine: InstanceId, reason: StateReason) -> None:
        """Let it stop: by its own operating system, or by a person."""
        self._machines[machine] = replace(self._machines[machine], state=MachineState.STOPPED, state_reason=reason)

    def omit(self, machine: InstanceId) -> None:
        """Leave a machine that was listed before out of every list. Calls that name it still find it."""
        self._omitted.add(machine)

    def list_again(self, machine: InstanceId) -> None:
        self._omitted.discard(machine)

    def hidden_launch(self, order: LaunchOrder) -> Machine | None:
        """The machine that the last launch gave although it was refused, if it did; for checkers."""
        if not self.refusal or self.is_refusal_true or not self.launches or self.launches[-1][0] is not order:
            return None
        return self._machines[self.launches[-1][1]]

    def tag_now(self, machine: InstanceId, tags: Mapping[str, str]) -> None:
        """By somebody else, whether it is listed yet or not."""
        found = self._machines[machine]
        self._machines[machine] = replace(found, tags={**found.tags, **tags})

    def zones_with_addresses(self) -> set[str]:
        return {subnet.zone for subnet in self._subnets.values() if subnet.free_addresses > 0}

    def all_machines(self) -> list[Machine]:
        """The truth, for checkers: visible or not."""
        return list(self._machines.values())

    # Inside

    def _launched_before(self, order: LaunchOrder, first: LaunchOrder, instance: InstanceId | None) -> Machine:
        if order != first:
            raise MachineError("IdempotentParameterMismatch", "the token was used with other parameters")
        if instance is None:
            raise MachineError("InsufficientInstanceCapacity", "the first attempt under this token failed")
        machine = self._machines[instance]
        if machine.is_gone:
            raise MachineError("IdempotentInstanceTerminated", f"{instance} was launched with this token, and is gone")
        return machine

    def _launched(self, order: LaunchOrder, subnet: Subnet) -> Machine:
        number = len(self._machines) + 1
        instance = InstanceId(f"i-{self._chance.getrandbits(48):012x}{number:05x}")
        machine = Machine(
            id=instance,
            state=MachineState.PENDING,
            zone=order.zone,
            subnet_id=subnet.id,
            instance_type=order.instance_type,
            market=order.market,
            private_ip=self._address(subnet, number),
            launched=self._timeline.now(),
            tags=dict(order.tags),
        )
        self._subnets[subnet.id] = replace(subnet, free_addresses=subnet.free_addresses - 1)
        self._machines[instance] = machine
        self._tokens[order.token, order.zone] = (order, instance)
        self._visible_from[instance] = self._timeline.now().plus(self._drawn(self._habits.unlisted_seconds))
        self._timeline.after(self._drawn(self._habits.boot_seconds), partial(self._boot, instance, order))
        if self.dies_at_birth(number):
            self._timeline.after(BIRTH_SECONDS, partial(self._end, instance, NO_DISK_KEY))
        self.launches.append((order, instance))
        return machine

    def _address(self, subnet: Subnet, number: int) -> str:
        free = self._free.get(subnet.id)
        if free and self.reuses_address(number):
            return free.pop()
        return f"10.{list(self._subnets).index(subnet.id)}.{number // 250}.{number % 250 + 4}"

    def _boot(self, instance: InstanceId, order: LaunchOrder) -> None:
        if self._machines[instance].state is MachineState.PENDING:
            self._enter(instance, MachineState.RUNNING)
            self.on_running(self._machines[instance], order)

    def _end(self, instance: InstanceId, reason: StateReason) -> None:
        machine = self._machines[instance]
        if machine.is_gone:
            return
        self._enter(instance, MachineState.SHUTTING_DOWN, reason)
        self.on_gone(self._machines[instance])
        self._timeline.after(self._drawn(self._habits.shutdown_seconds), partial(self._ended_now, instance))

    def _ended_now(self, instance: InstanceId) -> None:
        machine = self._machines[instance]
        subnet = self._subnets[machine.subnet_id]
        self._enter(instance, MachineState.TERMINATED)
        self._subnets[machine.subnet_id] = replace(subnet, free_addresses=subnet.free_addresses + 1)
        self._ended[instance] = self._timeline.now()
        if machine.private_ip is not None:
            self._free.setdefault(machine.subnet_id, []).append(machine.private_ip)

    def _enter(self, instance: InstanceId, state: MachineState, reason: StateReason | None = None) -> None:
        machine = self._machines[instance]
        self._before[instance] = (machine, self._timeline.now())
        self._machines[instance] = replace(machine, state=state, state_reason=reason or machine.state_reason)

    def _listed(self) -> list[Machine]:
        """What EC2 shows: eventually consistent."""
        listed = self._visible()
        if self._omitted:
            listed = [machine for machine in listed if machine.id not in self._omitted]
        if self.lag_seconds:
            since = self._timeline.now().plus(-self.lag_seconds)
            listed = [self._at(machine, since) for machine in listed]
        return listed

    def _at(self, machine: Machine, since: Instant) -> Machine:
        before = self._before.get(machine.id)
        return before[0] if before is not None and before[1] > since else machine

    def _visible(self) -> list[Machine]:
        now, visible_from, ended = self._timeline.now(), self._visible_from, self._ended
        forgotten = now.plus(-LISTED_AFTER_END_SECONDS)
        return [
            machine
            for name, machine in self._machines.items()
            if visible_from[name] <= now and not (name in ended and ended[name] < forgotten)
        ]

    def _check_known(self, instance: InstanceId) -> Machine:
        found = self._machines.get(instance)
        if found is None or not self._is_visible(instance):
            raise MachineError("InvalidInstanceID.NotFound", f"The instance ID '{instance}' does not exist")
        return found

    def _is_visible(self, instance: InstanceId) -> bool:
        now = self._timeline.now()
        ended = self._ended.get(instance)
        if ended is not None and now.seconds_since(ended) > LISTED_AFTER_END_SECONDS:
            return False
        return now >= self._visible_from[instance]

    def _drawn(self, span: tuple[float, float]) -> float:
        return self._chance.uniform(*span)
