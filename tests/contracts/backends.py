"""The backends under contract, each opened empty with the contract's own tables.

The tables are not Holdfast's: they have an index of each projection, so that each rule of the port can be tested.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from botocore.credentials import Credentials

from holdfast.adapters.dynamodb.boto3_transport import Boto3Transport, boto3_client
from holdfast.adapters.dynamodb.calls import DynamoCalls
from holdfast.adapters.dynamodb.lean_transport import Endpoint, LeanTransport
from holdfast.adapters.dynamodb.store import DynamoStore
from holdfast.adapters.dynamodb.tables import DynamoTables
from holdfast.adapters.embedded import EmbeddedStore
from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import ApswDriver, StandardDriver, sqlite_store
from holdfast.ports.clock import Clock
from holdfast.ports.store import Index, Projection, Store, Table
from holdfast.ports.store.admin import CreateTable
from tests.clocks import StillClock

NOTES: Final = Table(
    name="notes",
    setting="NOTES_TABLE",
    purpose="with everything a table can have",
    partition="pk",
    sort="sk",
    indexes=(
        Index("by-topic", "topic", "at"),
        Index("by-owner", "owner", projection=Projection.KEYS_ONLY),
        Index("by-kind", "kind", "at", projection=Projection.INCLUDE, included=("title", "ttl")),
    ),
    ttl="ttl",
)
FLAGS: Final = Table(name="flags", setting="FLAGS_TABLE", purpose="with nothing but a key", partition="pk")

_NUMBERS = count(1)


@dataclass(frozen=True)
class Backend:
    """An open store, and its clock."""

    name: str
    store: Store
    clock: StillClock


def dynamodb_calls(url: str, clock: Clock, database: str = "contract") -> DynamoCalls:
    client = boto3_client(
        endpoint_url=url, region_name="eu-west-1", aws_access_key_id=database, aws_secret_access_key="contract"
    )
    return DynamoCalls(Boto3Transport(client), clock)


def lean_dynamodb_calls(url: str, clock: Clock) -> DynamoCalls:
    parts = urlsplit(url)
    place = Endpoint(parts.hostname or "", parts.port or 0, None, "eu-west-1")
    return DynamoCalls(LeanTransport(place, Credentials("contract", "contract")), clock)


@contextmanager
def dynamodb(calls: DynamoCalls, clock: StillClock) -> Iterator[Backend]:
    number = next(_NUMBERS)
    names = {table.setting: f"{table.name}-{number}" for table in (NOTES, FLAGS)}
    admin = DynamoTables(calls, names)
    for table in (NOTES, FLAGS):
        admin.carry_out(CreateTable(table))
    yield Backend("dynamodb", DynamoStore(calls, names), clock)
    for name in names.values():
        calls.call("DeleteTable", {"TableName": name})


@contextmanager
def embedded(name: str, clock: StillClock, directory: Path) -> Iterator[Backend]:
    """A backend that lives in this process: memory, sqlite, or sqlite-apsw."""
    store = memory_store(clock) if name == "memory" else sqlite(name, clock, directory)
    yield Backend(name, store, clock)
    store.close()


def sqlite(name: str, clock: StillClock, directory: Path) -> EmbeddedStore:
    driver = ApswDriver() if name == "sqlite-apsw" else StandardDriver()
    return sqlite_store(directory / f"{name}.db", clock, tables=(NOTES, FLAGS), driver=driver)
