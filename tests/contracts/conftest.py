"""One suite for every backend: each test that uses `backend` or `store` runs once on each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.adapters.dynamodb.calls import DynamoCalls
from holdfast.ports.store import Consumed, Store
from tests.clocks import StillClock
from tests.contracts import backends
from tests.contracts.backends import Backend
from tests.servers.processes import RunningServer

BACKENDS = [
    "memory",
    "sqlite",
    "sqlite-apsw",
    pytest.param("dynamodb", marks=pytest.mark.real),
    pytest.param("dynamodb-lean", marks=pytest.mark.real),
]


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture(scope="session")
def calls_of(dynamodb_server: RunningServer) -> DynamoCalls:
    """One client for the session: creating one takes longer than a test."""
    return backends.dynamodb_calls(dynamodb_server.url, StillClock())


@pytest.fixture(scope="session")
def lean_calls_of(dynamodb_server: RunningServer) -> Iterator[DynamoCalls]:
    calls = backends.lean_dynamodb_calls(dynamodb_server.url, StillClock())
    yield calls
    calls.transport.close()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, clock: StillClock, tmp_path: Path) -> Iterator[Backend]:
    if request.param.startswith("dynamodb"):
        name = "calls_of" if request.param == "dynamodb" else "lean_calls_of"
        shared: DynamoCalls = request.getfixturevalue(name)
        with backends.dynamodb(DynamoCalls(shared.transport, clock), clock) as opened:
            yield opened
    else:
        with backends.embedded(request.param, clock, tmp_path) as opened:
            yield opened


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store


@pytest.fixture
def consumed() -> list[Consumed]:
    return []


@pytest.fixture
def metered(store: Store, consumed: list[Consumed]) -> Store:
    """The store, which adds what each call consumed to `consumed`."""
    return store.metered(consumed.append)
