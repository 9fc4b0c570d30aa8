"""One suite for every cluster: each test that asks for `world` runs once in each."""

from collections.abc import Iterator

import pytest

from tests.conftest import REAL
from tests.contracts.kube.simulated import SimulatedWorld
from tests.contracts.kube.worlds import RealWorld, World
from tests.servers import kube_apiserver
from tests.servers.kube_apiserver import RunningKube

WORLDS = ["simulated", pytest.param("real", marks=pytest.mark.real)]


@pytest.fixture(scope="session")
def kube_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKube]:
    """A Kubernetes API server, one for each test worker."""
    try:
        server = kube_apiserver.start(tmp_path_factory.mktemp("kubernetes"))
    except kube_apiserver.Unavailable as error:
        if REAL:
            pytest.fail(str(error))
        pytest.skip(str(error))
    yield server
    server.stop()


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
