"""The store on DynamoDB: requests, and the meaning of responses."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from holdfast.adapters.dynamodb.calls import DynamoCalls, DynamoTransportError, translated
from holdfast.adapters.dynamodb.wire import Wire, WireExpression, item_from_wire, wire_item, wire_key
from holdfast.kernel.errors import StoreUnavailable, WriteConflict
from holdfast.ports.store import (
    CheckItem,
    Condition,
    Consumed,
    DeleteItem,
    Item,
    Key,
    Meter,
    Page,
    PutItem,
    Query,
    Table,
    Update,
    UpdateItem,
    Write,
    Written,
    cursors,
)
from holdfast.ports.store.capacity import refused_cost
from holdfast.ports.store.checks import check_query, checked_keys, checked_transaction, checked_write, item_name
from holdfast.ports.store.values import copied

BATCH_KEYS_MOST: Final = 100

_CONDITION_FAILED: Final = "ConditionalCheckFailedException"
_CANCELLED: Final = "TransactionCanceledException"

_REQUEST_NAMES: Final = {PutItem: "Put", UpdateItem: "Update", DeleteItem: "Delete", CheckItem: "ConditionCheck"}


class DynamoStore:
    """Implements `holdfast.ports.store.Store`.

    `names` maps the name of a setting to the table name that replaces the declared one.
    """

    def __init__(self, calls: DynamoCalls, names: Mapping[str, str] | None = None, meter: Meter | None = None) -> None:
        self._calls = calls
        self._names = dict(names or {})
        self._meter = meter

    def metered(self, meter: Meter) -> "DynamoStore":
        return DynamoStore(self._calls, self._names, meter)

    def close(self) -> None:
        self._calls.transport.close()

    # Reads

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        request = {
            "TableName": self._name(table),
            "Key": wire_key(table, table.checked(key)),
            "ConsistentRead": consistent,
        }
        answer = self._call(table, "get", "GetItem", request)
        return self._live(table, item_from_wire(answer["Item"])) if "Item" in answer else None

    def batch_get(self, table: Table, keys: Sequence[Key], *, consistent: bool = False) -> list[Item | None]:
        wanted = checked_keys(table, keys)
        found: dict[Key, Item] = {}
        for start in range(0, len(wanted), BATCH_KEYS_MOST):
            for item in self._one_batch(table, wanted[start : start + BATCH_KEYS_MOST], consistent=consistent):
                found[table.key_of(item)] = item
        live = {key: item for key, item in found.items() if self._live(table, item)}
        return [copied(live[key]) if key in live else None for key in keys]

    def query(self, query: Query) -> Page:
        check_query(query)
        answer = self._call(query.table, "query", "Query", self._query_request(query))
        items = [item_from_wire(item) for item in answer["Items"]]
        last = answer.get("LastEvaluatedKey")
        cursor = cursors.encoded(query, item_from_wire(last)) if last else None
        return Page([item for item in items if self._live(query.table, item)], cursor)

    # Writes

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        self._write("put", "PutItem", PutItem(table, item, condition))

    def update(self, table: Table, key: Key, update: Update, condition: Condition | None = None) -> Written:
        # DynamoDB returns the item before or after, not both. Computing the new one from the old is cheap.
        answer = self._write("update", "UpdateItem", UpdateItem(table, key, update, condition))
        old = item_from_wire(answer["Attributes"]) if "Attributes" in answer else None
        return Written(old, update.applied(table.key_item(key) if old is None else old))

    def delete(self, table: Table, key: Key, condition: Condition | None = None) -> None:
        self._write("delete", "DeleteItem", DeleteItem(table, key, condition))

    def transact(self, writes: Sequence[Write]) -> None:
        checked = checked_transaction(writes)
        request = {
            # The same token on every attempt: DynamoDB does not execute a repeated transaction twice.
            "ClientRequestToken": str(uuid4()),
            "TransactItems": [{_REQUEST_NAMES[type(write)]: self._write_request(write, key)} for write, key in checked],
            **self._metering(),
        }
        try:
            answer = self._calls.call("TransactWriteItems", request, expected=[_CANCELLED])
        except DynamoTransportError as error:
            conflict = _transaction_conflict(checked, error)
            if conflict is None:
                raise translated(error, "TransactWriteItems", request) from error
            for (write, _), old, failed in zip(checked, conflict.items, conflict.failed, strict=True):
                self._record(refused_cost(write.table, "transact", old, times=2, conflict=failed))
            raise conflict from error
        tables = {self._name(write.table): write.table for write, _ in checked}
        for consumed in answer.get("ConsumedCapacity", []):
            self._record(_consumed(tables[consumed["TableName"]], "transact", consumed))

    def remove_expired(self, table: Table, *, most: int = 1000) -> int:  # noqa: ARG002 -- the port's signature
        return 0  # DynamoDB removes them itself

    # Requests

    def _call(self, table: Table, call: str, operation: str, request: Wire, *, repeatable: bool = True) -> Wire:
        request |= self._metering()
        answer = self._calls.call(operation, request, repeatable=repeatable, expected=[_CONDITION_FAILED])
        if self._meter:
            self._meter(_consumed(table, call, answer["ConsumedCapacity"]))
        return answer

    def _write(self, call: str, operation: str, wanted: Write) -> Wire:
        write, key = checked_write(wanted)
        request = self._write_request(write, key)
        repeatable = True
        if isinstance(write, UpdateItem):
            request["ReturnValues"] = "ALL_OLD"
            repeatable = write.update.is_repeatable
        try:
            return self._call(write.table, call, operation, request, repeatable=repeatable)
        except DynamoTransportError as error:
            old = item_from_wire(error.answer["Item"]) if error.answer.get("Item") else None
            self._record(refused_cost(write.table, call, old))
            raise conflict_at(write, key, old) from error

    def _write_request(self, write: Write, key: Key) -> Wire:
        words = WireExpression()
        request: Wire = {"TableName": self._name(write.table)}
        if isinstance(write, PutItem):
            request["Item"] = wire_item(write.item)
        else:
            request["Key"] = wire_key(write.table, key)
        if isinstance(write, UpdateItem):
            request["UpdateExpression"] = words.update(write.update)
        if write.condition is not None:
            request["ConditionExpression"] = words.condition(write.condition)
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        return words.into(request)

    def _query_request(self, query: Query) -> Wire:
        holder = query.table if query.index is None else query.table.index(query.index)
        words = WireExpression()
        sort = (holder.sort, query.sort) if holder.sort is not None and query.sort is not None else None
        request: Wire = {
            "TableName": self._name(query.table),
            "KeyConditionExpression": words.key_condition((holder.partition, query.partition), sort),
            "ScanIndexForward": not query.reverse,
            "ConsistentRead": query.consistent,
        }
        after = cursors.decoded(query)
        if after is not None:
            request["ExclusiveStartKey"] = wire_item(after)
        if query.index is not None:
            request["IndexName"] = query.index
        if query.limit is not None:
            request["Limit"] = query.limit
        return words.into(request)

    def _one_batch(self, table: Table, keys: Sequence[Key], *, consistent: bool) -> list[Item]:
        name = self._name(table)
        unread: Wire = {name: {"Keys": [wire_key(table, key) for key in keys], "ConsistentRead": consistent}}
        items: list[Item] = []
        waits = self._calls.retry_waits()
        while True:
            answer = self._calls.call("BatchGetItem", {"RequestItems": unread, **self._metering()})
            items += [item_from_wire(item) for item in answer["Responses"].get(name, [])]
            for consumed in answer.get("ConsumedCapacity", []):
                self._record(_consumed(table, "batch_get", consumed))
            unread = answer.get("UnprocessedKeys") or {}
            if not unread:
                return items
            if not waits.wait():
                left = len(unread[name]["Keys"])
                raise StoreUnavailable(f"DynamoDB BatchGetItem on {name}: {left} keys still unread at the deadline")

    def _name(self, table: Table) -> str:
        return self._names.get(table.setting, table.name)

    def _live(self, table: Table, item: Item) -> Item | None:
        return None if table.is_expired(item, self._calls.clock.now()) else item

    def _metering(self) -> Wire:
        return {"ReturnConsumedCapacity": "INDEXES"} if self._meter else {}

    def _record(self, consumed: Consumed) -> None:
        if self._meter:
            self._meter(consumed)


def conflict_at(write: Write, key: Key, old: Item | None) -> WriteConflict:
    return WriteConflict(
        f"{item_name(write.table, key)}: condition not met: {write.condition}; nothing was written", old
    )


def _transaction_conflict(checked: Sequence[tuple[Write, Key]], error: DynamoTransportError) -> WriteConflict | None:
    """The conflict that cancelled the transaction; None if it was cancelled for another reason."""
    reasons: list[Wire] = error.answer.get("CancellationReasons", [])
    failed = [reason.get("Code") == "ConditionalCheckFailed" for reason in reasons]
    if not any(failed):
        return None
    items = [item_from_wire(reason["Item"]) if reason.get("Item") else None for reason in reasons]
    write, key = checked[failed.index(True)]
    first = conflict_at(write, key, items[failed.index(True)])
    return WriteConflict(str(first), first.item, items=items, failed=failed)


def _consumed(table: Table, call: str, answer: Mapping[str, Any]) -> Consumed:
    units = float(answer["CapacityUnits"])
    indexes = {name: float(part["CapacityUnits"]) for name, part in answer.get("GlobalSecondaryIndexes", {}).items()}
    if call in ("get", "batch_get", "query"):
        return Consumed(table.name, call, read_units=units, index_units=indexes)
    return Consumed(table.name, call, write_units=units, index_units=indexes)
