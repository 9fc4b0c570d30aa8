"""The same random calls on two backends give the same results, one by one.

A Hypothesis state machine drives SQLite and DynamoDB Local (and, where there is no Java, SQLite and memory) and
compares every result, error and figure. PROTOCOL calls it BackendsEqual.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from holdfast.adapters.dynamodb.calls import DynamoCalls
from holdfast.kernel.errors import BadRequest, ItemTooLarge, WriteConflict
from holdfast.ports.store import (
    CheckItem,
    Condition,
    Consumed,
    DeleteItem,
    Item,
    Key,
    Page,
    PutItem,
    Query,
    SortRange,
    Update,
    UpdateItem,
    Write,
    attr,
)
from holdfast.ports.store.values import same
from tests.clocks import StillClock
from tests.contracts import backends
from tests.contracts.backends import NOTES, Backend

PARTITIONS = ("p", "q")
SORTS = ("a", "a#1", "b", "é", "\U0001f680")
TEXTS = ("", "a", "ab", "t", "u", "é", "\U0001f680", "x" * 700)
NAMES = ("n", "text", "set", "list", "map", "any")
INDEX_KEYS = {"topic": ("t", "u"), "owner": ("o",), "kind": ("k",), "at": ("1", "2", "3")}

keys = st.builds(Key, st.sampled_from(PARTITIONS), st.sampled_from(SORTS))
numbers = st.integers(-3, 3) | st.sampled_from([10**20, Decimal("0.5"), -(10**38 - 1), Decimal("1E-20")])
words = st.sampled_from(TEXTS)
scalars = words | numbers | st.booleans() | st.none() | st.binary(max_size=3)
sets = st.frozensets(words, min_size=1, max_size=3) | st.frozensets(st.integers(0, 3), min_size=1, max_size=3)
values = st.recursive(
    scalars | sets,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "l"]), inner, max_size=2),
    max_leaves=5,
)
index_attributes = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(choices) for name, choices in INDEX_KEYS.items()}
)
attributes = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)
paths = st.sampled_from(
    [
        attr("n"),
        attr("text"),
        attr("set"),
        attr("any"),
        attr("list"),
        attr("list")[0],
        attr("list")[1]["k"],
        attr("map")["k"],
        attr("map")["k"]["l"],
        attr("topic"),
        attr("pk"),
    ]
)
comparisons = st.sampled_from(["equals", "differs_from"])
orders = st.sampled_from(["less_than", "at_most", "greater_than", "at_least"])
simple_conditions: st.SearchStrategy[Condition] = st.one_of(
    st.builds(lambda path, how, value: getattr(path, how)(value), paths, comparisons, values),
    st.builds(lambda path, how, value: getattr(path, how)(value), paths, orders, words | numbers),
    st.builds(lambda path, how: getattr(path, how)(), paths, st.sampled_from(["exists", "is_absent"])),
    st.builds(lambda path, prefix: path.begins_with(prefix), paths, words),
    st.builds(lambda path, element: path.contains(element), paths, words | st.integers(0, 3)),
    st.builds(
        lambda path, how, number: getattr(path, how)(number),
        paths,
        st.sampled_from(["has_size", "is_larger_than", "is_smaller_than"]),
        st.integers(0, 3),
    ),
)
conditions = st.recursive(
    simple_conditions,
    lambda inner: st.one_of(
        st.builds(lambda one, other: one & other, inner, inner),
        st.builds(lambda one, other: one | other, inner, inner),
        st.builds(lambda one: ~one, inner),
    ),
    max_leaves=4,
)
maybe_condition = st.none() | conditions
changeable = st.sampled_from(
    [attr("n"), attr("text"), attr("list")[0], attr("list")[5], attr("map")["k"], attr("map")["new"], attr("any")["k"]]
)
changes: st.SearchStrategy[Update] = st.one_of(
    st.builds(lambda path, value: path.set_to(value), changeable | st.sampled_from([attr(n) for n in NAMES]), values),
    st.builds(lambda path, value: path.set_if_absent(value), changeable, values),
    st.builds(lambda path, number: path.plus(number), changeable, numbers),
    st.builds(
        lambda path: path.remove(), st.sampled_from([attr(n) for n in NAMES] + [attr("map")["k"], attr("topic")])
    ),
    st.builds(lambda name, elements: attr(name).add_elements(elements), st.sampled_from(["set", "any"]), sets),
    st.builds(lambda name, elements: attr(name).drop_elements(elements), st.sampled_from(["set", "any"]), sets),
    st.one_of(
        [
            st.builds(lambda name, value: attr(name).set_to(value), st.just(name), st.sampled_from(choices))
            for name, choices in INDEX_KEYS.items()
        ]
    ),
)
change_lists = st.lists(changes, min_size=1, max_size=4)
ranges = st.none() | st.one_of(
    st.builds(SortRange.begins_with, st.sampled_from(["a", "é", "1"])),
    st.builds(SortRange.before, st.sampled_from(["b", "2"])),
    st.builds(SortRange.up_to, st.sampled_from(["b", "2"])),
    st.builds(SortRange.after, st.sampled_from(["a", "1"])),
    st.builds(SortRange.at_or_after, st.sampled_from(["a#1", "2"])),
    st.builds(SortRange.exactly, st.sampled_from(["a", "1"])),
    st.just(SortRange.between("a", "b")),
)
indexes = st.sampled_from([(None, PARTITIONS), ("by-topic", ("t", "u")), ("by-owner", ("o",)), ("by-kind", ("k",))])


def combined(parts: list[Update]) -> Update | None:
    """The parts as one update; None where they overlap, which is not tested."""
    try:
        whole = parts[0]
        for part in parts[1:]:
            whole += part
    except BadRequest:
        return None
    return whole


class Disagreement(RuleBasedStateMachine):
    """Two backends, one list of calls."""

    pair: ClassVar[Callable[[], Iterator[tuple[Backend, Backend]]]]

    def __init__(self) -> None:
        super().__init__()
        self._pair = type(self).pair()
        self.left, self.right = next(self._pair)

    def teardown(self) -> None:
        for _ in self._pair:
            raise AssertionError("a pair is opened once")

    def both(self, call: Callable[[Any], Any]) -> tuple[Any, Any]:
        answers = []
        for backend in (self.left, self.right):
            consumed: list[Consumed] = []
            try:
                answer = ("answer", call(backend.store.metered(consumed.append)))
            except WriteConflict as conflict:
                answer = ("conflict", (conflict.items, conflict.failed, str(conflict)))
            except ItemTooLarge:
                answer = ("too large", None)
            except BadRequest:
                answer = ("bad request", None)
            answers.append((answer, [c for c in consumed if c.call != "transact"]))
        return answers[0], answers[1]

    def agree(self, call: Callable[[Any], Any], key: Key | None = None) -> None:
        """The same result, and the same cost. `key` is that of the item that the call may change."""
        before = self.left.store.get(NOTES, key) if key else None
        left, right = self.both(call)
        after = self.left.store.get(NOTES, key) if key else None
        assert left[0] == right[0]
        # DynamoDB Local charges an index that holds the item at no time, if a part of its key came or went.
        concerned = {index.name for index in NOTES.indexes for item in (before, after) if item and index.holds(item)}
        ours, theirs = (
            [(c.call, c.read_units, c.conflict, _costs(c, concerned if key else None)) for c in side[1]]
            for side in (left, right)
        )
        assert ours == theirs, "what the call consumed"

    @rule(key=keys, some=attributes, indexed=index_attributes, condition=maybe_condition)
    def put(self, key: Key, some: Item, indexed: Item, condition: Condition | None) -> None:
        item = {"pk": key.partition, "sk": key.sort, **some, **indexed}
        self.agree(lambda store: store.put(NOTES, item, condition), key)

    @rule(key=keys, parts=change_lists, condition=maybe_condition)
    def update(self, key: Key, parts: list[Update], condition: Condition | None) -> None:
        update = combined(parts)
        if update is not None:
            self.agree(lambda store: store.update(NOTES, key, update, condition), key)

    @rule(key=keys, condition=maybe_condition)
    def delete(self, key: Key, condition: Condition | None) -> None:
        self.agree(lambda store: store.delete(NOTES, key, condition), key)

    @rule(data=st.data(), wanted=st.lists(keys, min_size=1, max_size=4, unique=True))
    def transact(self, data: st.DataObject, wanted: list[Key]) -> None:
        writes: list[Write] = []
        for key in wanted:
            condition = data.draw(maybe_condition)
            kind = data.draw(st.sampled_from(["put", "update", "delete", "check"]))
            update = combined(data.draw(change_lists))
            if kind == "put":
                item = {"pk": key.partition, "sk": key.sort, **data.draw(attributes)}
                writes.append(PutItem(NOTES, item, condition))
            elif kind == "update" and update is not None:
                writes.append(UpdateItem(NOTES, key, update, condition))
            elif kind == "check" and condition is not None:
                writes.append(CheckItem(NOTES, key, condition))
            else:
                writes.append(DeleteItem(NOTES, key, condition))
        left, right = self.both(lambda store: store.transact(writes))
        # If one write's condition fails and another does not fit its item, either may be reported; nothing is written.
        refusals = {"conflict", "bad request"}
        if {left[0][0], right[0][0]} != refusals:
            assert left[0] == right[0]

    @rule(key=keys, consistent=st.booleans())
    def get(self, key: Key, consistent: bool) -> None:
        self.agree(lambda store: store.get(NOTES, key, consistent=consistent))

    @rule(wanted=st.lists(keys, max_size=6))
    def batch_get(self, wanted: list[Key]) -> None:
        self.agree(lambda store: store.batch_get(NOTES, wanted, consistent=True))

    @rule(data=st.data(), index=indexes, span=ranges, reverse=st.booleans(), limit=st.none() | st.integers(1, 4))
    def query(
        self,
        data: st.DataObject,
        index: tuple[str | None, tuple[str, ...]],
        span: SortRange | None,
        reverse: bool,
        limit: int | None,
    ) -> None:
        name, partitions = index
        partition = data.draw(st.sampled_from(partitions))
        query = Query(NOTES, partition, span, name, reverse, limit)
        left, right = self.both(lambda store: read_to_the_end(store, query))
        if left[0][0] != "answer" or right[0][0] != "answer":
            assert left[0] == right[0]
        elif name is None:
            assert without_empty_end(left) == without_empty_end(right)
        else:
            # Where index sort keys are equal the order is each backend's own, and so is where its pages end.
            assert in_order(left[0][1], name) == in_order(right[0][1], name)

    @rule(seconds=st.integers(1, 3), key=keys)
    def expire(self, seconds: int, key: Key) -> None:
        expires = self.left.clock.now().epoch_seconds + seconds
        self.agree(lambda store: store.update(NOTES, key, attr("ttl").set_to(expires)), key)
        for clock in {id(backend.clock): backend.clock for backend in (self.left, self.right)}.values():
            clock.advance(1)

    @invariant()
    def hold_the_same(self) -> None:
        for partition in PARTITIONS:
            query = Query(NOTES, partition, consistent=True)
            left, right = read_to_the_end(self.left.store, query), read_to_the_end(self.right.store, query)
            assert same([p.items for p in left], [p.items for p in right])


def _costs(consumed: Consumed, concerned: set[str] | None) -> tuple[float, dict[str, float]]:
    """The table's own write units, and those of the indexes that are concerned."""
    indexes = consumed.index_units
    kept = {name: units for name, units in indexes.items() if concerned is None or name in concerned}
    return consumed.write_units - sum(indexes.values()) if consumed.write_units else 0, kept


