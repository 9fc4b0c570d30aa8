"""Answers as JSON has them."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from holdfast.jobs.queries import Found
from holdfast.kernel.instants import Instant


def plain(value: Any) -> Any:
    """The value without what JSON lacks: a Decimal is a number, a set a list in its order, an instant a text."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, Mapping):
        return {str(name): plain(element) for name, element in value.items()}
    if isinstance(value, frozenset | set):
        return [plain(element) for element in sorted(value)]
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    return value.iso() if isinstance(value, Instant) else value


def page(items: list[dict[str, Any]], found: Found) -> dict[str, Any]:
    return {"items": items, "cursor": found.cursor, "examined": found.examined}
