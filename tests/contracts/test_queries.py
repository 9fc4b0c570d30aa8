"""Queries: order, ranges, pages and sparse indexes, on every backend."""

import pytest
from msgspec.structs import replace

from holdfast.kernel.errors import BadRequest
from holdfast.ports.store import Item, Key, Query, SortRange, Store, attr, every_item
from tests.contracts.backends import FLAGS, NOTES, Backend

# In the order of their UTF-8 bytes; UTF-16 would put U+1F680 before U+FF21.
SORTED_KEYS = [
    "!",
    "1",
    "10",
    "2",
    "A",
    "a",
    "a\x00",
    "a#1",
    "a#2",
    "ab",
    "b",
    "é",
    "\uff21",
    "\U0001f680",
    "\U0010ffff",
]


def fill(store: Store) -> None:
    for key in reversed(SORTED_KEYS):
        store.put(NOTES, {"pk": "p", "sk": key})
    store.put(NOTES, {"pk": "other", "sk": "a"})


def keys_of(items: list[Item]) -> list[str]:
    return [item["sk"] for item in items]


def test_a_partition_is_read_in_byte_order_of_its_sort_keys(store: Store) -> None:
    fill(store)
    assert keys_of(store.query(Query(NOTES, "p")).items) == SORTED_KEYS
    assert keys_of(store.query(Query(NOTES, "p", reverse=True, consistent=True)).items) == SORTED_KEYS[::-1]
    assert store.query(Query(NOTES, "none")).items == []


RANGES = {
    "exactly": (SortRange.exactly("a"), ["a"]),
    "between": (SortRange.between("10", "A"), ["10", "2", "A"]),
    "before": (SortRange.before("2"), ["!", "1", "10"]),
    "up to": (SortRange.up_to("2"), ["!", "1", "10", "2"]),
    "after": (SortRange.after("é"), ["\uff21", "\U0001f680", "\U0010ffff"]),
    "at or after": (SortRange.at_or_after("é"), ["é", "\uff21", "\U0001f680", "\U0010ffff"]),
    "begins with": (SortRange.begins_with("a"), ["a", "a\x00", "a#1", "a#2", "ab"]),
    "begins with a#": (SortRange.begins_with("a#"), ["a#1", "a#2"]),
    "begins with the last character": (SortRange.begins_with("\U0010ffff"), ["\U0010ffff"]),
    "begins with what stands before the surrogates": (SortRange.begins_with("\ud7ff"), []),
    "begins with nothing there": (SortRange.begins_with("zz"), []),
}


@pytest.mark.parametrize(("span", "expected"), RANGES.values(), ids=list(RANGES))
def test_a_range_returns_the_matching_items(store: Store, span: SortRange, expected: list[str]) -> None:
    fill(store)
    assert keys_of(store.query(Query(NOTES, "p", sort=span)).items) == expected
    assert keys_of(store.query(Query(NOTES, "p", sort=span, reverse=True)).items) == expected[::-1]


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, len(SORTED_KEYS) - 1, len(SORTED_KEYS), len(SORTED_KEYS) + 1])
def test_pages_join_without_a_gap_or_an_overlap(store: Store, limit: int, reverse: bool) -> None:
    """At every size of page, also when the last page is exactly full."""
    fill(store)
    pages = []
    query = Query(NOTES, "p", limit=limit, reverse=reverse)
    while True:
        page = store.query(query)
        pages.append(keys_of(page.items))
        if page.cursor is None:
            break
        query = replace(query, cursor=page.cursor)
    assert [key for page in pages for key in page] == SORTED_KEYS[:: -1 if reverse else 1]
    assert all(len(page) == limit for page in pages[:-1])


