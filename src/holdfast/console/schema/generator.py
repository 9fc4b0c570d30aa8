"""JSON Schemas of types, generated: structs, and the types that their attributes have."""

import types
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Final, Literal, NewType, Union, get_args, get_origin

import msgspec

from holdfast.kernel.json_types import OpenShape

Schema = dict[str, Any]
_PLAIN: Final[dict[object, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    Decimal: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    object: {},
}


def schema_of(kind: Any) -> Schema:
    """The schema of values of this type. Raises TypeError for a type that JSON answers do not use."""
    if isinstance(kind, NewType):
        return schema_of(kind.__supertype__)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return schema_of(arguments[0]) | _limits(arguments[1])
    if origin is Literal:
        return {"enum": [value.value if isinstance(value, Enum) else value for value in arguments]}
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is dict:
        return _mapping(*arguments)
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    plain = origin or kind
    if isinstance(plain, type) and issubclass(plain, Enum):
        return {"enum": [member.value for member in plain]}
    if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
        return _record(kind)
    raise TypeError(f"no JSON Schema for {kind!r}")


def _limits(meta: msgspec.Meta) -> Schema:
    found = {"pattern": meta.pattern, "minimum": meta.ge, "maximum": meta.le}
    return {name: limit for name, limit in found.items() if limit is not None}


def _union(kinds: tuple[Any, ...]) -> Schema:
    known = [schema_of(kind) for kind in kinds if kind not in (msgspec.UnsetType, types.NoneType)]
    # An object that may have one of several shapes is described by all their attributes.
    schema = known[0] if len(known) == 1 else _merged(known)
    return {"anyOf": [schema, _PLAIN[types.NoneType]]} if types.NoneType in kinds else schema


def _merged(records: list[Schema]) -> Schema:
    properties: Schema = {}
    for record in records:
        for name, schema in record["properties"].items():
            known = properties.get(name, schema)
            is_enum = known != schema and "enum" in known
            properties[name] = {"enum": [*known["enum"], *schema["enum"]]} if is_enum else known
    required = set.intersection(*(set(record["required"]) for record in records))
    return {"type": "object", "properties": properties, "required": sorted(required)}


def _mapping(key: Any, value: Any) -> Schema:
    schema: Schema = {"type": "object"}
    if key is not str:
        schema["propertyNames"] = schema_of(key)
    if value is not object:
        schema["additionalProperties"] = schema_of(value)
    return schema


def _record(struct: Any) -> Schema:
    """The struct's attributes by their names in JSON; those that may be UNSET are not required."""
    properties: Schema = {}
    required: list[str] = []
    for field in msgspec.structs.fields(struct):
        if field.name == "extra" and issubclass(get_origin(struct) or struct, OpenShape):
            continue
        properties[field.encode_name] = schema_of(field.type)
        if msgspec.UnsetType not in get_args(field.type):
            required.append(field.encode_name)
    return {"type": "object", "properties": properties, "required": sorted(required)}
