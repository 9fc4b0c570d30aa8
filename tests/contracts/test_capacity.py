"""What a call consumes: our own calculation equals DynamoDB's figures.

Each figure here is what DynamoDB Local reports; memory and SQLite must calculate the same.
"""

from decimal import Decimal

import pytest

from holdfast.kernel.errors import WriteConflict
from holdfast.ports.store import (
    CheckItem,
    Consumed,
    DeleteItem,
    Item,
    Key,
    PutItem,
    Query,
    Store,
    UpdateItem,
    attr,
    set_all,
)
from tests.contracts.backends import FLAGS, NOTES, Backend

KEY = Key("p", "s")
IN_NO_INDEX: Item = {"pk": "p", "sk": "s"}
IN_ALL: Item = {"pk": "p", "sk": "s", "topic": "t", "owner": "o", "kind": "k", "at": "1", "title": "T", "body": "B"}


def padded(item: Item, size_bytes: int) -> Item:
    """The item, made that large by text in an attribute `pad`."""
    rest = sum(len(name) + len(value) for name, value in item.items())
    return {**item, "pad": "x" * (size_bytes - rest - len("pad"))}


def figures(consumed: list[Consumed]) -> list[tuple[str, float, float, dict[str, float]]]:
    found = [(c.call, c.read_units, c.write_units, dict(c.index_units)) for c in consumed]
    consumed.clear()
    return found


@pytest.mark.parametrize(("size_bytes", "units"), [(4, 1), (1024, 1), (1025, 2), (3000, 3), (102_400, 100)])
def test_a_put_costs_a_unit_for_each_started_kilobyte(
    metered: Store, consumed: list[Consumed], size_bytes: int, units: int
) -> None:
    item = IN_NO_INDEX if size_bytes == 4 else padded(IN_NO_INDEX, size_bytes)
    metered.put(NOTES, item)
    assert figures(consumed) == [("put", 0, units, {})]


@pytest.mark.parametrize(("size_bytes", "units"), [(100, 1), (4096, 1), (4097, 2), (20_000, 5)])
def test_a_get_costs_a_unit_for_each_started_4_kilobytes_and_half_if_eventually_consistent(
    metered: Store, consumed: list[Consumed], size_bytes: int, units: int
) -> None:
    metered.put(NOTES, padded(IN_NO_INDEX, size_bytes))
    consumed.clear()
    metered.get(NOTES, KEY)
    metered.get(NOTES, KEY, consistent=False)
    assert figures(consumed) == [("get", units, 0, {}), ("get", units / 2, 0, {})]


def test_a_get_of_a_missing_item_costs_the_minimum(metered: Store, consumed: list[Consumed]) -> None:
    metered.get(NOTES, KEY)
    metered.get(NOTES, KEY, consistent=False)
    assert figures(consumed) == [("get", 1, 0, {}), ("get", 0.5, 0, {})]


def test_a_batch_costs_the_sum_of_its_items(metered: Store, consumed: list[Consumed]) -> None:
    metered.put(NOTES, padded(IN_NO_INDEX, 5000))
    metered.put(NOTES, {"pk": "p", "sk": "small"})
    consumed.clear()
    keys = [KEY, Key("p", "small"), Key("p", "absent")]
    metered.batch_get(NOTES, keys)
    metered.batch_get(NOTES, keys, consistent=True)
    assert figures(consumed) == [("batch_get", 1.5, 0, {}), ("batch_get", 3, 0, {})]


def test_a_query_costs_by_the_total_size_of_its_page(metered: Store, consumed: list[Consumed]) -> None:
    for number in range(10):
        metered.put(NOTES, padded({"pk": "p", "sk": str(number)}, 1000))
    consumed.clear()
    metered.query(Query(NOTES, "p"))
    metered.query(Query(NOTES, "p", consistent=True))
    metered.query(Query(NOTES, "p", limit=4))
    metered.query(Query(NOTES, "p", limit=5))
    metered.query(Query(NOTES, "none"))
    metered.query(Query(NOTES, "none", consistent=True))
    assert [figure[1] for figure in figures(consumed)] == [1.5, 3, 0.5, 1, 0, 0]


