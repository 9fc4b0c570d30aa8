"""EC2, as far as Holdfast can tell.

It keeps EC2's promises and shows its habits: a token stands for one order and one machine per zone; capacity runs out
per type, zone and market; a machine is missing from lists for some seconds after its launch, boots, and on its way out
is listed for an hour; spot is taken back two minutes after a notice.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import LaunchOrder, Machine, MachineError, MachineState, Market, Subnet
from holdfast.simulator.timeline import Timeline

NOTICE_SECONDS: Final = 120
LISTED_AFTER_END_SECONDS: Final = 3600


def _unwatched(*_: object) -> None:
    """What happens when nobody asked to be told. Named, because a world is kept in a file, and a lambda cannot be."""


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
        self._exhausted: set[tuple[str, str, Market]] = set()
        self.on_running: Callable[[Machine, LaunchOrder], None] = _unwatched
        self.on_gone: Callable[[Machine], None] = _unwatched
        self.on_notice: Callable[[Machine], None] = _unwatched
        self.launches: list[tuple[LaunchOrder, InstanceId]] = []

    # The port

    def launch(self, order: LaunchOrder) -> Machine:
        known = self._tokens.get((order.token, order.zone))
        if known is not None:
            return self._launched_before(order, *known)
        self._tokens[order.token, order.zone] = (order, None)
        subnet = self._subnets.get(order.subnet_id)
        if subnet is None or subnet.zone != order.zone:
            raise MachineError("InvalidSubnetID.NotFound", f"The subnet ID '{order.subnet_id}' does not exist")
        if subnet.free_addresses < 1:
            raise MachineError("InsufficientFreeAddressesInSubnet", f"no free addresses in {subnet.id}")
        if (order.instance_type, order.zone, order.market) in self._exhausted:
            message = f"There is no {order.market} capacity for {order.instance_type} in {order.zone}"
            raise MachineError("InsufficientInstanceCapacity", message)
        return self._launched(order, subnet)

    def terminate(self, machine: InstanceId) -> None:
        found = self._machines.get(machine)
        if found is None or not self._is_visible(machine):
            raise MachineError("InvalidInstanceID.NotFound", f"The instance ID '{machine}' does not exist")
        self._end(machine)

    def tagged(self, tags: Mapping[str, str]) -> list[Machine]:
        wanted = tags.items()
        return [machine for machine in self._listed() if wanted <= machine.tags.items()]

    def found(self, machines: Sequence[InstanceId]) -> list[Machine]:
        wanted = set(machines)
        return [machine for machine in self._listed() if machine.id in wanted]

    def subnets(self, subnets: Sequence[str]) -> list[Subnet]:
        return [self._subnets[name] for name in subnets if name in self._subnets]

    # What the world does to it

    def run_out(self, instance_type: str, zone: str, market: Market) -> None:
        self._exhausted.add((instance_type, zone, market))

    def restock(self, instance_type: str, zone: str, market: Market) -> None:
        self._exhausted.discard((instance_type, zone, market))

    def interrupt(self, machine: InstanceId) -> None:
        """Give notice to a spot machine, and take it two minutes later."""
        self.on_notice(self._machines[machine])
        self._timeline.after(NOTICE_SECONDS, partial(self._end, machine))

    def break_down(self, machine: InstanceId) -> None:
        """It ends without notice."""
        self._end(machine)

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
            private_ip=f"10.{list(self._subnets).index(subnet.id)}.{number // 250}.{number % 250 + 4}",
            launched=self._timeline.now(),
            tags=dict(order.tags),
        )
        self._subnets[subnet.id] = replace(subnet, free_addresses=subnet.free_addresses - 1)
        self._machines[instance] = machine
        self._tokens[order.token, order.zone] = (order, instance)
        self._visible_from[instance] = self._timeline.now().plus(self._drawn(self._habits.unlisted_seconds))
        self._timeline.after(self._drawn(self._habits.boot_seconds), partial(self._boot, instance, order))
        self.launches.append((order, instance))
        return machine

    def _boot(self, instance: InstanceId, order: LaunchOrder) -> None:
        if self._machines[instance].state is MachineState.PENDING:
            self._machines[instance] = replace(self._machines[instance], state=MachineState.RUNNING)
            self.on_running(self._machines[instance], order)

    def _end(self, instance: InstanceId) -> None:
        machine = self._machines[instance]
        if machine.is_gone:
            return
        self._machines[instance] = replace(machine, state=MachineState.SHUTTING_DOWN)
        self.on_gone(self._machines[instance])
        self._timeline.after(self._drawn(self._habits.shutdown_seconds), partial(self._ended_now, instance))

    def _ended_now(self, instance: InstanceId) -> None:
        machine = self._machines[instance]
        subnet = self._subnets[machine.subnet_id]
        self._machines[instance] = replace(machine, state=MachineState.TERMINATED)
        self._subnets[machine.subnet_id] = replace(subnet, free_addresses=subnet.free_addresses + 1)
        self._ended[instance] = self._timeline.now()

    def _listed(self) -> list[Machine]:
        now, visible_from, ended = self._timeline.now(), self._visible_from, self._ended
        forgotten = now.plus(-LISTED_AFTER_END_SECONDS)
        return [
            machine
            for name, machine in self._machines.items()
            if visible_from[name] <= now and not (name in ended and ended[name] < forgotten)
        ]

    def _is_visible(self, instance: InstanceId) -> bool:
        now = self._timeline.now()
        ended = self._ended.get(instance)
        if ended is not None and now.seconds_since(ended) > LISTED_AFTER_END_SECONDS:
            return False
        return now >= self._visible_from[instance]

    def _drawn(self, span: tuple[float, float]) -> float:
        return self._chance.uniform(*span)
