"""Items go in and come out the same, on every backend."""

from decimal import Decimal
from typing import Any

import pytest

from holdfast.kernel.errors import BadRequest, ItemTooLarge
from holdfast.ports.store import Item, Key, Query, Store, attr, set_all
from holdfast.ports.store.values import ITEM_BYTES_MOST, same
from tests.contracts.backends import FLAGS, NOTES, Backend

KEY = Key("p", "s")


def note(**attributes: Any) -> Item:
    return {"pk": "p", "sk": "s", **attributes}


def nested(levels: int) -> Any:
    value: Any = "deep"
    for _ in range(levels):
        value = [value]
    return value


VALUES = {
    "text": "plain",
    "empty text": "",
    "unicode": "Grüße 🚀 \u202e日本語",
    "composed and decomposed stay apart": ["é", "e\u0301"],
    "control characters": "a\x00b\x1f\x7f\u2028",
    "quotes": "'\"`$(rm -rf /)\\",
    "true": True,
    "false": False,
    "null": None,
    "zero": 0,
    "negative": -17,
    "38 digits": 10**38 - 1,
    "38 digits negative": -(10**38 - 1),
    "beyond 64 bits": 2**64,
    "largest": 9 * 10**125,
    "fraction": Decimal("3.1415926535897932384626433832795028841"),
    "smallest": Decimal("1E-130"),
    "bytes": b"\x00\xff",
    "no bytes": b"",
    "set of text": frozenset({"b", "a", ""}),
    "set of numbers": frozenset({1, Decimal("2.5"), -3}),
    "set of bytes": frozenset({b"x", b"\x00"}),
    "list": ["a", 1, None, True, ["nested"]],
    "no elements": [],
    "map": {"a": {"b": [{"c": Decimal("0.1")}]}},
    "no entries": {},
    "map that looks like a tag": {"$n": "1", "$ss": ["x"], "S": "text"},
    "one key that looks like a tag": [{"$n": "1"}, {"$b": "AA=="}, {"S": "x"}, {"$": 1}],
    "names with dots and dashes": {"a.b": 1, "GSI1-PK": 2, "#x": 3, ":y": 4, "a[0]": 5},
    "as deep as it goes": nested(31),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=list(VALUES))
def test_a_value_is_read_back_as_it_was_put(store: Store, value: object) -> None:
    """Every kind of value survives, of the same type and to the last digit."""
    store.put(NOTES, note(value=value))
    found = store.get(NOTES, KEY)
    assert found == note(value=value)
    assert same(found["value"], value)


@pytest.mark.parametrize("value", VALUES.values(), ids=list(VALUES))
def test_a_value_is_read_back_as_an_update_set_it(store: Store, value: object) -> None:
    written = store.update(NOTES, KEY, attr("value").set_to(value))
    assert written.new == store.get(NOTES, KEY) == note(value=value)


@pytest.mark.parametrize(
    ("put", "read"),
    [
        (Decimal("1.500"), Decimal("1.5")),
        (Decimal(100), 100),
        (Decimal("1E+3"), 1000),
        (Decimal("-0"), 0),
        (("a", ("b",)), ["a", ["b"]]),
        ({"x"}, frozenset({"x"})),
        ({1, Decimal("1.0")}, frozenset({1})),
    ],
    ids=str,
)
def test_equal_values_are_normalised_to_one_form(store: Store, put: object, read: object) -> None:
    """Numbers lose insignificant zeros; tuples become lists, sets frozensets; the same on every backend."""
    store.put(NOTES, note(value=put))
    found = store.get(NOTES, KEY)
    assert found == note(value=read)
    assert type(found["value"]) is type(read)


