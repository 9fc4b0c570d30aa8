"""DynamoDB: our store through boto3 and through the lean client, and boto3 with nothing around it."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from botocore.credentials import Credentials

from bench.contenders.leases import OWNER, TABLE, lease_item, take_from, until_after
from holdfast.adapters.dynamodb.boto3_transport import Boto3Transport, boto3_client
from holdfast.adapters.dynamodb.calls import DynamoCalls, DynamoTransport
from holdfast.adapters.dynamodb.lean_transport import Endpoint, LeanTransport
from holdfast.adapters.dynamodb.store import DynamoStore
from holdfast.adapters.dynamodb.tables import DynamoTables
from holdfast.adapters.dynamodb.wire import item_from_wire, wire_item
from holdfast.adapters.system_clock import SystemClock
from holdfast.ports.store import Key
from holdfast.ports.store.admin import CreateTable


def client_of(url: str, key: str = "bench") -> Any:
    """A client of DynamoDB Local, which takes any credentials; each access key is a database of its own."""
    return boto3_client(
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id=key,
        aws_secret_access_key="bench",  # noqa: S106 -- it takes any
    )


class OurDynamo:
    """Implements `bench.contenders.leases.Side`."""

    def __init__(self, transport: DynamoTransport, prefix: str = "ours") -> None:
        self._prefix = prefix
        calls = DynamoCalls(transport, SystemClock())
        self._tables = DynamoTables(calls)
        self._store = DynamoStore(calls)

    @classmethod
    def over(cls, client: Any) -> "OurDynamo":
        return cls(Boto3Transport(client))

    @classmethod
    def lean(cls, url: str) -> "OurDynamo":
        parts = urlsplit(url)
        place = Endpoint(parts.hostname or "", parts.port or 0, None, "eu-west-1")
        return cls(LeanTransport(place, Credentials("bench", "bench")), "lean")

    def create(self, names: Sequence[str]) -> None:
        if self._tables.find(TABLE) is None:
            self._tables.carry_out(CreateTable(TABLE))
        for name in names:
            self._store.put(TABLE, lease_item(f"{self._prefix}-{name}"))

    def take(self, name: str, fence: int) -> None:
        take_from(self._store, f"{self._prefix}-{name}", fence)

    def read(self, name: str) -> dict[str, Any]:
        return self._store.get(TABLE, Key(f"{self._prefix}-{name}")) or {}

    def close(self) -> None:
        self._store.close()


class BareBoto3:
    """Implements `bench.contenders.leases.Side`. What comes back is left as boto3 gives it."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def create(self, names: Sequence[str]) -> None:
        for name in names:
            self._client.put_item(TableName=TABLE.name, Item=wire_item(lease_item(f"bare-{name}")))

    def take(self, name: str, fence: int) -> None:
        self._client.update_item(
            TableName=TABLE.name,
            Key={"pk": {"S": f"bare-{name}"}},
            UpdateExpression="SET #0 = if_not_exists(#0, :0) + :1, #1 = :2",
            ConditionExpression="(#0 = :3) AND (#2 = :4)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            ExpressionAttributeNames={"#0": "fence", "#1": "lockUntilEpoch", "#2": "lockOwner"},
            ExpressionAttributeValues={
                ":0": {"N": "0"},
                ":1": {"N": "1"},
                ":2": {"N": str(until_after(fence))},
                ":3": {"N": str(fence)},
                ":4": {"S": OWNER},
            },
            ReturnValues="ALL_OLD",
        )

    def read(self, name: str) -> dict[str, Any]:
        answer = self._client.get_item(TableName=TABLE.name, Key={"pk": {"S": f"bare-{name}"}}, ConsistentRead=True)
        return item_from_wire(answer["Item"])

    def close(self) -> None:
        """The client is shared; its creator closes it."""