def read_to_the_end(store: Any, query: Query) -> list[Page]:
    pages: list[Page] = []
    while True:
        pages.append(store.query(query))
        if pages[-1].cursor is None:
            return pages
        query = replace(query, cursor=pages[-1].cursor)


def without_empty_end(side: tuple[Any, list[Consumed]]) -> list[tuple[list[Item], float]]:
    """Each page's items and its cost, without an empty page at the end.

    Where a page is full at the very end, a backend may know that nothing follows, or return an empty page. DynamoDB
    Local knows it if the page ends where the range does: `sk >= "a"`, read backwards, down to "a".
    """
    (_, pages), consumed = side
    found = [(page.items, cost.read_units) for page, cost in zip(pages, consumed, strict=True)]
    return found[:-1] if len(found) > 1 and not found[-1][0] else found


def in_order(pages: list[Page], index: str) -> list[tuple[Any, list[Item]]]:
    """All items, those with equal index sort keys in the order of their own."""
    sort = NOTES.index(index).sort
    items = [item for page in pages for item in page.items]
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(item[sort] if sort else None, []).append(item)
    return [(key, sorted(group, key=lambda item: (item["pk"], item["sk"]))) for key, group in groups.items()]


def run(pair: Callable[[], Iterator[tuple[Backend, Backend]]], examples: int) -> None:
    machine = type("Machine", (Disagreement,), {"pair": staticmethod(pair)})
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples, stateful_step_count=20, phases=(Phase.explicit, Phase.generate)),
    )


