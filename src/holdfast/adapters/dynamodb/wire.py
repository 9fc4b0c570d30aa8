"""Items, conditions and updates in DynamoDB's format.

Names and values are always placeholders (#0, :0), never part of an expression, so they cannot inject anything. Pure;
both transports send the same requests.
"""

from base64 import b64decode
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from holdfast.ports.store import Condition, Item, Key, SortRange, Table, Update, Value
from holdfast.ports.store.conditions import Absent, All, AnyOf, BeginsWith, Compare, Contains, Exists, Not, Size
from holdfast.ports.store.paths import Path
from holdfast.ports.store.updates import AddElements, Change, DropElements, Plus, Remove, SetIfAbsent, SetTo
from holdfast.ports.store.values import canonical, type_name

# Plain data, instead of boto3's TypedDict for each shape.
Wire: TypeAlias = dict[str, Any]

_SETS: Final = {"SS", "NS", "BS"}


def wire_item(item: Mapping[str, Value]) -> Wire:
    return {name: wire_value(value) for name, value in item.items()}


def wire_value(value: Value) -> Wire:
    """A value with its type, as in ``{"N": "42"}``. Numbers are text, so nothing is rounded."""
    kind = type_name(value)
    if kind == "N":
        return {"N": str(value)}
    if kind == "NULL":
        return {"NULL": True}
    if kind == "L":
        return {"L": [wire_value(element) for element in value]}
    if kind == "M":
        return {"M": wire_item(value)}
    if kind == "NS":
        return {"NS": sorted(map(str, value))}
    if kind in _SETS:
        return {kind: sorted(value)}
    return {kind: value}


def item_from_wire(wire: Mapping[str, Wire]) -> Item:
    return {name: value_from_wire(value) for name, value in wire.items()}


def value_from_wire(wire: Wire) -> Value:
    ((kind, raw),) = wire.items()
    if kind in ("S", "BOOL"):
        return raw
    if kind == "N":
        return _number(raw)
    if kind == "B":
        return _bytes(raw)
    if kind == "NULL":
        return None
    if kind == "L":
        return [value_from_wire(element) for element in raw]
    if kind == "M":
        return item_from_wire(raw)
    if kind == "NS":
        return frozenset(map(_number, raw))
    return frozenset(raw) if kind == "SS" else frozenset(map(_bytes, raw))


def _bytes(raw: bytes | str) -> bytes:
    """boto3 decodes bytes; on the wire they are base64."""
    return b64decode(raw, validate=True) if isinstance(raw, str) else bytes(raw)


def wire_key(table: Table, key: Key) -> Wire:
    return wire_item(table.key_item(key))


class WireExpression:
    """The placeholders of one request."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Wire] = {}

    def name(self, name: str) -> str:
        return self.names.setdefault(name, f"#{len(self.names)}")

    def path(self, path: Path) -> str:
        text = self.name(path.name)
        for part in path.parts[1:]:
            text += f"[{part}]" if isinstance(part, int) else f".{self.name(part)}"
        return text

    def value(self, value: Value) -> str:
        placeholder = f":{len(self.values)}"
        self.values[placeholder] = wire_value(value)
        return placeholder

    def condition(self, condition: Condition) -> str:
        match condition:
            case Compare(path, operator, value):
                return f"{self.path(path)} {operator} {self.value(value)}"
            case Size(path, operator, number):
                return f"size({self.path(path)}) {operator} {self.value(number)}"
            case Exists(path):
                return f"attribute_exists({self.path(path)})"
            case Absent(path):
                return f"attribute_not_exists({self.path(path)})"
            case BeginsWith(path, prefix):
                return f"begins_with({self.path(path)}, {self.value(prefix)})"
            case Contains(path, element):
                return f"contains({self.path(path)}, {self.value(element)})"
            case All(parts):
                return " AND ".join(f"({self.condition(part)})" for part in parts)
            case AnyOf(parts):
                return " OR ".join(f"({self.condition(part)})" for part in parts)
            case Not(part):
                return f"NOT ({self.condition(part)})"
        raise TypeError(f"unknown condition {condition}")

    def update(self, update: Update) -> str:
        clauses: dict[str, list[str]] = {}
        for change in update.changes:
            clause, text = self._change(change)
            clauses.setdefault(clause, []).append(text)
        return " ".join(f"{clause} {', '.join(texts)}" for clause, texts in clauses.items())

    def _change(self, change: Change) -> tuple[str, str]:
        path = self.path(change.path)
        match change:
            case SetTo(_, value):
                return "SET", f"{path} = {self.value(value)}"
            case SetIfAbsent(_, value):
                return "SET", f"{path} = if_not_exists({path}, {self.value(value)})"
            case Plus(_, number):
                return "SET", f"{path} = if_not_exists({path}, {self.value(0)}) + {self.value(number)}"
            case AddElements(_, elements):
                return "ADD", f"{path} {self.value(elements)}"
            case DropElements(_, elements):
                return "DELETE", f"{path} {self.value(elements)}"
            case Remove(_):
                return "REMOVE", path

    def key_condition(self, partition: tuple[str, str], sort: tuple[str, SortRange] | None) -> str:
        text = f"{self.name(partition[0])} = {self.value(partition[1])}"
        return text if sort is None else f"{text} AND {self._range(self.name(sort[0]), sort[1])}"

    def _range(self, name: str, span: SortRange) -> str:
        if span.prefix is not None:
            return f"begins_with({name}, {self.value(span.prefix)})"
        if span.low is not None and span.high is not None:
            return f"{name} BETWEEN {self.value(span.low)} AND {self.value(span.high)}"
        if span.low is not None:
            return f"{name} {'>=' if span.low_included else '>'} {self.value(span.low)}"
        return f"{name} {'<=' if span.high_included else '<'} {self.value(span.high)}"

    def into(self, request: Wire) -> Wire:
        """The request with its placeholders: DynamoDB refuses empty maps."""
        if self.names:
            request["ExpressionAttributeNames"] = {placeholder: name for name, placeholder in self.names.items()}
        if self.values:
            request["ExpressionAttributeValues"] = self.values
        return request


def _number(text: str) -> int | Decimal:
    if text.isdigit():
        return int(text)
    number: int | Decimal = canonical(Decimal(text))
    return number