def test_a_page_that_ends_at_its_limit_has_a_cursor_even_at_the_end(store: Store) -> None:
    """As in DynamoDB, only another request shows whether more follows; that page is empty and the last."""
    fill(store)
    full = store.query(Query(NOTES, "p", limit=len(SORTED_KEYS)))
    assert full.cursor is not None
    assert store.query(Query(NOTES, "p", limit=len(SORTED_KEYS), cursor=full.cursor)).items == []
    assert store.query(Query(NOTES, "p", limit=len(SORTED_KEYS) + 1)).cursor is None


def test_a_page_ends_before_a_megabyte(store: Store) -> None:
    for number in range(5):
        store.put(NOTES, {"pk": "p", "sk": str(number), "v": "x" * 300_000})
    first = store.query(Query(NOTES, "p"))
    assert first.cursor is not None
    assert keys_of(list(every_item(store, Query(NOTES, "p")))) == ["0", "1", "2", "3", "4"]


def test_a_cursor_works_although_its_item_was_deleted(store: Store) -> None:
    fill(store)
    page = store.query(Query(NOTES, "p", limit=3))
    store.delete(NOTES, Key("p", page.items[-1]["sk"]))
    store.put(NOTES, {"pk": "p", "sk": "0 came before"})
    rest = store.query(Query(NOTES, "p", cursor=page.cursor))
    assert keys_of(rest.items) == SORTED_KEYS[3:]


def test_an_index_contains_the_items_that_have_its_keys(store: Store) -> None:
    """An item without one of the key attributes is not in it; it enters and leaves with them."""
    store.put(NOTES, {"pk": "1", "sk": "s", "topic": "t", "at": "2", "title": "x"})
    store.put(NOTES, {"pk": "2", "sk": "s", "topic": "t"})
    store.put(NOTES, {"pk": "3", "sk": "s", "at": "1"})
    store.put(NOTES, {"pk": "4", "sk": "s", "topic": "u", "at": "1"})
    by_topic = Query(NOTES, "t", index="by-topic")
    assert [item["pk"] for item in store.query(by_topic).items] == ["1"]
    store.update(NOTES, Key("2", "s"), attr("at").set_to("1"))
    store.update(NOTES, Key("3", "s"), attr("topic").set_if_absent("t"))
    assert sorted(item["pk"] for item in store.query(by_topic).items) == ["1", "2", "3"]
    store.update(NOTES, Key("1", "s"), attr("topic").remove())
    store.update(NOTES, Key("2", "s"), attr("topic").set_to("u"))
    store.delete(NOTES, Key("3", "s"))
    assert store.query(by_topic).items == []
    assert sorted(item["pk"] for item in store.query(replace(by_topic, partition="u")).items) == ["2", "4"]


def test_an_index_returns_what_it_projects_and_no_more(store: Store) -> None:
    item = {"pk": "p", "sk": "s", "topic": "t", "owner": "o", "kind": "k", "at": "1", "title": "T", "body": "B"}
    store.put(NOTES, item)

    def names(partition: str, index: str) -> set[str]:
        return set(store.query(Query(NOTES, partition, index=index)).items[0])

    assert store.query(Query(NOTES, "t", index="by-topic")).items == [item]
    assert names("o", "by-owner") == {"pk", "sk", "owner"}
    assert names("k", "by-kind") == {"pk", "sk", "kind", "at", "title"}


def test_an_index_is_read_in_the_order_of_its_sort_key_through_pages_and_ties(store: Store) -> None:
    """Where sort keys are equal, the order is the backend's own, but pages still join exactly."""
    for number in range(30):
        store.put(NOTES, {"pk": f"p{number:02}", "sk": "s", "topic": "t", "at": f"{number // 7}"})
    for reverse in (False, True):
        query = Query(NOTES, "t", index="by-topic", limit=4, reverse=reverse)
        items = list(every_item(store, query))
        assert [item["at"] for item in items] == sorted((item["at"] for item in items), reverse=reverse)
        assert sorted(item["pk"] for item in items) == [f"p{number:02}" for number in range(30)]
    after_first = Query(NOTES, "t", index="by-topic", sort=SortRange.after("2"), limit=3)
    assert {item["at"] for item in every_item(store, after_first)} == {"3", "4"}


