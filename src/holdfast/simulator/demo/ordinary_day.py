"""An ordinary day in the simulated cluster: varying load, bursts, spot interruptions, a zone without capacity.

Everything is drawn from the world's own generator, and every event is a bound method or a partial, so the world can be
stored with its future.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Machine, Market
from holdfast.simulator.demo.organisation import Organisation
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import World

_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_DAY_SECONDS: Final = 86_400
# Name, pods at night, pods added at noon.
_SERVICES: Final = (("shop", 8, 22), ("search", 4, 10), ("orders", 3, 8))
_SPOT_EVERY: Final = (1.5 * _HOUR, 5 * _HOUR)
_BATCH_EVERY: Final = (2 * _HOUR, 6 * _HOUR)
_SOLD_OUT_EVERY: Final = (6 * _HOUR, 14 * _HOUR)
_BURSTS_MOST: Final = 5  # more than the largest cluster has room for


class OrdinaryDay:
    """What happens in the demo world by itself, and on request. `events` has EventBridge's events until delivered."""

    def __init__(self, world: World, instance_types: tuple[str, ...], seed: int = 1) -> None:
        self.world = world
        self.organisation = Organisation(world.timeline, seed)
        self.events: list[dict[str, Any]] = []
        self._types = instance_types
        self._bursts: set[int] = set()
        self._noticed: set[InstanceId] = set()
        self._lasts_until: dict[str, Instant] = {}  # by outage; a second request extends it
        world.ec2.on_notice = self._notice_given
        self._vary_load()
        self._later(_SPOT_EVERY, self._disturb_spot)
        self._later(_BATCH_EVERY, self._start_batch)
        self._later(_SOLD_OUT_EVERY, self._sell_out)

    # On request: each returns what was done, as text

    def interrupt_one(self) -> str:
        """Interrupt one spot machine, with two minutes of notice."""
        spot = [m for m in self._spot() if m.id not in self._noticed]
        if not spot:
            return "there is no spot machine to interrupt"
        chosen = self.world.chance.choice(spot)
        self.world.ec2.interrupt(chosen.id)
        return f"EC2 gave notice to {chosen.id} in {chosen.zone}"

    def sell_out_zone(self, zone: str, minutes: float = 60) -> str:
        """Let a zone have no capacity for a while, neither spot nor on-demand."""
        if zone not in {subnet.zone for subnet in self.world.subnets}:
            return f"there is no zone {zone}"
        self._stock(zone, is_there=False)
        self._for_minutes(f"sold out {zone}", minutes, partial(self._stock, zone, is_there=True))
        return f"{zone} has no capacity for {minutes:g} minutes"

    def burst(self, pods: int = 30, minutes: float = 30) -> str:
        """Add many pods at once, and remove them after a while. Each burst is a workload of its own."""
        if len(self._bursts) == _BURSTS_MOST:
            return f"{_BURSTS_MOST} bursts are running already; nothing was added"
        number = min(set(range(1, _BURSTS_MOST + 1)) - self._bursts)
        self._bursts.add(number)
        self.world.k3s.run(_burst(number, pods))
        self.world.timeline.after(minutes * _MINUTE, partial(self._end_burst, number))
        return f"added {pods} pods for {minutes:g} minutes"

    def break_one(self) -> str:
        """Let a machine fail without notice."""
        running = [m for m in self.world.ec2.all_machines() if not m.is_gone]
        if not running:
            return "there is no machine to break"
        chosen = self.world.chance.choice(running)
        self.world.ec2.break_down(chosen.id)
        return f"{chosen.id} in {chosen.zone} failed"

    def blind(self, minutes: float = 10) -> str:
        """Make Prometheus unavailable for a while."""
        self.world.prometheus.is_away = True
        self._for_minutes("blind", minutes, self._restore_prometheus)
        return f"Prometheus is unavailable for {minutes:g} minutes"

    def interrupt_runner(self) -> str:
        """Interrupt the spot runner of a running job."""
        return self.organisation.interrupt_one()

    def _for_minutes(self, what: str, minutes: float, end: Callable[[], None]) -> None:
        """Call `end` that much later, unless a later request for the same outage extends it."""
        until = self.world.timeline.now().plus(minutes * _MINUTE)
        self._lasts_until[what] = max(until, self._lasts_until.get(what, until))
        self.world.timeline.after(minutes * _MINUTE, partial(self._end_if_due, what, end))

    def _end_if_due(self, what: str, end: Callable[[], None]) -> None:
        if self.world.timeline.now() >= self._lasts_until.get(what, self.world.timeline.now()):
            self._lasts_until.pop(what, None)
            end()

    def _restore_prometheus(self) -> None:
        self.world.prometheus.is_away = False

    def _end_burst(self, number: int) -> None:
        self._bursts.discard(number)
        self.world.k3s.run(_burst(number, 0))

    def _spot(self) -> list[Machine]:
        return [m for m in self.world.ec2.all_machines() if m.market is Market.SPOT and not m.is_gone]

    def _stock(self, zone: str, *, is_there: bool) -> None:
        for instance_type in self._types:
            for market in Market:
                (self.world.ec2.restock if is_there else self.world.ec2.run_out)(instance_type, zone, market)

    # By itself

    def _vary_load(self) -> None:
        """Run as many pods as fits the time of day, with some noise."""
        seconds = self.world.timeline.now().epoch_seconds % _DAY_SECONDS
        day = (1 - math.cos(2 * math.pi * seconds / _DAY_SECONDS)) / 2  # 0 at midnight, 1 at noon
        for name, night, noon in _SERVICES:
            wobble = self.world.chance.uniform(-1.0, 1.0)
            pods = max(1, round(night + noon * day + wobble))
            self.world.k3s.run(Workload(name, pods, max_unavailable=2))
        self.world.timeline.after(5 * _MINUTE, self._vary_load)

    def _start_batch(self) -> None:
        pods = self.world.chance.randint(8, 25)
        self.world.k3s.run(Workload("report", pods, namespace="batch", controller="Job"))
        self.world.timeline.after(self.world.chance.uniform(20 * _MINUTE, 50 * _MINUTE), self._end_batch)

    def _end_batch(self) -> None:
        self.world.k3s.run(Workload("report", 0, namespace="batch", controller="Job"))
        self._later(_BATCH_EVERY, self._start_batch)

    def _disturb_spot(self) -> None:
        """Interrupt a spot machine, send only a hint, or both."""
        spot = self._spot()
        if spot:
            chosen = self.world.chance.choice(spot)
            is_interrupted = self.world.chance.random() < 0.7
            if self.world.chance.random() < 0.5 or not is_interrupted:
                self._send_event("EC2 Instance Rebalance Recommendation", chosen.id)
            if is_interrupted:
                self.world.timeline.after(self.world.chance.uniform(0, 600), partial(self._interrupt, chosen.id))
        self._later(_SPOT_EVERY, self._disturb_spot)

    def _interrupt(self, machine: InstanceId) -> None:
        if machine not in self._noticed and any(m.id == machine for m in self._spot()):
            self.world.ec2.interrupt(machine)

    def _notice_given(self, machine: Machine) -> None:
        self._noticed.add(machine.id)
        self._send_event("EC2 Spot Instance Interruption Warning", machine.id)

    def _send_event(self, kind: str, machine: InstanceId) -> None:
        at = self.world.timeline.now().iso_seconds()
        event = {"source": "aws.ec2", "detail-type": kind, "time": at, "detail": {"instance-id": machine}}
        self.events.append(event)

    def _sell_out(self) -> None:
        """Let one zone have no spot capacity for a while."""
        zone = self.world.chance.choice(self.world.subnets).zone
        for instance_type in self._types:
            self.world.ec2.run_out(instance_type, zone, Market.SPOT)
        self.world.timeline.after(self.world.chance.uniform(_HOUR, 3 * _HOUR), partial(self._restock, zone))

    def _restock(self, zone: str) -> None:
        if f"sold out {zone}" not in self._lasts_until:
            for instance_type in self._types:
                self.world.ec2.restock(instance_type, zone, Market.SPOT)
        self._later(_SOLD_OUT_EVERY, self._sell_out)

    def _later(self, span: tuple[float, float], event: Any) -> None:
        self.world.timeline.after(self.world.chance.uniform(*span), event)


def _burst(number: int, pods: int) -> Workload:
    return Workload(f"burst-{number}", pods, namespace="batch", controller="Job")