REFUSED = {
    "a float": 1.5,
    "no number": float("nan"),
    "a float in a list": [0.1],
    "no decimal": Decimal("NaN"),
    "infinity": Decimal("Infinity"),
    "39 digits": 10**38 + 1,
    "39 digits of fraction": Decimal("1." + "1" * 38),
    "too large": Decimal("1E+126"),
    "too small": Decimal("1E-131"),
    "an empty set": set[str](),
    "a mixed set": {1, "a"},
    "a set of flags": frozenset({True}),
    "a lone surrogate": "\ud800",
    "an empty name": {"": 1},
    "a name that is a number": {1: "a"},
    "an object": object(),
    "too deep": nested(32),
    "a bytearray": bytearray(b"x"),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=list(REFUSED))
def test_a_value_that_cannot_be_stored_exactly_is_refused_before_anything_is_written(
    store: Store, value: object
) -> None:
    with pytest.raises(BadRequest):
        store.put(NOTES, note(value=value))
    with pytest.raises(BadRequest):
        store.update(NOTES, KEY, set_all({"value": value}))
    assert store.get(NOTES, KEY) is None


@pytest.mark.parametrize(
    "key",
    [Key(""), Key("p", "s"), Key("x" * 2049), Key("\ud800"), Key(7), Key(None)],  # type: ignore[arg-type]
    ids=["empty", "with a sort key", "too long", "a lone surrogate", "a number", "null"],
)
def test_an_invalid_key_is_refused(store: Store, key: Key) -> None:
    for call in (store.get, store.delete):
        with pytest.raises(BadRequest):
            call(FLAGS, key)
    with pytest.raises(BadRequest):
        store.update(FLAGS, key, attr("a").set_to(1))


def test_keys_of_the_maximum_length_are_accepted(store: Store) -> None:
    """2,048 bytes of partition key and 1,024 of sort key, counted as UTF-8."""
    longest = {"pk": "é" * 1024, "sk": "é" * 512, "at": "x" * 1024, "topic": "t" * 2048}
    store.put(NOTES, longest)
    assert store.get(NOTES, Key("é" * 1024, "é" * 512)) == longest
    for name, text in (("sk", "é" * 513), ("pk", "é" * 1025), ("at", "x" * 1025), ("topic", "t" * 2049)):
        with pytest.raises(BadRequest, match=name):
            store.put(NOTES, {**longest, name: text})


def test_an_item_without_its_key_is_refused(store: Store) -> None:
    with pytest.raises(BadRequest, match="sk"):
        store.put(NOTES, {"pk": "p"})


def test_an_index_key_is_text_or_absent(store: Store) -> None:
    """DynamoDB refuses anything else; here all do, for puts and for updates, and nothing is written."""
    for value in (1, "", None, ["x"], True):
        with pytest.raises(BadRequest, match="topic"):
            store.put(NOTES, note(topic=value))
        with pytest.raises(BadRequest, match="topic"):
            store.update(NOTES, KEY, attr("topic").set_to(value))
    for update in (attr("topic").plus(1), attr("topic")["x"].set_to("y"), attr("topic").add_elements(["x"])):
        with pytest.raises(BadRequest, match="topic"):
            store.update(NOTES, KEY, update)
    assert store.get(NOTES, KEY) is None


def test_a_key_cannot_be_updated(store: Store) -> None:
    with pytest.raises(BadRequest, match="pk"):
        store.update(NOTES, KEY, attr("pk").set_to("other"))


def test_an_item_over_400_kb_is_refused_by_name_and_size_and_nothing_is_written(store: Store) -> None:
    """One byte less is accepted."""
    overhead = len("pk") + 1 + len("sk") + 1 + len("v")
    store.put(NOTES, note(v="x" * (ITEM_BYTES_MOST - overhead)))
    with pytest.raises(ItemTooLarge, match=rf'notes "p"/"s" has {ITEM_BYTES_MOST + 1} bytes'):
        store.put(NOTES, note(v="x" * (ITEM_BYTES_MOST - overhead + 1)))
    with pytest.raises(ItemTooLarge):
        store.update(NOTES, KEY, attr("w").set_to("one more"))
    found = store.get(NOTES, KEY)
    assert found is not None
    assert set(found) == {"pk", "sk", "v"}


