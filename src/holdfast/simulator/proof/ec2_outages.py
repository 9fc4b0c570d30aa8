"""Faults of EC2: capacity, spot, lists that are wrong for a while, and machines that do not live long."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import Machine, Market, Subnet
from holdfast.simulator.proof.effects import EffectRecorder
from holdfast.simulator.proof.faults import FaultKind, Faults
from holdfast.simulator.proof.ongoing_outages import OngoingOutages
from holdfast.simulator.world import tag_names
from holdfast.simulator.world.ec2 import NO_CAPACITY
from holdfast.simulator.world.world import World

TYPES: Final = ("t3.medium", "t3a.medium")
# Why EC2 refuses launches: codes that need an operator, and codes that are in no table.
REFUSALS: Final = (
    "UnauthorizedOperation",
    "SomethingNew",
    "InvalidAMIID.NotFound",
    "PendingVerification",
    "Oddity.New",
)
KINDS: Final = frozenset(
    {
        FaultKind.ZONE_OUT,
        FaultKind.SPOT_STORM,
        FaultKind.HINTS,
        FaultKind.MACHINE_DIES,
        FaultKind.LIST_OMITS,
        FaultKind.LIST_LAGS,
        FaultKind.POOL_OUT,
        FaultKind.SUBNET_FULL,
        FaultKind.LAUNCH_REFUSED,
        FaultKind.STRANGERS,
    }
)
# What another cluster's machines are tagged with: by another Holdfast, with numbers far above ours.
STRANGERS_TAGS: Final = {
    "Cluster": "other",
    "Role": "worker",
    tag_names.ACTION: "1700000000-900-tick",
    tag_names.SEQUENCE: "90000",
    tag_names.SLOT: "0",
    tag_names.ATTEMPT: "0",
}
_HINT: Final = "EC2 Instance Rebalance Recommendation"
_KNOWN_SECONDS: Final = 120  # every list has had a machine of this age
SendEvent = Callable[[str, InstanceId], None]  # a kind of event, and the machine it is about


class Ec2Outages:
    """Makes EC2's faults happen. `send_event` sends EventBridge's events."""

    def __init__(
        self,
        world: World,
        faults: Faults,
        recorder: EffectRecorder,
        outages: OngoingOutages,
        send_event: SendEvent,
    ) -> None:
        self._world = world
        self._ec2 = world.ec2
        self._faults = faults
        self._recorder = recorder
        self._outages = outages
        self._send_event = send_event
        self._ec2.dies_at_birth = partial(self._meets, FaultKind.DIES_AT_BIRTH)
        self._ec2.reuses_address = partial(self._meets, FaultKind.ADDRESS_REUSED)

    def begin(self, kind: FaultKind, size: float, seconds: float) -> None:
        """`size`, from 0 up to 1, selects the machine, the zone or the pool; `seconds` 0: drawn by it, too."""
        match kind:
            case FaultKind.SPOT_STORM:
                self._storm(size)
            case FaultKind.HINTS:
                self._hint(size)
            case FaultKind.MACHINE_DIES:
                self._end_one(size)
            case FaultKind.STRANGERS:
                self._strangers(size)
            case FaultKind.LIST_OMITS:
                self._omit(size, seconds or 30 + size * 240)
            case FaultKind.LIST_LAGS:
                self._lag(10 + size * 50, seconds or 300 + size * 1500)
            case _:
                self._refuse(kind, size, seconds)

    # Launches that are refused, or end badly

    def _refuse(self, kind: FaultKind, size: float, seconds: float) -> None:
        match kind:
            case FaultKind.ZONE_OUT:
                zone = self._zone(size)
                pools = [(each, zone, market) for each in TYPES for market in Market]
                self._run_out(f"{zone} has no capacity", pools, NO_CAPACITY, seconds or 600 + size * 5400)
            case FaultKind.POOL_OUT:
                self._pool_out(size, seconds or 600 + size * 5400)
            case FaultKind.SUBNET_FULL:
                self._fill_subnet(self._world.subnets[int(size * 937) % len(self._world.subnets)], seconds, size)
            case FaultKind.LAUNCH_REFUSED:
                self._refuse_launches(size, seconds or 60 + size * size * 1500)

    def _meets(self, kind: FaultKind, launch: int) -> bool:
        return self._faults.draw(kind, f"launch-{launch}", launch) is not None

    def _zone(self, size: float) -> str:
        return self._world.subnets[int(size * 997) % len(self._world.subnets)].zone

    def _pool_out(self, size: float, seconds: float) -> None:
        """A market, a type or a single pool runs out; the others have capacity."""
        zones = [subnet.zone for subnet in self._world.subnets]
        market, kind = list(Market)[int(size * 953) % 2], TYPES[int(size * 947) % 2]
        match int(size * 941) % 3:
            case 0:
                pools = [(each, zone, market) for each in TYPES for zone in zones]
                code = "MaxSpotInstanceCountExceeded" if market is Market.SPOT else "VcpuLimitExceeded"
                self._run_out(f"no {market} capacity anywhere", pools, code, seconds)
            case 1:
                pools = [(kind, zone, each) for zone in zones for each in Market]
                self._run_out(f"no {kind} anywhere", pools, "Unsupported", seconds)
            case _:
                pool = (kind, self._zone(size), market)
                self._run_out(f"no {market} {kind} in one zone", [pool], NO_CAPACITY, seconds)

    def _run_out(self, what: str, pools: Sequence[tuple[str, str, Market]], code: str, seconds: float) -> None:
        for pool in pools:
            self._ec2.run_out(*pool, code)

        def restock() -> None:
            for pool in pools:
                self._ec2.restock(*pool)

        self._outages.begin(what, seconds, restock)

    def _refuse_launches(self, size: float, seconds: float) -> None:
        """An unknown code says nothing: one time in two the machine is launched all the same."""
        ec2, code = self._ec2, REFUSALS[int(size * 929) % len(REFUSALS)]
        ec2.refusal, ec2.is_refusal_true = code, "New" not in code or int(size * 919) % 2 == 0
        self._outages.begin(f"EC2 refuses launches: {code}", seconds, lambda: setattr(ec2, "refusal", ""))

    # Machines that are taken, or fail

    def _storm(self, size: float) -> None:
        """EC2 interrupts spot machines, of one zone or of all, within a minute."""
        zone = self._zone(size)
        for number, machine in enumerate(self._spot_machines()):
            if machine.zone == zone or size > 0.8:
                self._world.timeline.after(number * size * 20, partial(self._interrupt, machine.id))

    def _interrupt(self, machine: InstanceId) -> None:
        if self._is_alive(machine):
            self._recorder.happened(f"EC2 gives notice to {machine}")
            self._ec2.interrupt(machine)

    def _hint(self, size: float) -> None:
        machines = self._spot_machines()
        if machines:
            chosen = machines[int(size * 991) % len(machines)].id
            self._recorder.happened(f"EC2 hints that it may take {chosen}")
            self._send_event(_HINT, chosen)
            if size > 0.6:
                self._world.timeline.after(size * 500, partial(self._interrupt, chosen))

    def _end_one(self, size: float) -> None:
        alive = self._alive()
        if alive:
            chosen = alive[int(size * 983) % len(alive)].id
            self._recorder.happened(f"{chosen} breaks down")
            self._ec2.break_down(chosen)

    def _strangers(self, size: float) -> None:
        """Two machines of another cluster, one after the other: a hint about the first, a notice to both."""
        facts = self._recorder.facts
        for number in range(2):
            stranger = self._world.add_stranger(self._zone(size), STRANGERS_TAGS).id
            facts.strangers.add(stranger)
            self._recorder.happened(f"another cluster launches {stranger}")
            if number == 0:
                self._world.timeline.after(60, partial(self._send_event, _HINT, stranger))
            self._world.timeline.after(90 + 200 * size * number, partial(self._take_stranger, stranger))

    def _take_stranger(self, stranger: InstanceId) -> None:
        self._recorder.happened(f"EC2 gives notice to {stranger}, another cluster's")
        self._ec2.interrupt(stranger)

    def _fill_subnet(self, subnet: Subnet, seconds: float, size: float) -> None:
        lasting = seconds or 300 + size * 3000
        facts = self._recorder.facts
        facts.full_until[subnet.zone] = facts.now().plus(lasting)
        self._ec2.fill_subnet(subnet.id)
        self._outages.begin(f"{subnet.id} is full", lasting, partial(self._ec2.free_subnet, subnet.id))

    # Lists

    def _omit(self, size: float, seconds: float) -> None:
        """Up to three machines at once. For less than five minutes: EC2 lists what it knows by then."""
        now = self._world.timeline.now()
        known = [machine for machine in self._alive() if now.seconds_since(machine.launched) > _KNOWN_SECONDS]
        self._recorder.facts.lists_are_wrong_for(seconds)
        chosen = {known[int(size * 967 + number) % len(known)].id for number in range(1 + int(size * 3)) if known}
        for machine in sorted(chosen):
            self._ec2.omit(machine)
            self._recorder.happened(f"EC2's lists omit {machine}")
            self._outages.begin("EC2's lists omit a machine", seconds, partial(self._ec2.list_again, machine))

    def _lag(self, lag_seconds: float, seconds: float) -> None:
        self._recorder.facts.lists_are_wrong_for(seconds + lag_seconds)
        self._ec2.lag_seconds = lag_seconds
        self._outages.begin("EC2's lists lag", seconds, lambda: setattr(self._ec2, "lag_seconds", 0.0))

    # Machines of our cluster

    def _alive(self) -> list[Machine]:
        strangers = self._recorder.facts.strangers
        return [each for each in self._ec2.all_machines() if not each.is_gone and each.id not in strangers]

    def _spot_machines(self) -> list[Machine]:
        return [machine for machine in self._alive() if machine.market is Market.SPOT]

    def _is_alive(self, machine: InstanceId) -> bool:
        found = self._recorder.facts.machines.get(machine)
        return found is not None and found.gone is None
