"""Eventually consistent reads: an item, a batch and an index as they were before the last writes."""

from holdfast.kernel.instants import Instant
from holdfast.ports.store import Key, Page, Query
from holdfast.ports.store.tables import JOBS
from holdfast.simulator.proof.overwritten_items import LAG_SECONDS, OverwrittenItems

NOW = Instant(1_000_000)
KEY, OTHER = Key("7#1", "v"), Key("7#2", "v")
OLD = {"PK": "7#1", "SK": "v", "status": "queued", "GSI1-PK": "7#queued", "created_at": "a", "secret": 1}
NEW = {"PK": "7#1", "SK": "v", "status": "completed", "GSI1-PK": "7#completed", "created_at": "a"}
SAME = {"PK": "7#2", "SK": "v", "GSI1-PK": "7#completed", "created_at": "b"}


def items() -> OverwrittenItems:
    found = OverwrittenItems()
    found.add(JOBS, KEY, OLD, NOW)
    return found


def test_an_item_is_read_as_it_was_until_the_lag_is_over() -> None:
    soon, later = NOW.plus(LAG_SECONDS), NOW.plus(LAG_SECONDS + 1)
    assert items().as_read_before((JOBS, KEY), NEW, soon) == OLD
    assert items().as_read_before((JOBS, KEY), NEW, later) == NEW
    assert items().as_read_before((JOBS, OTHER), SAME, soon) == SAME


def test_a_batch_is_read_item_by_item() -> None:
    assert items().as_read_before((JOBS, [OTHER, KEY]), [SAME, NEW], NOW) == [SAME, OLD]


def test_an_index_misses_an_item_that_came_into_its_partition_with_the_last_write() -> None:
    query = Query(JOBS, "7#completed", index="GSI1")
    assert items().as_read_before((query,), Page([NEW, SAME], "more"), NOW) == Page([SAME], "more")


def test_an_index_shows_what_an_item_was_and_no_more_than_is_projected() -> None:
    entry = {**NEW, "GSI1-PK": "7#queued", "status": "queued again"}
    page = items().as_read_before((Query(JOBS, "7#queued", index="GSI1"),), Page([entry], None), NOW)
    assert page.items == [{name: OLD[name] for name in entry}]


def test_an_item_that_did_not_exist_before_is_missing() -> None:
    found = OverwrittenItems()
    found.add(JOBS, KEY, None, NOW)
    assert found.as_read_before((JOBS, KEY), NEW, NOW) is None
    assert found.as_read_before((Query(JOBS, "7#completed", index="GSI1"),), Page([NEW], None), NOW).items == []