def sqlite_and_memory() -> Iterator[tuple[Backend, Backend]]:
    clock = StillClock()
    with ExitStack() as opened:
        directory = Path(opened.enter_context(TemporaryDirectory()))
        left = opened.enter_context(backends.embedded("sqlite", clock, directory))
        right = opened.enter_context(backends.embedded("memory", clock, directory))
        yield left, right


@pytest.fixture
def sqlite_and_dynamodb(calls_of: DynamoCalls) -> Callable[[], Iterator[tuple[Backend, Backend]]]:
    def pair() -> Iterator[tuple[Backend, Backend]]:
        clock = StillClock()
        with ExitStack() as opened:
            directory = Path(opened.enter_context(TemporaryDirectory()))
            left = opened.enter_context(backends.embedded("sqlite", clock, directory))
            right = opened.enter_context(backends.dynamodb(DynamoCalls(calls_of.transport, clock), clock))
            yield left, right

    return pair


def test_sqlite_and_memory_agree_on_random_calls() -> None:
    """A thousand calls and more: 60 lists of up to 20."""
    run(sqlite_and_memory, 60)


@pytest.mark.real
@pytest.mark.timeout(600)
def test_sqlite_and_dynamodb_agree_on_random_calls(
    sqlite_and_dynamodb: Callable[[], Iterator[tuple[Backend, Backend]]],
) -> None:
    """Some hundred calls: 15 lists of up to 20."""
    run(sqlite_and_dynamodb, 15)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_sqlite_and_dynamodb_agree_on_ten_thousand_random_calls(
    sqlite_and_dynamodb: Callable[[], Iterator[tuple[Backend, Backend]]],
) -> None:
    run(sqlite_and_dynamodb, 600)
