"""Items as text in a SQLite column."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.sqlite import items
from holdfast.kernel.errors import StoreRefused
from holdfast.ports.store.schema import Key
from holdfast.ports.store.values import canonical_item, same

_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_NUMBERS = st.integers(-(10**37), 10**37) | st.decimals(
    min_value=-(10**20), max_value=10**20, allow_nan=False, allow_infinity=False, places=9
)
_SETS = st.frozensets(_TEXT, min_size=1) | st.frozensets(_NUMBERS, min_size=1) | st.frozensets(st.binary(), min_size=1)
_NAMES = st.sampled_from(["$n", "$b", "$ss", "$ns", "$bs", "$m", "$x", "$", "a"]) | _TEXT.filter(bool)
_VALUES = st.recursive(
    st.none() | st.booleans() | _TEXT | _NUMBERS | st.binary() | _SETS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=20,
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=4))
def test_every_item_is_read_back_unchanged(item: dict[str, Any]) -> None:
    """Any item is read back with the same values of the same types."""
    stored = canonical_item(item)
    assert same(items.decoded(items.encoded(stored), "t"), stored)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", '"text"'),
        (5, "5"),
        (2**63 - 1, "9223372036854775807"),
        (-(2**63), "-9223372036854775808"),
        (True, "true"),
        (None, "null"),
        (["a", {"b": 1}], '["a",{"b":1}]'),
        (10**37 + 1, "10000000000000000000000000000000000001"),
        (Decimal("-1.5"), '{"$n":"-1.5"}'),
        (b"hi", '{"$b":"aGk="}'),
        (frozenset(["b", "a"]), '{"$ss":["a","b"]}'),
        (frozenset([10, 9, Decimal("9.5")]), '{"$ns":["9","9.5","10"]}'),
        (frozenset([b"b", b"a"]), '{"$bs":["YQ==","Yg=="]}'),
        ({"$n": "x"}, '{"$m":{"$n":"x"}}'),
        ({"$m": {}}, '{"$m":{"$m":{}}}'),
        ({"$n": "x", "other": 1}, '{"$n":"x","other":1}'),
        ("nul \0 and é", '"nul \\u0000 and é"'),
    ],
)
def test_the_stored_text_is_readable(value: object, text: str) -> None:
    """Plain JSON where JSON is exact; elsewhere a map with one tag, never confused with a map that has such a key."""
    assert items.encoded({"a": value}) == f'{{"a":{text}}}'
    assert same(items.decoded(f'{{"a":{text}}}', "t"), {"a": value})


def test_equal_items_with_sets_have_equal_text() -> None:
    """Sets are written in order, so that the file does not depend on the order of hashes."""
    names = [f"n{number}" for number in range(50)]
    assert items.encoded({"s": frozenset(names)}) == items.encoded({"s": frozenset(reversed(names))})


def test_an_attribute_of_the_item_itself_is_never_a_tag() -> None:
    """Even if its only attribute is named like a tag."""
    assert items.decoded(items.encoded({"$n": "1.5"}), "t") == {"$n": "1.5"}


def test_a_number_edited_by_hand_is_exact() -> None:
    """A fraction that a person wrote as plain JSON is read exactly, not as the nearest float."""
    item = items.decoded('{"price": 0.10, "count": 1e2, "spaced": { "$n": "1.5" } }', "t")
    assert same(item, {"price": Decimal("0.1"), "count": 100, "spaced": Decimal("1.5")})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '"text"',
        '{"a":',
        '{"a":{"$x":1}}',
        '{"a":{"$n":"ten"}}',
        '{"a":{"$n":5}}',
        '{"a":{"$b":"?"}}',
        '{"a":{"$m":[]}}',
        '{"a":{"$ss":1}}',
        '{"a":{"$ss":[]}}',
        '{"a":{"$ns":["1","x"]}}',
    ],
)
def test_a_malformed_row_is_refused_by_name(text: str) -> None:
    """The error names table, key and problem of a row that was edited badly by hand."""
    with pytest.raises(StoreRefused, match=r'item jobs "a"/"b" cannot be read: .*; fix it'):
        items.decoded(text, "jobs", Key("a", "b"))


def test_the_text_is_json_for_every_other_program() -> None:
    """SQLite's own JSON functions, and any other reader, can parse it."""
    item = canonical_item({"a": [1, None, True, "x"], "n": Decimal("1.25"), "s": {"x"}, "m": {"k": b"\0"}})
    assert json.loads(items.encoded(item)) == {
        "a": [1, None, True, "x"],
        "n": {"$n": "1.25"},
        "s": {"$ss": ["x"]},
        "m": {"k": {"$b": "AA=="}},
    }
