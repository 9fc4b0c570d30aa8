"""Values of items, and their sizes.

The rules are DynamoDB's, checked before a call reaches a backend, so that all backends refuse the same things: numbers
are exact (int or Decimal, 38 digits, never float), sets are not empty and of one type, text is valid Unicode, items are
nested at most 32 levels deep (the item is the first), and have at most 400 KB.
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

from holdfast.kernel.errors import BadRequest, ItemTooLarge
from holdfast.kernel.text import one_line

# None, bool, int, Decimal, str, bytes, list, dict, or a frozenset of str, of numbers or of bytes.
Value: TypeAlias = Any
Item: TypeAlias = dict[str, Value]

ITEM_BYTES_MOST: Final = 400 * 1024
NESTING_MOST: Final = 31  # DynamoDB's 32 levels, of which the item is the first
_DIGITS_MOST: Final = 38
_MAGNITUDE_MOST: Final = 125  # 9.99E+125 is the largest number, 1E-130 the smallest
_MAGNITUDE_LEAST: Final = -130
_NAME_CHARACTERS_MOST: Final = 16_000  # of up to four bytes each; DynamoDB accepts 64 KB
_SMALL_INT: Final = 10**_DIGITS_MOST
_SHOWN_CHARACTERS: Final = 120
_SORTED: Final = json.JSONEncoder(sort_keys=True)


def canonical_item(item: Mapping[str, Value]) -> Item:
    """The item as every backend returns it, or BadRequest with the invalid attribute."""
    return {checked_name(name): canonical(value, name) for name, value in item.items()}


def canonical(value: Value, where: object = "value", depth: int = 1) -> Value:
    """One value in the form in which it is read back: 1.50 as 1.5, tuples as lists, sets as frozensets.

    `where` names the value in an error; it is turned into text only then. `depth` is the value's depth in its item.
    """
    kind = type(value)
    if (kind is int and -_SMALL_INT < value < _SMALL_INT) or (kind is str and value.isascii()):
        return value  # by far the most common values
    try:
        return _canonical(value, depth)
    except BadRequest as error:
        raise BadRequest(f"{one_line(str(where))}: {error}") from error


def _canonical(value: Value, depth: int) -> Value:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else checked_text(value)
    if kind is int:
        return value if -_SMALL_INT < value < _SMALL_INT else _canonical_number(value)
    if kind is bool or value is None or kind is bytes:
        return value
    if kind is Decimal:
        return _canonical_number(value)
    if kind is list or kind is tuple:
        _check_depth(depth)
        return [_canonical(element, depth + 1) for element in value]
    if kind is set or kind is frozenset:
        return _canonical_set(value)
    if kind is dict or isinstance(value, Mapping):
        _check_depth(depth)
        return {checked_name(name): _canonical(element, depth + 1) for name, element in value.items()}
    if isinstance(value, float):
        raise BadRequest(f"{value!r} is a float; a number must be exact: use an int or a Decimal")
    raise BadRequest(f"a value of type {kind.__name__} cannot be stored")


def copied(item: Item) -> Item:
    """A copy that shares no mutable values."""
    copy = item.copy()
    for name, value in item.items():
        kind = type(value)
        if kind is list or kind is dict:  # rare
            copy[name] = copied_value(value)
    return copy


def type_name(value: Value) -> str:
    """DynamoDB's name of the value's type: S, N, B, BOOL, NULL, L, M, SS, NS or BS."""
    name = _TYPE_NAMES.get(type(value))
    if name is not None:
        return name
    if isinstance(value, frozenset):
        return _TYPE_NAMES[type(next(iter(value)))] + "S"
    raise BadRequest(f"a value of type {type(value).__name__} cannot be stored")


def same(left: Value, right: Value) -> bool:
    """Equality as in the store. In Python, True equals 1, even within lists."""
    kind = type(left)
    if kind is not type(right):
        return False
    if kind is list:
        return len(left) == len(right) and all(map(same, left, right))
    if kind is dict:
        return left.keys() == right.keys() and all(same(value, right[name]) for name, value in left.items())
    return bool(left == right)


def shown(value: Value) -> str:
    """The value for people, safe in logs and errors: on one line, escaped, limited in length."""
    text = _SORTED.encode(_plain(value))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def item_bytes(item: Mapping[str, Value]) -> int:
    """The item's size by DynamoDB's rules, for capacity and the limit of 400 KB."""
    return sum(attribute_bytes(item).values())


def attribute_bytes(item: Mapping[str, Value]) -> dict[str, int]:
    """The same by attribute."""
    return {name: one_attribute_bytes(name, value) for name, value in item.items()}


def one_attribute_bytes(name: str, value: Value) -> int:
    if type(value) is str and value.isascii() and name.isascii():
        return len(name) + len(value)
    return _text_bytes(name) + value_bytes(value)


def is_larger(item: Mapping[str, Value], bytes_most: int) -> bool:
    """Whether the item is larger. Most need no exact count: repr() is fast, and has at least a quarter of the bytes."""
    return 4 * len(repr(item)) > bytes_most and item_bytes(item) > bytes_most


def value_bytes(value: Value) -> int:
    kind = type(value)
    if kind is str:
        return len(value) if value.isascii() else len(value.encode())
    if kind is int:
        return _whole_number_bytes(value)
    if kind is Decimal:
        return _number_bytes(value)
    if kind is bytes:
        return len(value)
    if kind is bool or value is None:
        return 1
    if kind is list:
        return 3 + sum(1 + value_bytes(element) for element in value)
    if kind is dict:
        return 3 + sum(1 + _text_bytes(name) + value_bytes(element) for name, element in value.items())
    return sum(value_bytes(element) for element in value)


def check_size(size_bytes: int, name: str) -> None:
    if size_bytes > ITEM_BYTES_MOST:
        raise ItemTooLarge(
            f"item {name} has {size_bytes} bytes; DynamoDB accepts at most {ITEM_BYTES_MOST}. Nothing was written"
        )


_TYPE_NAMES: Final[dict[type, str]] = {
    str: "S",
    int: "N",
    Decimal: "N",
    bytes: "B",
    bool: "BOOL",
    type(None): "NULL",
    list: "L",
    dict: "M",
}


def checked_name(name: Any) -> str:
    if type(name) is not str or not name:
        raise BadRequest(f"attribute name {name!r}: expected non-empty text")
    if len(name) > _NAME_CHARACTERS_MOST:
        raise BadRequest(f"an attribute name of {len(name)} characters; at most {_NAME_CHARACTERS_MOST}")
    return name if name.isascii() else checked_text(name)


def checked_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"text with a lone surrogate (at {error.start}) cannot be stored") from error
    return text


def _check_depth(depth: int) -> None:
    if depth > NESTING_MOST:
        raise BadRequest(f"nested deeper than {NESTING_MOST} levels")


def _canonical_number(number: int | Decimal) -> int | Decimal:
    exact = Decimal(number)
    if not exact.is_finite():
        raise BadRequest(f"{number} is not a finite number")
    if exact.is_zero():
        return 0
    digits = len(_significant_digits(exact))
    if digits > _DIGITS_MOST:
        raise BadRequest(f"a number of {digits} digits; at most {_DIGITS_MOST} are kept exactly")
    if not _MAGNITUDE_LEAST <= exact.adjusted() <= _MAGNITUDE_MOST:
        raise BadRequest(f"a number of magnitude 1E{exact.adjusted():+d}; expected 1E-130 to 1E+125")
    if exact == exact.to_integral_value():
        return int(exact)
    # Built from its digits: Decimal.normalize() would round to the context's 28 digits.
    sign, _, exponent = exact.as_tuple()
    kept = _significant_digits(exact)
    assert isinstance(exponent, int)  # noqa: S101 -- finite, checked above; narrows the type
    return Decimal((sign, kept, exponent + len(exact.as_tuple().digits) - len(kept)))


def _significant_digits(number: Decimal) -> tuple[int, ...]:
    digits = list(number.as_tuple().digits)
    while len(digits) > 1 and digits[-1] == 0:
        digits.pop()
    return tuple(digits)


def _canonical_set(values: set[Any] | frozenset[Any]) -> frozenset[Any]:
    if not values:
        raise BadRequest("an empty set cannot be stored; leave the attribute out")
    if _is_plain_set(values):
        return frozenset(values)
    elements = frozenset(_canonical(value, 1) for value in values)
    kinds = {_TYPE_NAMES.get(type(element), "?") for element in elements}
    if len(kinds) > 1 or not kinds <= {"S", "N", "B"}:
        raise BadRequest(f"a set contains only text, only numbers or only bytes; found {sorted(kinds)}")
    return elements


def _is_plain_set(values: set[Any] | frozenset[Any]) -> bool:
    """Whether it is already in canonical form, as nearly all are: short texts, or ids."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return all(map(str.isascii, values))
    return kinds == {int} and min(values) > -_SMALL_INT and max(values) < _SMALL_INT


