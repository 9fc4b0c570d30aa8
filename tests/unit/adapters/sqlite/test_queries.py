"""Queries on SQLite: which rows are touched, and in which order they are returned."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.adapters.sqlite import Driver
from holdfast.adapters.sqlite.queries import end_of_prefix, select_expired, select_in_order
from holdfast.kernel.errors import TableProblem
from holdfast.ports.store import Key, Query, SortRange, cursors, every_item
from tests.unit.adapters.sqlite.cases import DRIVERS, FLAGS, THINGS, OpenStore, thing

RANGES = {
    "all": None,
    "exactly": SortRange.exactly("m05"),
    "between": SortRange.between("m02", "m07"),
    "before": SortRange.before("m07"),
    "up-to": SortRange.up_to("m07"),
    "after": SortRange.after("m02"),
    "at-or-after": SortRange.at_or_after("m02"),
    "prefix": SortRange.begins_with("m0"),
}
PLACES = {"table": None, "by-kind": "by-kind", "by-sort": "by-sort", "by-owner": "by-owner"}


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.name)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    with OpenStore(tmp_path / "holdfast.db", request.param) as opened:
        yield opened


class Sides(NamedTuple):
    small: OpenStore
    forth: OpenStore
    back: OpenStore


def put(opened: OpenStore, *items: dict[str, Any]) -> None:
    def work(transaction: Any) -> None:
        for item in items:
            transaction.replace(THINGS, THINGS.key_of(item), None, item)

    opened.rows.write(work)


def shapes() -> Iterator[Any]:
    """Every kind of query: table or index, range, direction, from the start or after a cursor."""
    for place, index in PLACES.items():
        for name, sort in RANGES.items():
            if place == "by-owner" and sort is not None:
                continue
            for reverse in (False, True):
                for goes_on in (False, True):
                    query = Query(THINGS, "p", sort=sort, index=index, reverse=reverse, limit=4)
                    way = "back" if reverse else "forth"
                    yield pytest.param(query, goes_on, id=f"{place}-{name}-{way}-{'on' if goes_on else 'start'}")


def going_on(query: Query) -> Query:
    """The same query after an item in the middle of what it finds."""
    last = thing("p", "m05", kind="p", at="m05", owner="p")
    if query.index == "by-sort":
        last = thing("q05", "p", at="m05")
    return replace(query, cursor=cursors.encoded(query, last))


def middling(number: int) -> list[dict[str, Any]]:
    """An item for each index, at one place of the range."""
    at = f"m{number:02}"
    return [thing("p", at, kind="p", at=at, owner="p"), thing(f"q{number:02}", "p", at=at)]


def bystanders(number: int) -> list[dict[str, Any]]:
    """Items that no query looks for: in other partitions, or without an index's keys."""
    at = f"m{number % 100:02}"
    other = f"other-{number}"
    return [
        thing(other, at, kind=other, at=at, owner=other),
        thing(f"lacks-{number}", "s", kind="p"),
        thing(f"lacks-{number}", "t", at=at),
    ]


class Steps:
    """Counts the instructions of SQLite's machine. A row that is only passed over takes some, too."""

    def __init__(self, connection: Any) -> None:
        self.count = 0
        connection.set_progress_handler(self._one, 1)

    def _one(self) -> bool:
        self.count += 1
        return False


def steps_of(opened: OpenStore, query: Query) -> int:
    sql, parameters = select_in_order(query, cursors.decoded(query))
    opened.connection.execute(sql, parameters).fetchall()  # prepared, so that only running it is counted
    steps = Steps(opened.connection)
    opened.connection.execute(sql, parameters).fetchall()
    return steps.count


def crowded_around(opened: OpenStore, cursor_side: str) -> None:
    """Put many items around those in the middle: before and after them, and just behind where a query continues."""
    put(opened, *(item for number in range(300) for item in bystanders(number)))
    for at in (f"{start}{number:03}" for start in ("a", cursor_side, "z") for number in range(300)):
        put(opened, thing("p", at, kind="p", at=at, owner="p"), thing(f"q{at}", "p", at=at))