def test_an_index_without_a_sort_key_pages_as_well(store: Store) -> None:
    for number in range(11):
        store.put(NOTES, {"pk": "p", "sk": f"{number:02}", "owner": "o"})
    items = every_item(store, Query(NOTES, "o", index="by-owner", limit=3))
    assert sorted(keys_of(list(items))) == [f"{number:02}" for number in range(11)]


def test_pages_may_be_short_or_empty_where_items_have_expired(backend: Backend) -> None:
    """The cursor still continues; only None is the end."""
    store, now = backend.store, backend.clock.now().epoch_seconds
    for number in range(9):
        store.put(NOTES, {"pk": "p", "sk": str(number), "ttl": now - 1 if number in (1, 3, 4, 5) else now + 60})
    sizes, query = [], Query(NOTES, "p", limit=3)
    while True:
        page = store.query(query)
        sizes.append(len(page.items))
        if page.cursor is None:
            break
        query = replace(query, cursor=page.cursor)
    assert sizes == [2, 0, 3, 0]


def test_a_table_without_a_sort_key_can_be_queried(store: Store) -> None:
    store.put(FLAGS, {"pk": "a", "n": 1})
    assert store.query(Query(FLAGS, "a")).items == [{"pk": "a", "n": 1}]
    assert store.query(Query(FLAGS, "b")).items == []


@pytest.mark.parametrize(
    "query",
    [
        Query(NOTES, ""),
        Query(NOTES, "\ud800"),
        Query(NOTES, "x" * 2049),
        Query(NOTES, "p", limit=0),
        Query(NOTES, "p", limit=-1),
        Query(NOTES, "p", limit=True),
        Query(NOTES, "p", index="none"),
        Query(NOTES, "p", index="by-topic", consistent=True),
        Query(NOTES, "p", index="by-owner", sort=SortRange.exactly("x")),
        Query(FLAGS, "p", sort=SortRange.exactly("x")),
    ],
    ids=lambda query: str(query)[-60:],
)
def test_a_query_that_one_backend_does_not_support_is_refused_by_all(store: Store, query: Query) -> None:
    with pytest.raises(BadRequest):
        store.query(query)


def test_only_ranges_that_dynamodb_supports_can_be_built() -> None:
    for bounds in (
        {"low": "a", "high": "b", "low_included": False},
        {"low": "b", "high": "a"},
        {"prefix": "a", "low": "a"},
        {"prefix": ""},
        {"low": 1},
        {},
    ):
        with pytest.raises(BadRequest):
            SortRange(**bounds)


def test_a_cursor_of_another_query_or_a_forged_one_is_refused(store: Store) -> None:
    """Cursors come from people and programs: each is validated like any other input."""
    fill(store)
    store.put(NOTES, {"pk": "q", "sk": "s", "topic": "p", "at": "1"})
    mine = store.query(Query(NOTES, "p", limit=5)).cursor
    of_index = store.query(Query(NOTES, "p", index="by-topic", limit=1)).cursor
    assert mine is not None
    for query in (
        Query(NOTES, "other", cursor=mine),
        Query(NOTES, "p", sort=SortRange.after("b"), cursor=mine),
        Query(NOTES, "p", index="by-topic", cursor=mine),
        Query(FLAGS, "p", cursor=mine),
        Query(NOTES, "p", cursor=of_index),
        *(Query(NOTES, "p", cursor=text) for text in ("", "x", "é", "e30", "W10", "bnVsbA", mine + "AAAA", "[" * 5000)),
        Query(NOTES, "p", cursor="eyJwayI6InAiLCJzayI6MX0"),  # {"pk":"p","sk":1}
        Query(NOTES, "p", cursor="eyJwayI6InAiLCJzayI6Ilx1ZDgwMCJ9"),  # {"pk":"p","sk":"\ud800"}
    ):
        with pytest.raises(BadRequest, match="cursor"):
            store.query(query)
