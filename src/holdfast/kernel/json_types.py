"""Types of the values in JSON answers. Structs made of them are the source of the JSON Schemas."""

from decimal import Decimal
from typing import Annotated, Final

import msgspec

TIME_PATTERN: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"

Time = Annotated[str, msgspec.Meta(pattern=TIME_PATTERN)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Money = Annotated[Decimal, msgspec.Meta(ge=0)]  # in US dollars
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
JsonObject = dict[str, JsonValue]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """An object of an answer, with its attributes in their order. One that is UNSET is left out of the JSON."""


class OpenShape(Shape, frozen=True, kw_only=True):
    """An object that may have more attributes than its type names; in JSON they stand beside the others."""

    extra: dict[str, object] = {}
