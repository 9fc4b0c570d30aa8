"""The machines port under contract, and the world behind it."""

from dataclasses import dataclass

from holdfast.ports.machines import Machines
from holdfast.simulator.world.ec2 import SimulatedEc2
from holdfast.simulator.world.world import World


@dataclass(frozen=True)
class Yard:
    """The port under contract, and the world behind it."""

    machines: Machines
    world: World

    @property
    def ec2(self) -> SimulatedEc2:
        return self.world.ec2
