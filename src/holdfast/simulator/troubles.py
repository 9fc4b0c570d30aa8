"""What befalls the world itself, by the hour: capacity, spot, the API server, Prometheus, machines that never join."""

from collections.abc import Callable
from functools import partial
from typing import Final

from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import Machine, Market
from holdfast.simulator.chance import drawn
from holdfast.simulator.faults import IN_WORLD, Faults, Kind
from holdfast.simulator.swarm import Setup
from holdfast.simulator.watch import Watch
from holdfast.simulator.world import World

TYPES: Final = ("t3.medium", "t3a.medium")
_SPAN_SECONDS: Final = 1200  # each kind is drawn once in it
Tell = Callable[[str, InstanceId], None]  # a kind of event, and the machine it is about


class Troubles:
    """Draws what befalls the world, and makes it happen. `tell` sends EventBridge's events."""

    def __init__(self, world: World, setup: Setup, faults: Faults, watch: Watch, tell: Tell) -> None:
        self._world = world
        self._setup = setup
        self._faults = faults
        self._watch = watch
        self._tell = tell
        self._undo: list[Callable[[], None]] = []
        for position, kind in enumerate(IN_WORLD):
            for number in range(setup.safety_seconds // _SPAN_SECONDS):
                at = number * _SPAN_SECONDS + drawn(setup.seed, 5, position, number) * _SPAN_SECONDS
                world.timeline.after(at, partial(self._maybe, kind, number))

        for trouble in setup.troubles:
            world.timeline.after(trouble.at_seconds, partial(self._begin, trouble.kind, trouble.size, trouble.seconds))

    def heal(self) -> None:
        """Put an end to whatever lasts."""
        for undo in self._undo:
            undo()

    def _maybe(self, kind: Kind, number: int) -> None:
        size = self._faults.befalls(kind, f"world-{number}", number)
        if size is not None:
            self._begin(kind, size)

    def _begin(self, kind: Kind, size: float, seconds: float = 0.0) -> None:
        match kind:
            case Kind.ZONE_OUT:
                self._zone_out(self._zone(size), seconds or 600 + size * 5400)
            case Kind.SPOT_STORM:
                self._storm(size)
            case Kind.HINTS:
                self._hint(size)
            case Kind.MACHINE_DIES:
                self._end_one(size)
            case _:
                self._switch(kind, seconds or 60 + size * size * 1500)

    def _zone(self, size: float) -> str:
        return self._world.subnets[int(size * 997) % len(self._world.subnets)].zone

    def _zone_out(self, zone: str, seconds: float) -> None:
        pools = [(kind, zone, market) for kind in TYPES for market in Market]
        for pool in pools:
            self._world.ec2.run_out(*pool)

        def restock() -> None:
            for pool in pools:
                self._world.ec2.restock(*pool)

        self._lasts(f"{zone} has no capacity", seconds, restock)

    def _storm(self, size: float) -> None:
        """Spot takes back machines of a zone, all or some, within a minute; sometimes with a hint before."""
        zone = self._zone(size)
        for number, machine in enumerate(self._spot_machines()):
            if machine.zone == zone or size > 0.8:
                self._world.timeline.after(number * size * 20, partial(self._interrupt, machine.id))

    def _interrupt(self, machine: InstanceId) -> None:
        if self._is_alive(machine):
            self._watch.happened(f"EC2 gives notice to {machine}")
            self._world.ec2.interrupt(machine)

    def _hint(self, size: float) -> None:
        machines = self._spot_machines()
        if machines:
            chosen = machines[int(size * 991) % len(machines)].id
            self._watch.happened(f"EC2 hints that it may take {chosen}")
            self._tell("EC2 Instance Rebalance Recommendation", chosen)
            if size > 0.6:
                self._world.timeline.after(size * 500, partial(self._interrupt, chosen))

    def _end_one(self, size: float) -> None:
        alive = [machine for machine in self._world.ec2.all_machines() if not machine.is_gone]
        if alive:
            chosen = alive[int(size * 983) % len(alive)].id
            self._watch.happened(f"{chosen} breaks down")
            self._world.ec2.break_down(chosen)

    def _switch(self, kind: Kind, seconds: float) -> None:
        world, facts = self._world, self._watch.facts
        match kind:
            case Kind.API_AWAY:
                world.k3s.is_away = True
                facts.api_away_until = world.timeline.now().plus(seconds)
                self._lasts("the API server is away", seconds, lambda: setattr(world.k3s, "is_away", False))
            case Kind.PROMETHEUS_AWAY:
                world.prometheus.is_away = True
                self._lasts("Prometheus is away", seconds, lambda: setattr(world.prometheus, "is_away", False))
            case Kind.NO_JOINS:
                world.joins = False
                self._lasts("machines do not join", seconds, lambda: setattr(world, "joins", True))

    def _lasts(self, words: str, seconds: float, undo: Callable[[], None]) -> None:
        self._watch.lasts(words, seconds)
        self._undo.append(undo)
        self._world.timeline.after(seconds, undo)

    def _spot_machines(self) -> list[Machine]:
        return [m for m in self._world.ec2.all_machines() if m.market is Market.SPOT and not m.is_gone]

    def _is_alive(self, machine: InstanceId) -> bool:
        found = self._watch.facts.machines.get(machine)
        return found is not None and found.gone is None
