"""Cursors: where a query continues, as the keys of the last item seen, in text that is safe in a URL.

Clients send cursors back, so they are validated like any other input: a cursor of another query is refused.
"""

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

from holdfast.kernel.errors import BadRequest
from holdfast.ports.store.values import Item, canonical

if TYPE_CHECKING:
    from holdfast.ports.store import Query


def encoded(query: "Query", last: Item) -> str:
    """The cursor to continue after this item."""
    keys = {name: last[name] for name in _key_attributes(query)}
    return base64.urlsafe_b64encode(json.dumps(keys, separators=(",", ":")).encode()).decode().rstrip("=")


def decoded(query: "Query") -> dict[str, str] | None:
    """The keys after which the query continues; None: from the start."""
    if query.cursor is None:
        return None
    keys = _parsed(query.cursor) if isinstance(query.cursor, str) else None
    if not isinstance(keys, dict) or sorted(keys) != sorted(_key_attributes(query)):
        raise _bad(query)
    for value in keys.values():
        if not isinstance(value, str) or not value:
            raise _bad(query)
        canonical(value, "cursor")
    holder = query.table if query.index is None else query.table.index(query.index)
    within = query.sort is None or (holder.sort is not None and query.sort.holds(keys[holder.sort]))
    if keys[holder.partition] != query.partition or not within:
        raise _bad(query)
    return keys


def _key_attributes(query: "Query") -> tuple[str, ...]:
    names = query.table.key_attributes
    if query.index is not None:
        names += query.table.index(query.index).key_attributes
    return tuple(dict.fromkeys(names))


def _parsed(cursor: str) -> Any:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        return None


def _bad(query: "Query") -> BadRequest:
    place = query.table.name if query.index is None else f"{query.table.name}, index {query.index}"
    return BadRequest(f"cursor {str(query.cursor)[:40]!r} is not from this query of {place}; start without a cursor")