def test_a_query_of_an_index_costs_by_the_size_of_its_entries(metered: Store, consumed: list[Consumed]) -> None:
    """A keys-only index is cheap to read, whatever the size of its items."""
    for number in range(10):
        metered.put(NOTES, padded({**IN_ALL, "sk": str(number)}, 3000))
    consumed.clear()
    metered.query(Query(NOTES, "t", index="by-topic"))
    metered.query(Query(NOTES, "o", index="by-owner"))
    metered.query(Query(NOTES, "k", index="by-kind"))
    metered.query(Query(NOTES, "none", index="by-kind"))
    assert figures(consumed) == [
        ("query", 4, 0, {"by-topic": 4}),
        ("query", 0.5, 0, {"by-owner": 0.5}),
        ("query", 0.5, 0, {"by-kind": 0.5}),
        ("query", 0, 0, {"by-kind": 0}),
    ]


def test_expired_items_are_paid_for_though_they_are_not_returned(backend: Backend, consumed: list[Consumed]) -> None:
    metered = backend.store.metered(consumed.append)
    metered.put(NOTES, {**padded(IN_NO_INDEX, 8000), "ttl": backend.clock.now().epoch_seconds - 1})
    consumed.clear()
    assert metered.get(NOTES, KEY) is None
    assert metered.query(Query(NOTES, "p")).items == []
    assert [figure[1] for figure in figures(consumed)] == [2, 1]


def test_a_new_item_is_paid_for_in_each_index_that_holds_it(metered: Store, consumed: list[Consumed]) -> None:
    metered.put(NOTES, IN_ALL)
    assert figures(consumed) == [("put", 0, 4, {"by-topic": 1, "by-owner": 1, "by-kind": 1})]
    metered.put(NOTES, padded({**IN_ALL, "sk": "large"}, 3000))
    assert figures(consumed) == [("put", 0, 8, {"by-topic": 3, "by-owner": 1, "by-kind": 1})]


def test_an_index_whose_entry_stays_the_same_is_free(metered: Store, consumed: list[Consumed]) -> None:
    """The body is in one index only; the title in two; a value set to what it was is in none."""
    metered.put(NOTES, IN_ALL)
    consumed.clear()
    metered.update(NOTES, KEY, attr("body").set_to("C"))
    assert figures(consumed) == [("update", 0, 2, {"by-topic": 1})]
    metered.update(NOTES, KEY, attr("title").set_to("U"))
    assert figures(consumed) == [("update", 0, 3, {"by-topic": 1, "by-kind": 1})]
    metered.update(NOTES, KEY, attr("title").set_to("U"))
    assert figures(consumed) == [("update", 0, 1, {})]


def test_an_index_key_that_moves_is_paid_for_twice(metered: Store, consumed: list[Consumed]) -> None:
    """The old entry is deleted and a new one put."""
    metered.put(NOTES, IN_ALL)
    consumed.clear()
    metered.update(NOTES, KEY, attr("owner").set_to("p"))
    assert figures(consumed) == [("update", 0, 4, {"by-topic": 1, "by-owner": 2})]
    metered.update(NOTES, KEY, attr("at").set_to("2"))
    assert figures(consumed) == [("update", 0, 5, {"by-topic": 2, "by-kind": 2})]


def test_an_item_that_enters_or_leaves_an_index_is_paid_for_once(metered: Store, consumed: list[Consumed]) -> None:
    metered.put(NOTES, IN_NO_INDEX)
    consumed.clear()
    metered.update(NOTES, KEY, attr("owner").set_to("o"))
    assert figures(consumed) == [("update", 0, 2, {"by-owner": 1})]
    metered.update(NOTES, KEY, attr("owner").remove())
    assert figures(consumed) == [("update", 0, 2, {"by-owner": 1})]
    metered.put(NOTES, IN_ALL)
    consumed.clear()
    metered.delete(NOTES, KEY)
    assert figures(consumed) == [("delete", 0, 4, {"by-topic": 1, "by-owner": 1, "by-kind": 1})]