@pytest.fixture(scope="module", params=DRIVERS, ids=lambda driver: driver.name)
def small_and_large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Files with the same items in the middle of what is looked for; in the large ones many others lie around them.

    A query continues after m05. Rows that it has passed are before m05 when reading forwards, after it when backwards.
    """
    directory = tmp_path_factory.mktemp("queries")
    with ExitStack() as opened:
        names = ("small", "forth", "back")
        small, forth, back = (opened.enter_context(OpenStore(directory / name, request.param)) for name in names)
        for store in (small, forth, back):
            put(store, *(item for number in range(10) for item in middling(number)))
        crowded_around(forth, "m04-")
        crowded_around(back, "m05-")
        yield Sides(small, forth, back)


@pytest.mark.parametrize(("query", "goes_on"), list(shapes()))
def test_a_query_is_one_search_in_one_index(small_and_large: Sides, query: Query, goes_on: bool) -> None:
    """SQLite's own plan: one search in the index that the query names, without sorting."""
    wanted = going_on(query) if goes_on else query
    sql, parameters = select_in_order(wanted, cursors.decoded(wanted))
    connection = small_and_large.forth.connection
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()]
    name = f"{THINGS.name}:{query.index}" if query.index else f"sqlite_autoindex_{THINGS.name}_1"
    assert len(plan) == 1
    assert plan[0].startswith(f"SEARCH {THINGS.name} USING INDEX {name} (")


@pytest.mark.parametrize(("query", "goes_on"), list(shapes()))
def test_a_query_touches_no_row_that_it_does_not_return(small_and_large: Sides, query: Query, goes_on: bool) -> None:
    """It takes as many instructions among thousands of other items as without them."""
    wanted = going_on(query) if goes_on else query
    small = small_and_large.small
    large = small_and_large.back if query.reverse else small_and_large.forth
    assert len(small.store.query(wanted).items) == len(large.store.query(wanted).items)
    assert steps_of(small, wanted) == steps_of(large, wanted)


@pytest.mark.parametrize("index", [None, "by-kind"])
def test_the_work_grows_linearly_with_the_rows(opened: OpenStore, index: str | None) -> None:
    """Each further row takes the same number of instructions."""
    put(opened, *(thing("p", f"m{n:03}", kind="p", at=f"m{n:03}") for n in range(100)))
    counts = [steps_of(opened, Query(THINGS, "p", index=index, limit=limit)) for limit in (10, 20, 30, 40)]
    assert len({later - earlier for earlier, later in pairwise(counts)}) == 1


def test_the_search_for_expired_items_uses_their_index(opened: OpenStore) -> None:
    """Removing expired items does not scan the table."""
    plan = opened.sql(f"EXPLAIN QUERY PLAN {select_expired(THINGS.name)}", 5, 10)
    assert [row[3] for row in plan] == [f"SEARCH {THINGS.name} USING INDEX {THINGS.name}::expires (expires<?)"]


def test_a_missing_index_is_an_error_and_not_a_slow_search(opened: OpenStore) -> None:
    """The query names its index: without it, it fails and says what to do."""
    opened.sql(f'DROP INDEX "{THINGS.name}:by-kind"')
    with pytest.raises(TableProblem, match="run: holdfast tables create"):
        opened.store.query(Query(THINGS, "p", index="by-kind"))


UNUSUAL = ["a", "a\0", "a\0b", "a\0\0", "a\x01", "A", "Z", "z", "é", "\ud7ff", "\ue000", "\uffff", "𝄞", "\U0010ffff"]


