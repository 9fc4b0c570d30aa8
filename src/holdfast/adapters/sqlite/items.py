"""Items as text in a SQLite column: JSON that people can read in the sqlite3 shell.

Values that JSON represents exactly are plain JSON. Others are a map with one key, a tag:

    {"$n": "1.5"}         a number that is not whole
    {"$b": "aGk="}        bytes, in base64
    {"$ss": ["a", "b"]}   a set of text; "$ns" of numbers, "$bs" of bytes; sorted, so that equal items are equal text
    {"$m": {"$n": "x"}}   a map that would otherwise look like one of these
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final

import msgspec

from holdfast.kernel.errors import StoreRefused
from holdfast.ports.store.schema import Key
from holdfast.ports.store.values import Item, Value, canonical

_NESTED: Final = frozenset({dict, list})
_PLAIN: Final = frozenset({str, int, bool, type(None)})  # exact in JSON


def encoded(item: Item, plain: Item | None = None) -> str:
    """The item as text. Values shared with `plain`, an item that was read from text without tags, need no tags."""
    known = plain or {}
    tagged = {
        name: _tagged(value)
        for name, value in item.items()
        if type(value) not in _PLAIN and known.get(name) is not value
    }
    return _ENCODER.encode(item | tagged if tagged else item).decode()


def checked_and_encoded(item: Item, old: Item) -> tuple[Item, str]:
    """The item in canonical form, and its text, in one pass over its attributes.

    Values shared with the old item are already canonical.
    """
    checked, tagged = item.copy(), item.copy()
    for name, value in item.items():
        kind = type(value)
        if kind is str:
            if value.isascii():
                continue  # the common case
        elif kind is int:
            canonical(value, name)  # unchanged, unless it has too many digits
            continue
        elif kind is bool or value is None:
            continue
        if old.get(name) is not value:
            checked[name] = value = canonical(value, name)
        tagged[name] = _tagged(value)
    return checked, _ENCODER.encode(tagged).decode()


def decoded(text: str, table: str, key: Key | None = None) -> Item:
    """The item from its text. Table and key are for errors: people may have edited it by hand."""
    try:
        item = _DECODER.decode(text)
        return _all_untagged(item) if has_tags(text) else item
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        name = table if key is None else f"{table} {key}"
        raise StoreRefused(
            f"item {name} cannot be read: {error}; fix it in the sqlite3 shell, or delete it. It begins {text[:60]!r}"
        ) from error


def has_tags(text: str) -> bool:
    """Whether the text may contain tags."""
    return "$" in text and '"$' in text  # searching for one character is much faster than for two


def _all_untagged(item: Item) -> Item:
    """Only the values: names of attributes are the caller's, and never tags."""
    for name, value in item.items():
        if type(value) in _NESTED:
            item[name] = _untagged(value)
    return item


def _tagged(value: Value) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return value if _PLAIN.issuperset(map(type, value)) else [_tagged(element) for element in value]
    if kind is dict:
        if not _PLAIN.issuperset(map(type, value.values())):
            value = {name: _tagged(element) for name, element in value.items()}
        return {"$m": value} if _looks_tagged(value) else value
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
        return value if _NESTED.isdisjoint(map(type, value)) else [_untagged(element) for element in value]
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


def _numbers(texts: list[str]) -> Value:
    # Nearly all are ids: whole numbers.
    return _set(map(int if all(map(str.isdecimal, texts)) else _number, texts))


def _set(elements: Iterable[Value]) -> Value:
    # Check it: edited by hand, the list may be empty or mixed, and no backend can store such a set.
    return canonical(frozenset(elements))


def _hand_written_number(text: str) -> Value:
    """A fraction as plain JSON: someone edited the item in the shell. It is kept until the attribute is set."""
    return canonical(Decimal(text))


_MEANINGS: Final[dict[str, Callable[[Any], Value]]] = {
    "$n": _number,
    "$b": _bytes,
    "$ss": _set,
    "$ns": _numbers,
    "$bs": lambda texts: _set(map(_bytes, texts)),
    "$m": lambda plain: {name: _untagged(element) for name, element in plain.items()},
}
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_DECODER: Final = msgspec.json.Decoder(Item, float_hook=_hand_written_number)