def test_a_caller_may_change_an_item_without_changing_the_store(store: Store) -> None:
    """Changing an item that was read, or put, changes nothing in the store."""
    mine = note(tags=["a"], map={"k": [1]})
    store.put(NOTES, mine)
    mine["tags"].append("b")
    first = store.get(NOTES, KEY)
    assert first is not None
    first["map"]["k"].append(2)
    first["new"] = True
    listed = store.query(Query(NOTES, "p")).items[0]
    listed["tags"].clear()
    written = store.update(NOTES, KEY, attr("n").set_to(1))
    written.new["tags"].append("c")
    assert store.get(NOTES, KEY) == note(tags=["a"], map={"k": [1]}, n=1)


def test_items_are_distinguished_by_their_whole_key(store: Store) -> None:
    store.put(NOTES, {"pk": "a", "sk": "b#c"})
    store.put(NOTES, {"pk": "a#b", "sk": "c"})
    store.put(NOTES, {"pk": "A", "sk": "b#c"})
    assert store.get(NOTES, Key("a", "b")) is None
    for key in (Key("a", "b#c"), Key("a#b", "c"), Key("A", "b#c")):
        assert store.get(NOTES, key) == {"pk": key.partition, "sk": key.sort}


def test_a_batch_has_an_entry_for_each_key_in_order(store: Store) -> None:
    """More keys than one DynamoDB call takes, some absent, some named twice."""
    for number in range(0, 250, 2):
        store.put(NOTES, {"pk": "p", "sk": str(number), "n": number})
    keys = [Key("p", str(number)) for number in range(250)] + [Key("p", "4"), Key("p", "none")]
    found = store.batch_get(NOTES, keys)
    assert [item and item["n"] for item in found] == [n if n % 2 == 0 else None for n in range(250)] + [4, None]
    assert store.batch_get(NOTES, keys[:10], consistent=True) == found[:10]
    assert store.batch_get(NOTES, []) == []


def test_an_expired_item_is_never_returned(backend: Backend) -> None:
    """Not by get, batch or query; from the exact second of its TTL."""
    store, clock = backend.store, backend.clock
    expires = clock.now().epoch_seconds + 60
    store.put(NOTES, note(ttl=expires, topic="t", at="1"))
    store.put(NOTES, {"pk": "p", "sk": "stays", "ttl": "not a number"})
    clock.advance(59)
    assert store.get(NOTES, KEY) is not None
    clock.advance(1)
    assert store.get(NOTES, KEY) is None
    assert store.batch_get(NOTES, [KEY]) == [None]
    assert [item["sk"] for item in store.query(Query(NOTES, "p")).items] == ["stays"]
    assert store.query(Query(NOTES, "t", index="by-topic")).items == []


def test_until_it_is_removed_an_expired_item_exists_for_conditions_and_updates(backend: Backend) -> None:
    """As in DynamoDB, which takes up to days to remove it; so an update can extend its life."""
    store, clock = backend.store, backend.clock
    store.put(NOTES, note(ttl=clock.now().epoch_seconds - 1, n=1))
    written = store.update(NOTES, KEY, attr("ttl").set_to(clock.now().epoch_seconds + 60), attr("n").equals(1))
    assert written.old is not None
    assert store.get(NOTES, KEY) == written.new


def test_removing_expired_items_removes_those_and_no_others(backend: Backend) -> None:
    """DynamoDB does it by itself, so there is nothing left to do there."""
    store, now = backend.store, backend.clock.now().epoch_seconds
    for number in range(10):
        store.put(NOTES, {"pk": "p", "sk": str(number), "ttl": now - 5 + number})
    store.put(NOTES, {"pk": "p", "sk": "for ever"})
    removed = [store.remove_expired(NOTES, most=4), store.remove_expired(NOTES), store.remove_expired(NOTES)]
    assert removed == ([0, 0, 0] if backend.name == "dynamodb" else [4, 2, 0])
    assert len(store.query(Query(NOTES, "p")).items) == 5
    assert store.remove_expired(FLAGS) == 0