def test_keys_are_sorted_by_their_bytes(opened: OpenStore) -> None:
    """Text with NUL characters, upper and lower case and all planes of Unicode: UTF-8's order, which is DynamoDB's."""
    for sort in UNUSUAL:
        opened.store.put(THINGS, thing("p\0", sort, kind="k\0", at=sort))
    ordered = sorted(UNUSUAL, key=str.encode)
    for index, partition in ((None, "p\0"), ("by-kind", "k\0")):
        for reverse in (False, True):
            found = every_item(opened.store, Query(THINGS, partition, index=index, reverse=reverse, limit=3))
            assert [item["SK"] for item in found] == (ordered[::-1] if reverse else ordered)
    assert opened.store.query(Query(THINGS, "p")).items == []
    assert opened.store.get(THINGS, Key("p\0", "a\0")) == thing("p\0", "a\0", kind="k\0", at="a\0")
    assert opened.store.get(THINGS, Key("p\0", "a\0\0b")) is None


@pytest.mark.parametrize("prefix", [*UNUSUAL, "\U0010ffff\U0010ffff", "a\U0010ffff", "\ud7ff\U0010ffff"])
def test_a_prefix_finds_the_keys_that_start_with_it(opened: OpenStore, prefix: str) -> None:
    """Also if its last character is the highest one, or is just before the surrogates."""
    keys = {start + end for start in (*UNUSUAL, prefix) for end in ("", "\0", "x", "\U0010ffff")}
    put(opened, *(thing("p", key) for key in keys))
    found = every_item(opened.store, Query(THINGS, "p", sort=SortRange.begins_with(prefix)))
    assert [item["SK"] for item in found] == sorted((k for k in keys if k.startswith(prefix)), key=str.encode)


_LETTERS = st.text(st.sampled_from("\0ab\ud7ff\ue000\uffff\U00010000\U0010fffe\U0010ffff"), max_size=4)


@given(_LETTERS.filter(bool), _LETTERS)
@example("\U0010ffff", "\U0010ffff\U0010ffff")
def test_the_upper_bound_of_a_prefix_is_exact(prefix: str, key: str) -> None:
    """For every prefix and every text: it starts with the prefix if and only if it is between the two bounds."""
    end = end_of_prefix(prefix)
    assert key.startswith(prefix) == (prefix <= key and (end is None or key < end))


def test_a_table_without_a_sort_key_has_one_item_for_a_partition(opened: OpenStore) -> None:
    """A query finds that item, and nothing after it."""
    opened.store.put(FLAGS, {"pk": "a", "on": True})
    page = opened.store.query(Query(FLAGS, "a", limit=1))
    assert page.items == [{"pk": "a", "on": True}]
    assert page.cursor is not None
    assert opened.store.query(Query(FLAGS, "a", cursor=page.cursor)).items == []


def test_values_never_become_sql(opened: OpenStore) -> None:
    """Quotes, comments and statements in keys and values are text like any other."""
    evil = '\'; DROP TABLE "flags"; --'
    opened.store.put(THINGS, thing(evil, evil, kind=evil, at=evil, note=evil))
    assert opened.store.query(Query(THINGS, evil, index="by-kind")).items == [
        thing(evil, evil, kind=evil, at=evil, note=evil)
    ]
    assert opened.store.get(FLAGS, Key("x")) is None


def test_overlapping_reads_do_not_disturb_each_other(opened: OpenStore) -> None:
    """A half-read page keeps its own snapshot; other reads and writes continue meanwhile."""
    put(opened, *(thing("p", f"m{n}") for n in range(5)))
    rows = opened.rows.read_in_order(Query(THINGS, "p"), None)
    first = next(rows)
    opened.store.put(THINGS, thing("p", "m0", note="new"))
    assert opened.store.get(THINGS, Key("p", "m0")) == thing("p", "m0", note="new")
    opened.store.delete(THINGS, Key("p", "m3"))
    assert [item["SK"] for item in (first, *rows)] == ["m0", "m1", "m2", "m3", "m4"]


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_closing_releases_every_connection(driver: Driver, tmp_path: Path) -> None:
    """After the close, only the file and its lock are left."""
    path = tmp_path / "holdfast.db"
    with OpenStore(path, driver) as opened:
        opened.store.put(FLAGS, {"pk": "a"})
        rows = opened.rows.read_in_order(Query(FLAGS, "a"), None)
        next(rows)
        opened.store.get(FLAGS, Key("a"))
        rows.close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["holdfast.db", "holdfast.db.lock"]
