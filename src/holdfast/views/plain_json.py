"""Answers as JSON: the one place where the command line and the API turn typed values into plain ones."""

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum

import msgspec

from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import JsonObject, JsonValue, OpenShape


def to_json(value: object) -> JsonValue:
    """The value in types that JSON has: a Decimal becomes a number, a set a sorted list, an instant a text."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return str(value.value) if isinstance(value, Enum) else value
    if isinstance(value, int):
        return value
    if isinstance(value, Instant):
        return value.iso()
    if isinstance(value, msgspec.Struct):
        return json_object(value)
    if isinstance(value, Decimal):
        return number(value)
    if isinstance(value, Mapping):
        return {str(name): to_json(element) for name, element in value.items()}
    if isinstance(value, frozenset | set):
        return [to_json(element) for element in sorted(value)]
    if isinstance(value, list | tuple):
        return [to_json(element) for element in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def json_object(shape: msgspec.Struct) -> JsonObject:
    """The struct's attributes by their names in JSON, without those that are UNSET."""
    values = msgspec.structs.asdict(shape)
    names = zip(shape.__struct_fields__, shape.__struct_encode_fields__, strict=True)
    found = {shown: to_json(values[name]) for name, shown in names if values[name] is not msgspec.UNSET}
    if isinstance(shape, OpenShape):
        del found["extra"]
        found |= {name: to_json(element) for name, element in shape.extra.items()}
    return found


def number(value: Decimal) -> float:
    return int(value) if value == value.to_integral_value() else float(value)
