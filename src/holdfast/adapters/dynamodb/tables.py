"""DynamoDB's tables: find them, and create or change them step by step."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from holdfast.adapters.dynamodb.calls import DynamoCalls, DynamoTransportError
from holdfast.adapters.dynamodb.wire import Wire
from holdfast.kernel.errors import StoreUnavailable
from holdfast.ports.store.admin import AddIndex, CreateTable, EnableTtl, FoundTable, RebuildIndex, Step
from holdfast.ports.store.schema import Billing, Index, Projection, Table

POLL_SECONDS: Final = 1.0
POLLS_MOST: Final = 600  # filling an index of a large table takes minutes


class DynamoTables:
    """Implements `holdfast.ports.store.admin.TableAdmin`."""

    def __init__(
        self, calls: DynamoCalls, names: Mapping[str, str] | None = None, billing: Billing = Billing.ON_DEMAND
    ) -> None:
        self._calls = calls
        self._names = dict(names or {})
        self._billing = billing

    def find(self, table: Table) -> FoundTable | None:
        description = self._description(table)
        if description is None:
            return None
        keys = {part["KeyType"]: part["AttributeName"] for part in description["KeySchema"]}
        return FoundTable(
            name=description["TableName"],
            key_attributes=_key_attributes(keys),
            indexes=tuple(map(_found_index, description.get("GlobalSecondaryIndexes", []))),
            ttl=self._ttl(table),
            stream=bool(description.get("StreamSpecification", {}).get("StreamEnabled", False)),
            point_in_time_recovery=self._point_in_time_recovery(table),
            billing=_found_billing(description),
            status=_status(description),
        )

    def carry_out(self, step: Step) -> None:
        match step:
            case CreateTable(table):
                self._unless("ResourceInUseException", "CreateTable", self._create_request(table))
                self._wait_until_active(table)
                if table.ttl is not None:
                    self._enable_ttl(table)
            case AddIndex(table, index):
                self._add_index(table, index)
            case RebuildIndex(table, index):
                self._remove_other(table, index)
                self._add_index(table, index)
            case EnableTtl(table):
                self._enable_ttl(table)

    def _add_index(self, table: Table, index: Index) -> None:
        # DynamoDB builds one index at a time, and refuses one that exists.
        description = self._wait_until_active(table)
        if index.name not in _indexes_by_name(description):
            request = self._add_index_request(table, index, _found_billing(description))
            self._calls.call("UpdateTable", request)
            self._wait_until_active(table)

    def _remove_other(self, table: Table, index: Index) -> None:
        """Remove the index of this name, unless it is as declared: an interrupted rebuild may have got that far."""
        there = _indexes_by_name(self._wait_until_active(table)).get(index.name)
        if there is not None and there != replace(index, included=tuple(sorted(index.included))):
            removed = [{"Delete": {"IndexName": index.name}}]
            self._calls.call("UpdateTable", {"TableName": self._name(table), "GlobalSecondaryIndexUpdates": removed})

    def _description(self, table: Table) -> Wire | None:
        answer = self._unless("ResourceNotFoundException", "DescribeTable", {"TableName": self._name(table)})
        return None if answer is None else dict(answer["Table"])

    def _ttl(self, table: Table) -> str | None:
        answer = self._calls.call("DescribeTimeToLive", {"TableName": self._name(table)})
        found = answer.get("TimeToLiveDescription", {})
        return str(found["AttributeName"]) if found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") else None

    def _point_in_time_recovery(self, table: Table) -> bool | None:
        # DynamoDB Local does not support this call: then nothing is compared.
        answer = self._unless(
            "UnknownOperationException", "DescribeContinuousBackups", {"TableName": self._name(table)}
        )
        if answer is None:
            return None
        found = answer["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
        return bool(found.get("PointInTimeRecoveryStatus") == "ENABLED")

    def _enable_ttl(self, table: Table) -> None:
        specification = {"Enabled": True, "AttributeName": table.ttl}
        if self._ttl(table) != table.ttl:
            self._calls.call(
                "UpdateTimeToLive", {"TableName": self._name(table), "TimeToLiveSpecification": specification}
            )

    def _wait_until_active(self, table: Table) -> Wire:
        for _ in range(POLLS_MOST):
            description = self._description(table)
            if description is not None and _is_active(description):
                return description
            self._calls.clock.sleep(POLL_SECONDS)
        raise StoreUnavailable(
            f"table {self._name(table)} is not active after {POLLS_MOST * POLL_SECONDS:.0f} s; check again later"
        )

    def _create_request(self, table: Table) -> Wire:
        names = (*table.key_attributes, *table.index_key_attributes)
        request: Wire = {
            "TableName": self._name(table),
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in names],
            "KeySchema": _key_schema(table),
            "BillingMode": "PAY_PER_REQUEST" if self._billing is Billing.ON_DEMAND else "PROVISIONED",
            **_throughput(table, self._billing),
        }
        if table.indexes:
            request["GlobalSecondaryIndexes"] = [_index_request(table, index, self._billing) for index in table.indexes]
        return request

    def _add_index_request(self, table: Table, index: Index, billing: Billing) -> Wire:
        return {
            "TableName": self._name(table),
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in index.key_attributes],
            "GlobalSecondaryIndexUpdates": [{"Create": _index_request(table, index, billing)}],
        }

    def _unless(self, code: str, operation: str, request: Wire) -> Wire | None:
        """The response, or None if DynamoDB answers with this error code: already done, or not there."""
        try:
            return self._calls.call(operation, request, expected=[code])
        except DynamoTransportError:
            return None

    def _name(self, table: Table) -> str:
        return self._names.get(table.setting, table.name)


def _index_request(table: Table, index: Index, billing: Billing) -> Wire:
    """An index has the billing mode of its table, whatever the current setting."""
    projection: Wire = {"ProjectionType": str(index.projection)}
    if index.included:
        projection["NonKeyAttributes"] = list(index.included)
    return {
        "IndexName": index.name,
        "KeySchema": _key_schema(index),
        "Projection": projection,
        **_throughput(table, billing),
    }


def _throughput(table: Table, billing: Billing) -> Wire:
    if billing is Billing.ON_DEMAND:
        return {}
    return {"ProvisionedThroughput": {"ReadCapacityUnits": table.read_units, "WriteCapacityUnits": table.write_units}}


def _key_schema(holder: Table | Index) -> list[Wire]:
    kinds = ("HASH", "RANGE")
    return [{"AttributeName": name, "KeyType": kind} for name, kind in zip(holder.key_attributes, kinds, strict=False)]


def _key_attributes(keys: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(keys[kind] for kind in ("HASH", "RANGE") if kind in keys)


def _indexes_by_name(description: Mapping[str, Any]) -> dict[str, Index]:
    found = map(_found_index, description.get("GlobalSecondaryIndexes", []))
    return {index.name: index for index in found}


def _found_index(description: Mapping[str, Any]) -> Index:
    keys = {part["KeyType"]: part["AttributeName"] for part in description["KeySchema"]}
    projection = description["Projection"]
    return Index(
        name=description["IndexName"],
        partition=keys["HASH"],
        sort=keys.get("RANGE"),
        projection=Projection(projection["ProjectionType"]),
        included=tuple(sorted(projection.get("NonKeyAttributes", ()))),
    )


def _found_billing(description: Mapping[str, Any]) -> Billing:
    mode = description.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
    return Billing.ON_DEMAND if mode == "PAY_PER_REQUEST" else Billing.PROVISIONED


def _status(description: Mapping[str, Any]) -> str:
    """ACTIVE, or the status of the table or of an index that is not active."""
    statuses = [
        f"{index['IndexName']} {index['IndexStatus']}" for index in description.get("GlobalSecondaryIndexes", [])
    ]
    busy = [status for status in statuses if not status.endswith(" ACTIVE")]
    return str(description["TableStatus"]) if description["TableStatus"] != "ACTIVE" or not busy else ", ".join(busy)


def _is_active(description: Mapping[str, Any]) -> bool:
    return _status(description) == "ACTIVE"
