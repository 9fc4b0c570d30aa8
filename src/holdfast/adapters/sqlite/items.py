"""An item as text in a SQLite column: JSON that a person can read in the sqlite3 shell.

What JSON says exactly is plain JSON. The rest is a map with one key, its tag:

    {"$n": "1.5"}         a number that is no whole number of 64 bits
    {"$b": "aGk="}        bytes, in base64
    {"$ss": ["a", "b"]}   a set of text; "$ns" of numbers, "$bs" of bytes; sorted, so that equal items are equal text
    {"$m": {"$n": "x"}}   a map that would otherwise be taken for one of these
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import msgspec

from holdfast.kernel.errors import StoreRefused
from holdfast.ports.store.schema import Key
from holdfast.ports.store.values import Item, Value, canonical

_INT_LEAST: Final = -(2**63)
_INT_MOST: Final = 2**63 - 1


def encoded(item: Item) -> str:
    # Most attributes are plain text and small numbers: only the others are looked into.
    tagged = item.copy()
    for name, value in item.items():
        kind = type(value)
        if kind is not str and kind is not bool and (kind is not int or not _INT_LEAST <= value <= _INT_MOST):
            tagged[name] = _tagged(value)
    return _ENCODER.encode(tagged).decode()


def decoded(text: str, table: str, key: Key | None = None) -> Item:
    """The item that `encoded` was given. Table and key name it in errors: people may have mended it, and not well."""
    try:
        return _decoded(text)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        name = table if key is None else f"{table} {key}"
        raise StoreRefused(
            f"item {name} cannot be read: {error}; mend it in the sqlite3 shell, or delete it. It begins {text[:60]!r}"
        ) from error


def _decoded(text: str) -> Item:
    item = _DECODER.decode(text)
    if '"$' not in text:
        return item
    # Not the item itself: its attributes are the caller's names, and none of them is a tag.
    return {name: _untagged(value) for name, value in item.items()}


def _tagged(value: Value) -> Any:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return value if _INT_LEAST <= value <= _INT_MOST else {"$n": str(value)}
    if kind is list:
        return [_tagged(element) for element in value]
    if kind is dict:
        plain = {name: _tagged(element) for name, element in value.items()}
        return {"$m": plain} if _looks_tagged(plain) else plain
    if kind is Decimal:
        return {"$n": str(value)}
    if kind is bytes:
        return {"$b": _base64(value)}
    return _tagged_set(value)


def _tagged_set(elements: frozenset[Any]) -> dict[str, list[str]]:
    ordered = sorted(elements)
    if type(ordered[0]) is str:
        return {"$ss": ordered}
    if type(ordered[0]) is bytes:
        return {"$bs": [_base64(element) for element in ordered]}
    return {"$ns": [str(element) for element in ordered]}


def _looks_tagged(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith("$")


def _untagged(value: Any) -> Value:
    kind = type(value)
    if kind is list:
        return [_untagged(element) for element in value]
    if kind is not dict:
        return value
    if not _looks_tagged(value):
        return {name: _untagged(element) for name, element in value.items()}
    [(tag, held)] = value.items()
    meaning = _MEANINGS.get(tag)
    if meaning is None:
        raise ValueError(f"unknown tag {tag!r}")
    return meaning(held)


def _number(text: str) -> int | Decimal:
    return int(text) if text.removeprefix("-").isdecimal() else Decimal(text)


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _bytes(text: str) -> bytes:
    return b64decode(text, validate=True)


def _set_of(element: Callable[[str], Value]) -> Callable[[list[str]], Value]:
    # A list that people emptied, or mixed, would make a set that no backend can hold.
    return lambda texts: canonical(frozenset([element(text) for text in texts]))


def _hand_written_number(text: str) -> Value:
    """A fraction as plain JSON: never written by us, but by people who mend an item in the shell."""
    return canonical(Decimal(text))


_MEANINGS: Final[dict[str, Callable[[Any], Value]]] = {
    "$n": _number,
    "$b": _bytes,
    "$ss": _set_of(lambda text: text),
    "$ns": _set_of(_number),
    "$bs": _set_of(_bytes),
    "$m": lambda plain: {name: _untagged(element) for name, element in plain.items()},
}
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Item, float_hook=_hand_written_number)
