"""An item as text in a SQLite column: JSON that a person can read in the sqlite3 shell.

What JSON says exactly is plain JSON. The rest is a map with one key, its tag:

    {"$n": "1.5"}         a number that is not whole
    {"$b": "aGk="}        bytes, in base64
    {"$ss": ["a", "b"]}   a set of text; "$ns" of numbers, "$bs" of bytes; sorted, so that equal items are equal text
    {"$m": {"$n": "x"}}   a map that would otherwise be taken for one of these
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
_PLAIN: Final = frozenset({str, int, bool, type(None)})  # JSON says them exactly


def encoded(item: Item, plain: Item | None = None) -> str:
    """The item as text. What it has from `plain`, an item that was read from text without a tag, needs none either."""
    known = plain or {}
    tagged = {
        name: _tagged(value)
        for name, value in item.items()
        if type(value) not in _PLAIN and known.get(name) is not value
    }
    return _ENCODER.encode(item | tagged if tagged else item).decode()


def checked_and_encoded(item: Item, old: Item) -> tuple[Item, str]:
    """The item in the form in which it is read back, and its text, in one go over its attributes.

    What it has from the old one was looked at when that came.
    """
    checked, tagged = item.copy(), item.copy()
    for name, value in item.items():
        kind = type(value)
        if kind is str:
            if value.isascii():
                continue  # as most are
        elif kind is int:
            canonical(value, name)  # the same, unless it has too many digits
            continue
        elif kind is bool or value is None:
            continue
        if old.get(name) is not value:
            checked[name] = value = canonical(value, name)
        tagged[name] = _tagged(value)
    return checked, _ENCODER.encode(tagged).decode()


def decoded(text: str, table: str, key: Key | None = None) -> Item:
    """The item that `encoded` was given. Table and key name it in errors: people may have mended it, and not well."""
    try:
        item = _DECODER.decode(text)
        return _all_untagged(item) if has_tags(text) else item
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        name = table if key is None else f"{table} {key}"
        raise StoreRefused(
            f"item {name} cannot be read: {error}; mend it in the sqlite3 shell, or delete it. It begins {text[:60]!r}"
        ) from error


def has_tags(text: str) -> bool:
    """Whether it may have some."""
    return "$" in text and '"$' in text  # one character is found far quicker than two


def _all_untagged(item: Item) -> Item:
    """Not the item itself: its attributes are the caller's names, and none of them is a tag."""
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
    # Nearly all are ids.
    return _set(map(int if all(map(str.isdecimal, texts)) else _number, texts))


def _set(elements: Iterable[Value]) -> Value:
    # A list that people emptied, or mixed, would make a set that no backend can hold.
    return canonical(frozenset(elements))


def _hand_written_number(text: str) -> Value:
    """A fraction as plain JSON: by people who mend an item in the shell. It stays so until its attribute is set."""
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
