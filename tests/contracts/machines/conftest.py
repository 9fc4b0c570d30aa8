"""The machines port, directly on the simulated EC2 and through boto3 over HTTP: the same suite for both."""

from collections.abc import Iterator

import pytest

from holdfast.adapters.aws.ec2 import Ec2Machines, ec2_client
from holdfast.simulator.world.world import World
from tests.contracts.machines.yard import Yard
from tests.servers.ec2_http import serving
from tests.simulation.harness import BOOTSTRAP


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
