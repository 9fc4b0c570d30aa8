"""Faults of the world itself: which ones a seed draws, and when."""

from functools import partial
from typing import Final

from holdfast.simulator.proof import ec2_outages
from holdfast.simulator.proof.ec2_outages import Ec2Outages, SendEvent
from holdfast.simulator.proof.effects import EffectRecorder
from holdfast.simulator.proof.faults import IN_WORLD, FaultKind, Faults
from holdfast.simulator.proof.kubernetes_outages import KubernetesOutages
from holdfast.simulator.proof.ongoing_outages import OngoingOutages
from holdfast.simulator.proof.swarm import Setup
from holdfast.simulator.world.chance import drawn
from holdfast.simulator.world.world import World

_SPAN_SECONDS: Final = 1200  # each kind is drawn once per span
# The ports whose services do not answer at all.
_PORTS: Final = {
    FaultKind.STORE_AWAY: ("store", "the store"),
    FaultKind.EC2_AWAY: ("machines", "EC2"),
    FaultKind.GITHUB_AWAY: ("github", "GitHub"),
}


class Outages:
    """Draws the outages of a seed and makes them happen.

    `send_event` sends EventBridge's events; a port in `away` does not answer.
    """

    def __init__(
        self,
        world: World,
        setup: Setup,
        faults: Faults,
        recorder: EffectRecorder,
        send_event: SendEvent,
        away: set[str],
    ) -> None:
        self._faults = faults
        self._away = away
        self._ongoing = OngoingOutages(world.timeline, recorder)
        self._ec2 = Ec2Outages(world, faults, recorder, self._ongoing, send_event)
        self._kubernetes = KubernetesOutages(world, recorder, self._ongoing)
        for position, kind in enumerate(IN_WORLD):
            for number in range(setup.safety_seconds // _SPAN_SECONDS):
                at = number * _SPAN_SECONDS + drawn(setup.seed, 5, position, number) * _SPAN_SECONDS
                world.timeline.after(at, partial(self._maybe, kind, number))
        for outage in setup.outages:
            world.timeline.after(outage.at_seconds, partial(self._begin, outage.kind, outage.size, outage.seconds))

    def heal(self) -> None:
        """End every outage that still lasts."""
        self._ongoing.heal()

    def _maybe(self, kind: FaultKind, number: int) -> None:
        size = self._faults.draw(kind, f"world-{number}", number)
        if size is not None:
            self._begin(kind, size)

    def _begin(self, kind: FaultKind, size: float, seconds: float = 0.0) -> None:
        length = seconds or 60 + size * size * 1500
        if kind in ec2_outages.KINDS:
            self._ec2.begin(kind, size, seconds)
        elif kind in _PORTS:
            port, what = _PORTS[kind]
            self._away.add(port)
            self._ongoing.begin(f"{what} is away", length, partial(self._away.discard, port))
        else:
            self._kubernetes.begin(kind, size, length)
