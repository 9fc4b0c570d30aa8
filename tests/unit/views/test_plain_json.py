"""Structs become JSON with the names, nulls and numbers of the schemas."""

from decimal import Decimal
from typing import Annotated

import msgspec
import pytest
from msgspec import UNSET, UnsetType, field

from holdfast.console.schema.generator import schema_of
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Count, OpenShape, Shape
from holdfast.ports.machines import Market
from holdfast.views.plain_json import json_object, to_json


class Inner(Shape, frozen=True, kw_only=True):
    amount: Decimal
    market: Market = Market.SPOT


class Outer(Shape, frozen=True, kw_only=True):
    before: int | None = field(name="from")
    left_out: str | UnsetType = UNSET
    inner: list[Inner]


class Step(OpenShape, frozen=True, kw_only=True):
    kind: str


def test_json_names_are_used_and_unset_fields_are_left_out() -> None:
    found = json_object(Outer(before=None, inner=[Inner(amount=Decimal("1.50"))]))
    assert found == {"from": None, "inner": [{"amount": 1.5, "market": "spot"}]}
    assert type(found["inner"][0]["market"]) is str  # type: ignore[index, call-overload]


def test_additional_attributes_of_an_open_struct_are_merged() -> None:
    assert json_object(Step(kind="drain", extra={"pods": frozenset({2, 1})})) == {"kind": "drain", "pods": [1, 2]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("2.00"), 2),
        (Decimal("0.25"), 0.25),
        (Instant(0), "1970-01-01T00:00:00.000Z"),
        ({1: (True, None)}, {"1": [True, None]}),
    ],
)
def test_values_keep_their_type(value: object, expected: object) -> None:
    found = to_json(value)
    assert (found, type(found)) == (expected, type(expected))


def test_a_value_that_json_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes has no form in JSON"):
        to_json(b"x")


def test_a_schema_says_what_is_required_and_what_may_be_null() -> None:
    assert schema_of(Outer) == {
        "type": "object",
        "properties": {
            "from": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "left_out": {"type": "string"},
            "inner": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"amount": {"type": "number"}, "market": {"enum": ["spot", "on-demand"]}},
                    "required": ["amount", "market"],
                },
            },
        },
        "required": ["from", "inner"],
    }
    assert schema_of(Step)["properties"] == {"kind": {"type": "string"}}
    assert schema_of(dict[str, Count]) == {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
    assert schema_of(Annotated[str, msgspec.Meta(pattern="^a$")]) == {"type": "string", "pattern": "^a$"}


def test_an_unsupported_type_is_refused() -> None:
    with pytest.raises(TypeError, match="no JSON Schema for"):
        schema_of(bytes)