def test_the_larger_of_the_old_and_the_new_item_is_paid_for(metered: Store, consumed: list[Consumed]) -> None:
    metered.put(NOTES, padded(IN_NO_INDEX, 5000))
    consumed.clear()
    metered.update(NOTES, KEY, attr("pad").set_to("small"))
    assert figures(consumed) == [("update", 0, 5, {})]
    metered.put(NOTES, padded(IN_NO_INDEX, 2000))
    metered.delete(NOTES, KEY)
    metered.delete(NOTES, KEY)
    assert [figure[2] for figure in figures(consumed)] == [2, 2, 1]


def test_a_refused_write_is_paid_for_as_well(metered: Store, consumed: list[Consumed]) -> None:
    """DynamoDB charges the item that was found, and does not report it: this is our own estimate on every backend."""
    metered.put(NOTES, padded(IN_NO_INDEX, 3000))
    consumed.clear()
    for key in (KEY, Key("p", "absent")):
        with pytest.raises(WriteConflict):
            metered.update(NOTES, key, attr("n").set_to(1), attr("n").exists())
    assert [c.conflict for c in consumed] == [True, True]
    assert figures(consumed) == [("update", 0, 3, {}), ("update", 0, 1, {})]


def test_sizes_are_counted_as_dynamodb_counts_them(metered: Store, consumed: list[Consumed]) -> None:
    """At the edge of a kilobyte: one more byte is one more unit, for values of every type."""
    values: dict[str, tuple[object, int]] = {
        "text": ("é🚀", 6),
        "number": (12345, 4),
        "even number": (1234, 3),
        "round number": (1_790_000_000, 3),
        "fraction": (Decimal("-1.5"), 4),
        "zero": (0, 1),
        "flag": (True, 1),
        "null": (None, 1),
        "bytes": (b"abc", 3),
        "set": (frozenset({"ab", "c"}), 3),
        "numbers": (frozenset({1, 22}), 4),
        "list": (["ab", True], 3 + 3 + 2),
        "map": ({"key": "v"}, 3 + 3 + 1 + 1),
    }
    for name, (value, size_bytes) in values.items():
        filled = {"pk": "p", "sk": "s", "v": value}
        pad = 1024 - len("pkpsksv") - 1 - size_bytes - len("pad") + 1
        metered.put(NOTES, {**filled, "pad": "x" * pad})
        metered.delete(NOTES, KEY)
        metered.put(NOTES, {**filled, "pad": "x" * (pad + 1)})
        metered.delete(NOTES, KEY)
        assert (name, [figure[2] for figure in figures(consumed)]) == (name, [1, 1, 2, 2])


def test_a_transaction_costs_twice_its_writes(backend: Backend, consumed: list[Consumed]) -> None:
    """As documented. DynamoDB Local reports twice that again for one write, and less than that for several."""
    metered = backend.store.metered(consumed.append)
    metered.transact([PutItem(NOTES, {**IN_NO_INDEX, "owner": "o"})])
    times = 2 if backend.name == "dynamodb" else 1
    assert figures(consumed) == [("transact", 0, 4 * times, {"by-owner": 2 * times})]
    metered.put(FLAGS, {"pk": "fence", "n": 1})
    metered.put(FLAGS, {"pk": "old"})
    consumed.clear()
    metered.transact(
        [
            CheckItem(FLAGS, Key("fence"), attr("n").equals(1)),
            PutItem(FLAGS, {"pk": "new", "pad": "x" * 1500}),
            UpdateItem(FLAGS, Key("made"), set_all({"n": 1})),
            DeleteItem(FLAGS, Key("old")),
        ]
    )
    assert {c.call for c in consumed} == {"transact"}
    assert sum(c.write_units for c in consumed) == (12 if backend.name == "dynamodb" else 10)


def test_nothing_is_requested_or_calculated_without_a_meter(
    store: Store, metered: Store, consumed: list[Consumed]
) -> None:
    """The unmetered store stays unmetered when a metered twin of it is created."""
    store.put(NOTES, IN_ALL)
    assert consumed == []
    metered.put(NOTES, IN_ALL)
    assert len(consumed) == 1