def copied_value(value: Value) -> Value:
    kind = type(value)
    if kind is list:
        return [copied_value(element) for element in value]
    if kind is dict:
        return {name: copied_value(element) for name, element in value.items()}
    return value


def _plain(value: Value) -> Any:
    if isinstance(value, set):
        value = frozenset(value)
    if isinstance(value, frozenset):
        return {"set": sorted((_plain(element) for element in value), key=str)}
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(element) for name, element in value.items()}
    if isinstance(value, bytes | Decimal):
        return str(value)
    return value


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


@lru_cache(maxsize=4096)
def _whole_number_bytes(number: int) -> int:
    """The same as `_number_bytes` without a Decimal: nearly all numbers are whole."""
    digits = str(abs(number))
    left = len(digits.rstrip("0"))
    return (left + (len(digits) - left) % 2 + 1) // 2 + 1 + (number < 0) if left else 1


def _number_bytes(number: int | Decimal) -> int:
    """One byte, plus one per pair of digits, plus one for a minus sign.

    Pairs are counted from the decimal point: 12 is one pair, 1.5 and 123 are two. Zeros at both ends are free.
    """
    sign, _, exponent = Decimal(number).as_tuple()
    digits = _significant_digits(Decimal(number))
    if digits == (0,):
        return 1
    assert isinstance(exponent, int)  # noqa: S101 -- finite, checked when it was stored; narrows the type
    zeros_cut = len(Decimal(number).as_tuple().digits) - len(digits)
    shifted = (exponent + zeros_cut) % 2  # an odd exponent: the last digit is the first of its pair
    return (len(digits) + shifted + 1) // 2 + 1 + sign
