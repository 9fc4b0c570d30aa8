"""Conditional writes: one wins, the loser gets the winning item, nothing is half written."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest

from holdfast.kernel.errors import BadRequest, ItemTooLarge, WriteConflict
from holdfast.ports.store import (
    Attribute,
    CheckItem,
    Condition,
    DeleteItem,
    Item,
    Key,
    PutItem,
    Query,
    SortRange,
    Store,
    Update,
    UpdateItem,
    attr,
    remove_all,
    set_all,
)
from holdfast.ports.store.paths import Path
from tests.contracts.backends import FLAGS, NOTES

KEY = Key("p", "s")
BARE: Item = {"pk": "p", "sk": "s"}
ITEM: Item = {
    **BARE,
    "number": 5,
    "fraction": Decimal("1.5"),
    "text": "hello",
    "empty": "",
    "flag": True,
    "null": None,
    "raw": b"abc",
    "words": frozenset({"a", "b"}),
    "numbers": frozenset({1, 2}),
    "list": ["x", 1, True, {"k": 1}],
    "map": {"inner": {"n": 1}},
}

# Every condition, with whether it holds of ITEM and whether it holds of an absent item.
CONDITIONS: list[tuple[Condition, bool, bool]] = [
    (attr("number").equals(5), True, False),
    (attr("number").equals(Decimal("5.0")), True, False),
    (attr("number").equals("5"), False, False),
    (attr("number").differs_from(5), False, True),
    (attr("number").differs_from("5"), True, True),
    (attr("none").differs_from(5), True, True),
    (attr("number").less_than(6), True, False),
    (attr("number").less_than(5), False, False),
    (attr("number").at_most(5), True, False),
    (attr("number").greater_than(Decimal("4.999")), True, False),
    (attr("number").greater_than(5), False, False),
    (attr("number").at_least(5), True, False),
    (attr("number").less_than("6"), False, False),
    (attr("none").less_than(6), False, False),
    (~attr("none").less_than(6), True, True),
    (attr("fraction").greater_than(1), True, False),
    (attr("text").less_than("hellp"), True, False),
    (attr("text").greater_than("hello"), False, False),
    (attr("text").greater_than("Z"), True, False),
    (attr("raw").less_than(b"abd"), True, False),
    (attr("flag").equals(True), True, False),
    (attr("flag").equals(1), False, False),
    (attr("null").equals(None), True, False),
    (attr("none").equals(None), False, False),
    (attr("words").equals({"b", "a"}), True, False),
    (attr("list").equals(["x", 1, True, {"k": 1}]), True, False),
    (attr("list").equals(["x", 1, 1, {"k": 1}]), False, False),
    (attr("map").equals({"inner": {"n": 1}}), True, False),
    (attr("text").exists(), True, False),
    (attr("none").exists(), False, False),
    (attr("null").exists(), True, False),
    (attr("text").is_absent(), False, True),
    (attr("none").is_absent(), True, True),
    (attr("pk").is_absent(), False, True),
    (attr("pk").equals("p"), True, False),
    (attr("map")["inner"]["n"].equals(1), True, False),
    (attr("map")["inner"]["none"].is_absent(), True, True),
    (attr("map")["none"]["n"].is_absent(), True, True),
    (attr("text")["n"].is_absent(), True, True),
    (attr("list")[3]["k"].equals(1), True, False),
    (attr("list")[0].equals("x"), True, False),
    (attr("list")[9].is_absent(), True, True),
    (attr("text").begins_with("hel"), True, False),
    (attr("text").begins_with(""), True, False),
    (attr("text").begins_with("Hel"), False, False),
    (attr("number").begins_with("5"), False, False),
    (attr("text").contains("ell"), True, False),
    (attr("text").contains("Ell"), False, False),
    (attr("words").contains("a"), True, False),
    (attr("words").contains("c"), False, False),
    (attr("numbers").contains(2), True, False),
    (attr("numbers").contains("2"), False, False),
    (attr("list").contains(1), True, False),
    (attr("list").contains("k"), False, False),
    (attr("map").contains("inner"), False, False),
    (attr("none").contains("a"), False, False),
    (~attr("none").contains("a"), True, True),
    (attr("words").has_size(2), True, False),
    (attr("list").has_size(4), True, False),
    (attr("map").has_size(1), True, False),
    (attr("text").has_size(5), True, False),
    (attr("empty").has_size(0), True, False),
    (attr("raw").has_size(3), True, False),
    (attr("none").has_size(0), False, False),
    (attr("list").is_larger_than(3), True, False),
    (attr("list").is_larger_than(4), False, False),
    (attr("list").is_smaller_than(5), True, False),
    (attr("number").equals(5) & attr("text").equals("hello"), True, False),
    (attr("number").equals(5) & attr("text").equals("no"), False, False),
    (attr("number").equals(6) | attr("none").is_absent(), True, True),
    (attr("number").equals(6) | attr("text").equals("no"), False, False),
    ((attr("number").equals(6) | attr("number").equals(5)) & ~attr("none").exists(), True, False),
    (~(attr("number").equals(5) & attr("text").exists()), False, True),
    (attr("a").is_absent() | attr("number").equals(1) & attr("number").equals(2), True, True),
]


@pytest.mark.parametrize(("condition", "holds", "holds_of_nothing"), CONDITIONS, ids=[str(c[0]) for c in CONDITIONS])
def test_a_condition_means_the_same_everywhere(
    store: Store, condition: Condition, holds: bool, holds_of_nothing: bool
) -> None:
    """Each condition, against an item and against an absent one, decides whether a write takes place."""
    store.put(NOTES, ITEM)
    assert _takes_place(store, KEY, condition) is holds
    assert _takes_place(store, Key("p", "absent"), condition) is holds_of_nothing


def _takes_place(store: Store, key: Key, condition: Condition) -> bool:
    before = store.get(NOTES, key)
    lost = None
    try:
        store.update(NOTES, key, attr("written").set_to(1), condition)
    except WriteConflict as conflict:
        lost = conflict
    if lost is not None:
        assert lost.item == before == store.get(NOTES, key)
        return False
    assert store.get(NOTES, key) == {**(before or {"pk": key.partition, "sk": key.sort}), "written": 1}
    return True


NESTED: Item = {**BARE, "map": {"a": 1, "list": [1, 2]}, "list": [{"k": 1}, {"k": 2}], "words": frozenset({"a", "b"})}

# Every change, what it is applied to, and the result.
UPDATES: list[tuple[str, Update, Item, Item]] = [
    ("set", attr("n").set_to(1), BARE, {**BARE, "n": 1}),
    ("set over", attr("n").set_to("x"), {**BARE, "n": 1}, {**BARE, "n": "x"}),
    ("set if absent", attr("n").set_if_absent(1), BARE, {**BARE, "n": 1}),
    ("set if absent, present", attr("n").set_if_absent(1), {**BARE, "n": None}, {**BARE, "n": None}),
    ("plus from nothing", attr("n").plus(2), BARE, {**BARE, "n": 2}),
    ("plus", attr("n").plus(-3), {**BARE, "n": 2}, {**BARE, "n": -1}),
    ("plus a fraction", attr("n").plus(Decimal("0.5")), {**BARE, "n": Decimal("1.5")}, {**BARE, "n": 2}),
    ("plus to 39 digits that end in zeros", attr("n").plus(1), {**BARE, "n": 10**38 - 1}, {**BARE, "n": 10**38}),
    ("remove", attr("n").remove(), {**BARE, "n": 1}, BARE),
    ("remove nothing", attr("n").remove(), BARE, BARE),
    ("remove several", remove_all("a", "b", "c"), {**BARE, "a": 1, "c": 1}, BARE),
    ("set several", set_all({"a": 1, "b-c.d": 2}), BARE, {**BARE, "a": 1, "b-c.d": 2}),
    ("set in a map", attr("map")["a"].set_to(2), NESTED, {**NESTED, "map": {"a": 2, "list": [1, 2]}}),
    ("set new in a map", attr("map")["b"].set_to(2), NESTED, {**NESTED, "map": {"a": 1, "list": [1, 2], "b": 2}}),
    ("plus in a map", attr("map")["a"].plus(2), NESTED, {**NESTED, "map": {"a": 3, "list": [1, 2]}}),
    ("remove from a map", attr("map")["a"].remove(), NESTED, {**NESTED, "map": {"list": [1, 2]}}),
    ("set in a list", attr("list")[1].set_to("x"), NESTED, {**NESTED, "list": [{"k": 1}, "x"]}),
    (
        "set in a map in a list",
        attr("list")[0]["i"].set_to("x"),
        NESTED,
        {**NESTED, "list": [{"k": 1, "i": "x"}, {"k": 2}]},
    ),
    ("set past the end", attr("list")[9].set_to("x"), NESTED, {**NESTED, "list": [{"k": 1}, {"k": 2}, "x"]}),
    (
        "set twice past the end",
        attr("list")[9].set_to("later") + attr("list")[7].set_to("sooner"),
        NESTED,
        {**NESTED, "list": [{"k": 1}, {"k": 2}, "sooner", "later"]},
    ),
    ("add elements", attr("words").add_elements(["b", "c"]), NESTED, {**NESTED, "words": frozenset({"a", "b", "c"})}),
    ("add elements to nothing", attr("ids").add_elements([1]), BARE, {**BARE, "ids": frozenset({1})}),
    ("drop elements", attr("words").drop_elements(["b", "z"]), NESTED, {**NESTED, "words": frozenset({"a"})}),
    (
        "drop the last",
        attr("words").drop_elements(["a", "b"]),
        NESTED,
        {k: v for k, v in NESTED.items() if k != "words"},
    ),
    ("drop from nothing", attr("ids").drop_elements([1]), BARE, BARE),
    (
        "all at once",
        attr("a").set_to(1) + attr("b").plus(1) + attr("c").remove() + attr("d").add_elements(["x"]),
        {**BARE, "b": 1, "c": 1},
        {**BARE, "a": 1, "b": 2, "d": frozenset({"x"})},
    ),
]


@pytest.mark.parametrize(("update", "before", "after"), [u[1:] for u in UPDATES], ids=[u[0] for u in UPDATES])
def test_an_update_means_the_same_everywhere(store: Store, update: Update, before: Item, after: Item) -> None:
    """The item that the update returns is the one that is stored, and the old one is the one before."""
    store.put(NOTES, before)
    written = store.update(NOTES, KEY, update)
    assert (written.old, written.new) == (before, after)
    assert store.get(NOTES, KEY) == after


def test_an_update_of_an_absent_item_creates_it(store: Store) -> None:
    written = store.update(NOTES, KEY, attr("fence").plus(1))
    assert (written.old, written.new) == (None, {**BARE, "fence": 1})
    assert store.get(NOTES, KEY) == written.new


IMPOSSIBLE: list[tuple[str, Update]] = [
    ("plus on text", attr("text").plus(1)),
    ("elements into text", attr("text").add_elements(["x"])),
    ("numbers into a set of text", attr("words").add_elements([1])),
    ("numbers out of a set of text", attr("words").drop_elements([1])),
    ("into a map that is absent", attr("none")["k"].set_to(1)),
    ("out of a map that is absent", attr("none")["k"].remove()),
    ("into text", attr("text")["k"].set_to(1)),
    ("a position in a map", attr("map")[0].set_to(1)),
    ("if absent, into a map that is absent", attr("none")["k"].set_if_absent(1)),
    ("plus past 38 digits", attr("huge").plus(1)),
]


@pytest.mark.parametrize("update", [u[1] for u in IMPOSSIBLE], ids=[u[0] for u in IMPOSSIBLE])
def test_an_update_that_does_not_fit_the_item_is_refused_as_a_whole(store: Store, update: Update) -> None:
    """Even the part that would fit is not written; but a failed condition takes precedence."""
    item = {**ITEM, "huge": 10**38}
    store.put(NOTES, item)
    with pytest.raises(BadRequest):
        store.update(NOTES, KEY, attr("fits").set_to(1) + update)
    with pytest.raises(WriteConflict):
        store.update(NOTES, KEY, update, attr("number").equals(0))
    assert store.get(NOTES, KEY) == item


def test_an_update_changes_each_attribute_only_once() -> None:
    for one, other in (
        (attr("a").set_to(1), attr("a").remove()),
        (attr("a").set_to({}), attr("a")["b"].set_to(1)),
        (attr("a")[0].set_to(1), attr("a").remove()),
    ):
        with pytest.raises(BadRequest, match="overlap"):
            one + other


def test_an_update_without_a_change_is_refused(store: Store) -> None:
    with pytest.raises(BadRequest):
        store.update(NOTES, KEY, Update(()))


def test_of_two_writers_one_wins_and_the_loser_gets_the_winning_item(store: Store) -> None:
    store.put(NOTES, {**BARE, "owner": "first"}, attr("pk").is_absent())
    with pytest.raises(WriteConflict) as lost:
        store.put(NOTES, {**BARE, "owner": "second"}, attr("pk").is_absent())
    assert lost.value.item == {**BARE, "owner": "first"} == store.get(NOTES, KEY)
    assert "pk is absent" in str(lost.value)
    assert 'notes "p"/"s"' in str(lost.value)


def test_a_conflict_on_an_absent_item_says_that_there_is_none(store: Store) -> None:
    for write in (
        lambda: store.update(NOTES, KEY, attr("n").set_to(1), attr("pk").exists()),
        lambda: store.put(NOTES, BARE, attr("pk").exists()),
        lambda: store.delete(NOTES, KEY, attr("pk").exists()),
    ):
        with pytest.raises(WriteConflict) as lost:
            write()
        assert lost.value.item is None
    assert store.get(NOTES, KEY) is None


def test_a_delete_with_a_condition_deletes_only_if_it_holds(store: Store) -> None:
    store.put(NOTES, {**BARE, "n": 1})
    with pytest.raises(WriteConflict) as lost:
        store.delete(NOTES, KEY, attr("n").equals(2))
    assert lost.value.item == {**BARE, "n": 1}
    store.delete(NOTES, KEY, attr("n").equals(1))
    assert store.get(NOTES, KEY) is None
    store.delete(NOTES, KEY)


def test_of_many_concurrent_writers_exactly_one_wins_each_round(store: Store) -> None:
    """Eight threads compare and set one number; every value is written by one of them, and none is skipped."""

    def write_rounds(writer: int) -> list[int]:
        won = []
        for value in range(20):
            try:
                store.update(FLAGS, Key("f"), set_all({"n": value + 1, "by": writer}), attr("n").equals(value))
                won.append(value)
            except WriteConflict as conflict:
                winners.append((value, conflict.item))
        return won

    winners: list[tuple[int, Item | None]] = []
    store.put(FLAGS, {"pk": "f", "n": 0})
    with ThreadPoolExecutor(8) as pool:
        won = [value for values in pool.map(write_rounds, range(8)) for value in values]
    reached = store.get(FLAGS, Key("f"))
    assert reached is not None
    assert sorted(won) == list(range(reached["n"]))
    assert all(item is not None and item["n"] != value for value, item in winners)


def test_concurrent_additions_are_all_counted(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        news = list(pool.map(lambda _: store.update(FLAGS, Key("f"), attr("n").plus(1)).new["n"], range(200)))
    assert sorted(news) == list(range(1, 201))


def test_a_transaction_writes_all(store: Store) -> None:
    store.put(NOTES, {**BARE, "n": 1})
    store.put(NOTES, {"pk": "p", "sk": "goes"})
    store.put(FLAGS, {"pk": "fence", "n": 7})
    store.transact(
        [
            CheckItem(FLAGS, Key("fence"), attr("n").equals(7)),
            UpdateItem(NOTES, KEY, attr("n").plus(1), attr("n").equals(1)),
            PutItem(NOTES, {"pk": "p", "sk": "new"}, attr("pk").is_absent()),
            DeleteItem(NOTES, Key("p", "goes")),
            UpdateItem(FLAGS, Key("made"), attr("n").set_to(1)),
        ]
    )
    assert store.get(NOTES, KEY) == {**BARE, "n": 2}
    assert store.get(NOTES, Key("p", "new")) is not None
    assert store.get(NOTES, Key("p", "goes")) is None
    assert store.get(FLAGS, Key("made")) == {"pk": "made", "n": 1}
    assert store.get(FLAGS, Key("fence")) == {"pk": "fence", "n": 7}


def test_a_transaction_with_one_failed_condition_writes_nothing_and_names_it(store: Store) -> None:
    store.put(NOTES, {**BARE, "n": 1})
    store.put(FLAGS, {"pk": "fence", "n": 8})
    with pytest.raises(WriteConflict) as lost:
        store.transact(
            [
                UpdateItem(NOTES, KEY, attr("n").plus(1)),
                CheckItem(FLAGS, Key("fence"), attr("n").equals(7)),
                PutItem(NOTES, {"pk": "p", "sk": "new"}),
                DeleteItem(FLAGS, Key("absent"), attr("pk").exists()),
            ]
        )
    assert lost.value.failed == (False, True, False, True)
    assert lost.value.item == {"pk": "fence", "n": 8}
    assert lost.value.items == (None, {"pk": "fence", "n": 8}, None, None)
    assert "n = 7" in str(lost.value)
    assert store.get(NOTES, KEY) == {**BARE, "n": 1}
    assert store.get(NOTES, Key("p", "new")) is None


@pytest.mark.parametrize(
    "writes",
    [
        [],
        [PutItem(FLAGS, {"pk": str(n)}) for n in range(101)],
        [PutItem(FLAGS, {"pk": "x"}), DeleteItem(FLAGS, Key("x"))],
        [PutItem(FLAGS, {"pk": "x"}), UpdateItem(NOTES, KEY, attr("pk").set_to("y"))],
        [PutItem(FLAGS, {"pk": "x"}), PutItem(FLAGS, {"pk": "y", "n": 1.5})],
    ],
    ids=["none", "101", "the same item twice", "a key changed", "a float"],
)
def test_an_invalid_transaction_is_refused_before_anything_is_written(store: Store, writes: Any) -> None:
    with pytest.raises(BadRequest):
        store.transact(writes)
    assert store.get(FLAGS, Key("x")) is None


def test_a_transaction_with_one_write_that_does_not_fit_its_item_writes_nothing(store: Store) -> None:
    store.put(NOTES, {**BARE, "text": "x"})
    for update, error in ((attr("text").plus(1), BadRequest), (attr("big").set_to("x" * 409_600), ItemTooLarge)):
        with pytest.raises(error):
            store.transact([PutItem(FLAGS, {"pk": "x"}), UpdateItem(NOTES, KEY, update)])
    assert store.get(FLAGS, Key("x")) is None


def test_a_hundred_writes_are_one_transaction(store: Store) -> None:
    store.transact([PutItem(FLAGS, {"pk": str(n)}) for n in range(100)])
    assert None not in store.batch_get(FLAGS, [Key(str(n)) for n in range(100)])


def test_concurrent_transactions_do_not_mix(store: Store) -> None:
    """Four threads move one between two counters; their sum never changes."""
    store.transact([PutItem(FLAGS, {"pk": "a", "n": 100}), PutItem(FLAGS, {"pk": "b", "n": 0})])

    def move(_: int) -> None:
        store.transact(
            [UpdateItem(FLAGS, Key("a"), attr("n").plus(-1)), UpdateItem(FLAGS, Key("b"), attr("n").plus(1))]
        )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(move, range(40)))
    left, right = store.batch_get(FLAGS, [Key("a"), Key("b")], consistent=True)
    assert left is not None
    assert right is not None
    assert (left["n"], right["n"]) == (60, 40)


def test_changing_the_item_that_an_update_returned_does_not_change_the_store(store: Store) -> None:
    """Also for values that came from the update itself, which may be reused."""
    update = attr("list").set_to([])
    store.update(NOTES, KEY, update).new["list"].append("leak")
    assert store.update(NOTES, Key("p", "other"), update).new["list"] == []
    twice = store.batch_get(NOTES, [KEY, KEY])
    assert twice[0] is not None
    twice[0]["list"].append("leak")
    assert twice[1] == {**BARE, "list": []}


def test_setting_past_the_end_of_a_list_appends_and_is_not_repeatable() -> None:
    assert attr("list").set_to([1]).is_repeatable
    assert attr("plan")[0]["i"].set_to("x").is_repeatable
    assert not attr("list")[9].set_to("x").is_repeatable
    assert not attr("list")[9].set_if_absent("x").is_repeatable
    assert not attr("n").plus(1).is_repeatable


class Letter(StrEnum):
    A = "a"


IMPOSSIBLE_CALLS: dict[str, Callable[[Store], object]] = {
    "a key of another type of text": lambda store: store.get(NOTES, Key("p", Letter.A)),
    "a partition of another type of text": lambda store: store.query(Query(NOTES, Letter.A)),
    "91 changes": lambda store: store.update(NOTES, KEY, set_all({f"a{n}": n for n in range(91)})),
    "91 conditions": lambda store: store.put(NOTES, BARE, all_of([attr(f"a{n}").exists() for n in range(91)])),
    "4 MB in a transaction": lambda store: store.transact(
        [PutItem(NOTES, {"pk": "p", "sk": str(n), "v": "x" * 390_000}) for n in range(12)]
    ),
    "a value that is too deep where it goes": lambda store: store.update(NOTES, KEY, attr("a")["b"].set_to(deep(31))),
    "a path of 33 parts": lambda store: store.put(NOTES, BARE, Attribute(Path(("a", *[0] * 32))).exists()),
    "a position past all lists": lambda store: store.update(NOTES, KEY, attr("a")[10**12].set_to(1)),
    "a name that is too long": lambda store: store.put(NOTES, {**BARE, "x" * 70_000: 1}),
    "a name that is no text": lambda store: store.update(NOTES, KEY, attr("\ud800").set_to(1)),
    "a range that is no text": lambda store: store.query(Query(NOTES, "p", SortRange.begins_with("\ud800"))),
    "a range that is too long": lambda store: store.query(Query(NOTES, "p", SortRange.after("x" * 1025))),
    "a limit past all pages": lambda store: store.query(Query(NOTES, "p", limit=2**31)),
    "a cursor that is no text": lambda store: store.query(Query(NOTES, "p", cursor=7)),  # type: ignore[arg-type]
    "a size that is no number": lambda store: store.put(NOTES, BARE, attr("a").has_size("2")),  # type: ignore[arg-type]
    "a check of nothing": lambda store: store.transact([CheckItem(NOTES, KEY, None)]),  # type: ignore[arg-type]
}


def all_of(conditions: list[Condition]) -> Condition:
    whole = conditions[0]
    for condition in conditions[1:]:
        whole &= condition
    return whole


def deep(levels: int) -> object:
    value: object = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("call", IMPOSSIBLE_CALLS.values(), ids=list(IMPOSSIBLE_CALLS))
def test_a_call_that_one_backend_does_not_support_is_refused_by_all(
    store: Store, call: Callable[[Store], object]
) -> None:
    with pytest.raises(BadRequest):
        call(store)
    assert store.get(NOTES, KEY) is None


def test_ninety_changes_and_conditions_fit(store: Store) -> None:
    update = Update(tuple(change for n in range(90) for change in attr(f"attribute-{n}").plus(1).changes))
    condition = all_of([attr(f"attribute-{n}").is_absent() for n in range(90)])
    assert len(store.update(NOTES, KEY, update, condition).new) == 92


def test_control_characters_in_a_name_are_escaped_in_errors(store: Store) -> None:
    for refused in (
        lambda: store.put(NOTES, BARE, attr("e\x1b[2J\n").equals(1)),
        lambda: store.put(NOTES, {**BARE, "e\x1b[2J\n": 1.5}),
        lambda: store.update(NOTES, KEY, attr("e\x1b[2J\n")["k"].set_to(1)),
    ):
        with pytest.raises((BadRequest, WriteConflict)) as error:
            refused()
        assert str(error.value).isprintable()
