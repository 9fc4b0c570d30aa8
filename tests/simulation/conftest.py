"""The same scenarios on every store, and with EC2 behind boto3 and HTTP."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from holdfast.adapters.aws.ec2 import Ec2Machines, ec2_client
from holdfast.adapters.dynamodb.calls import DynamoCalls
from holdfast.adapters.dynamodb.store import DynamoStore
from holdfast.adapters.dynamodb.tables import DynamoTables
from holdfast.adapters.sqlite import sqlite_store
from holdfast.ports.clock import Clock
from holdfast.ports.machines import Machines
from holdfast.ports.store import Store
from holdfast.ports.store.admin import CreateTable
from holdfast.ports.store.tables import LOGS, STATE, TABLES
from holdfast.simulator.world.ec2 import SimulatedEc2
from tests.contracts import backends
from tests.servers.ec2_http import serving
from tests.servers.processes import RunningServer
from tests.simulation.harness import Stage, StageMaker

_NUMBERS = count(1)


@pytest.fixture(params=["memory", "sqlite", "boto3", pytest.param("dynamodb", marks=pytest.mark.real)])
def stage_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StageMaker]:
    """Makes stages: each with its own world, on the store or the EC2 that the parameter names."""
    with ExitStack() as opened:
        match request.param:
            case "memory":
                yield Stage
            case "sqlite":
                yield partial(Stage, open_store=lambda clock: _sqlite(clock, tmp_path, opened))
            case "boto3":
                yield partial(Stage, open_machines=lambda ec2: _boto3(ec2, opened))
            case "dynamodb":
                server: RunningServer = request.getfixturevalue("dynamodb_server")
                yield partial(Stage, open_store=lambda clock: _dynamodb(clock, server.url, opened))


def _sqlite(clock: Clock, directory: Path, opened: ExitStack) -> Store:
    store = sqlite_store(directory / f"{next(_NUMBERS)}.db", clock, tables=TABLES)
    opened.callback(store.close)
    return store


def _boto3(ec2: SimulatedEc2, opened: ExitStack) -> Machines:
    url = opened.enter_context(serving(ec2))
    client = ec2_client(endpoint_url=url, region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    machines = Ec2Machines(client)
    opened.callback(machines.close)
    return machines


def _dynamodb(clock: Clock, url: str, opened: ExitStack) -> Store:
    transport = backends.dynamodb_calls(url, clock).transport
    opened.callback(transport.close)
    calls = DynamoCalls(transport, clock)
    names = {table.setting: f"{table.name}-{next(_NUMBERS)}" for table in (STATE, LOGS)}
    for table in (STATE, LOGS):
        DynamoTables(calls, names).carry_out(CreateTable(table))
    return DynamoStore(calls, names)
