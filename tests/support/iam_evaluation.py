"""Decides requests as IAM does: the parts of its language that our policies use, and an error for any other."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

Context = Mapping[str, str | Sequence[str]]


def is_allowed(policy: Sequence[Mapping[str, Any]], action: str, resource: str, context: Context) -> bool:
    """Denied unless a statement allows it and none denies it. A new resource has `*` in place of its id."""
    found = {each["Effect"] for each in policy if _applies(each, action, resource, context)}
    return found == {"Allow"}


def _applies(statement: Mapping[str, Any], action: str, resource: str, context: Context) -> bool:
    return (
        action in _several(statement["Action"])
        and any(_is_like(resource, pattern) for pattern in _several(statement["Resource"]))
        and all(
            _holds(operator, context.get(key), _several(values))
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _holds(operator: str, found: str | Sequence[str] | None, expected: list[str]) -> bool:
    if operator == "Null":
        return (found is None) == (expected == ["true"])
    if operator == "ForAllValues:StringEquals":
        return all(each in expected for each in _several(found or []))
    if found is None:
        return False  # without IfExists, a missing key fulfils no condition
    (value,) = _several(found)
    match operator:
        case "StringEquals":
            return value in expected
        case "Bool":
            return value in expected
        case "ArnLike":
            return any(_is_like(value, pattern) for pattern in expected)
        case "NumericLessThanEquals":
            return any(float(value) <= float(most) for most in expected)
    raise ValueError(f"unknown operator {operator}")


def _is_like(value: str, pattern: str) -> bool:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.fullmatch("".join(parts), value, re.DOTALL) is not None


def _several(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
