"""boto3 over HTTP to moto's server, which checks our requests against AWS' own models and responds like AWS."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests.servers.processes import RunningServer

REGION = "eu-west-1"


@pytest.fixture(scope="session")
def aws(moto_server: RunningServer) -> dict[str, str]:
    """Options for a client that talks to moto."""
    return {
        "endpoint_url": moto_server.url,
        "region_name": REGION,
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
    }


@pytest.fixture(scope="session")
def raw(aws: dict[str, str]) -> Iterator[Any]:
    """`raw(service)`: a plain client, to prepare things and to inspect the results."""
    clients: dict[str, Any] = {}

    def client(service: str) -> Any:
        if service not in clients:
            clients[service] = boto3.client(service, **aws)  # type: ignore[call-overload]
        return clients[service]

    yield client
    for each in clients.values():
        each.close()
