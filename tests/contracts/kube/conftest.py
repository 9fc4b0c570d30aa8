"""One suite for every cluster: each test that uses `world` runs once in each."""

from collections.abc import Iterator

import pytest

from tests.contracts.kube.simulated import SimulatedWorld
from tests.servers.kube_apiserver import RunningKube
from tests.support.kube_worlds import RealWorld, World

WORLDS = ["simulated", pytest.param("real", marks=pytest.mark.real)]


@pytest.fixture
def real_world(kube_server: RunningKube) -> Iterator[RealWorld]:
    world = RealWorld(kube_server)
    world.clear()
    yield world
    world.close()


@pytest.fixture
def simulated_world() -> SimulatedWorld:
    return SimulatedWorld()


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> World:
    found: World = request.getfixturevalue(f"{request.param}_world")
    return found
