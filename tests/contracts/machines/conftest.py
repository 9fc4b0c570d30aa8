"""The machines port, directly on the simulated EC2 and through boto3 over HTTP: the same suite for both."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from holdfast.adapters.ec2 import Ec2Machines, ec2_client
from holdfast.ports.machines import Machines
from holdfast.simulator.ec2 import SimulatedEc2
from holdfast.simulator.ec2_http import serving
from holdfast.simulator.world import World
from tests.simulation.harness import BOOTSTRAP


@dataclass(frozen=True)
class Yard:
    """The port under contract, and the world behind it."""

    machines: Machines
    world: World

    @property
    def ec2(self) -> SimulatedEc2:
        return self.world.ec2


@pytest.fixture(params=["simulated", "boto3"])
def yard(request: pytest.FixtureRequest) -> Iterator[Yard]:
    world = World(7, BOOTSTRAP)
    if request.param == "simulated":
        yield Yard(world.ec2, world)
        return
    with serving(world.ec2) as url:
        client = ec2_client(endpoint_url=url, region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
        machines = Ec2Machines(client)
        yield Yard(machines, world)
        machines.close()
