"""Several calls as one transaction, where the store is a file; and deliveries that share one."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import SqliteStore, sqlite_store
from holdfast.adapters.sqlite.driver import Mode, StandardDriver, best_driver
from holdfast.adapters.timed_store import timed_store
from holdfast.jobs.intake.item_writes import is_transaction
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import Delivery, Receipt, ReceiptResult, WebhookRefused
from holdfast.kernel.errors import BadRequest, ItemTooLarge, StoreRefused, WriteConflict
from holdfast.ports.store import Consumed, Item, Key, Query, Store, StoreTransaction, TransactionalStore, attr
from holdfast.ports.store.tables import JOB_EVENTS, JOBS, RUNS, STATE, TABLES
from tests.clocks import StillClock
from tests.payloads import CREATED, delivery_id, job_payload
from tests.support.job_tables import plain

ONE, OTHER = Key("one"), Key("other")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = sqlite_store(tmp_path / "x.db", StillClock(), tables=TABLES)
    yield opened
    opened.close()


def counted(item: Item | None) -> Item:
    return {**(item or {}), "count": (item or {}).get("count", 0) + 1}


def test_a_transaction_is_written_completely_or_not_at_all(store: SqliteStore) -> None:
    def half(within: StoreTransaction) -> None:
        within.put(STATE, {"pk": "one"})
        within.rewrite(STATE, OTHER, counted)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.run_in_transaction(half)
    assert (store.get(STATE, ONE), store.get(STATE, OTHER)) == (None, None)

    def whole(within: StoreTransaction) -> int:
        within.put(STATE, {"pk": "one"})
        return int(within.rewrite(STATE, OTHER, counted).new["count"])

    assert store.run_in_transaction(whole) == 1
    assert (store.get(STATE, ONE), store.get(STATE, OTHER)) == ({"pk": "one"}, {"pk": "other", "count": 1})


def test_each_call_sees_the_calls_before_it(store: SqliteStore) -> None:
    def work(within: StoreTransaction) -> list[Any]:
        within.update(STATE, ONE, attr("count").plus(1))
        seen = within.get(STATE, ONE)
        written = within.rewrite(STATE, ONE, counted)
        return [seen, written.old, written.new["count"]]

    assert store.run_in_transaction(work) == [{"pk": "one", "count": 1}, {"pk": "one", "count": 1}, 2]


def test_a_refused_write_is_reported_and_the_rest_continues(store: SqliteStore) -> None:
    def work(within: StoreTransaction) -> None:
        within.put(STATE, {"pk": "one"})
        with pytest.raises(WriteConflict):
            within.update(STATE, ONE, attr("a").set_to(1), attr("pk").is_absent())
        within.put(STATE, {"pk": "other"})

    store.run_in_transaction(work)
    assert store.get(STATE, ONE) == {"pk": "one"}
    assert store.get(STATE, OTHER) is not None


def overwrite_all_items(path: Path, text: str) -> None:
    """Overwrite every item with this text, as another process could."""
    # With the same driver: two copies of SQLite in one process do not see each other's locks.
    with closing(best_driver().open(path, Mode.WRITE)) as other:
        other.execute(f'UPDATE "{STATE.name}" SET item = ?', (text,))  # noqa: S608 -- our own table


def test_an_item_changed_by_another_process_meanwhile_is_read_again(store: SqliteStore, tmp_path: Path) -> None:
    """Rewritten items are cached, but the file is authoritative."""
    store.run_in_transaction(lambda within: within.rewrite(STATE, ONE, counted))
    overwrite_all_items(tmp_path / "x.db", '{"pk": "one", "count": 40, "by": "hand"}')
    written = store.run_in_transaction(lambda within: within.rewrite(STATE, ONE, counted))
    assert written.new == {"pk": "one", "count": 41, "by": "hand"} == store.get(STATE, ONE)


def test_a_rewrite_that_was_rolled_back_is_forgotten(store: SqliteStore) -> None:
    def undone(within: StoreTransaction) -> None:
        within.rewrite(STATE, ONE, counted)
        within.get(STATE, OTHER)  # this writes the rewritten items
        raise ZeroDivisionError

    store.run_in_transaction(lambda within: within.rewrite(STATE, ONE, counted))
    with pytest.raises(ZeroDivisionError):
        store.run_in_transaction(undone)
    assert store.run_in_transaction(lambda within: within.rewrite(STATE, ONE, counted)).new["count"] == 2


@pytest.mark.parametrize("text", ["", "{"])
def test_an_item_that_became_malformed_is_reported(store: SqliteStore, tmp_path: Path, text: str) -> None:
    store.run_in_transaction(lambda within: within.rewrite(STATE, ONE, counted))
    overwrite_all_items(tmp_path / "x.db", text)
    with pytest.raises(StoreRefused, match="cannot be read"):
        store.run_in_transaction(lambda within: within.rewrite(STATE, ONE, counted))


def test_an_unchanged_item_is_not_written(store: SqliteStore) -> None:
    store.put(STATE, {"pk": "one", "count": 1})
    consumed: list[Consumed] = []
    written = store.metered(consumed.append).run_in_transaction(
        lambda within: within.rewrite(STATE, ONE, lambda item: item or {})
    )
    assert written.old is written.new
    assert consumed == []


def test_a_transaction_costs_as_much_as_its_calls_and_only_if_it_commits(store: SqliteStore) -> None:
    consumed: list[Consumed] = []
    metered = store.metered(consumed.append)

    def work(within: StoreTransaction) -> None:
        within.rewrite(STATE, ONE, counted)
        within.put(STATE, {"pk": "other"})

    metered.run_in_transaction(work)
    assert [each.write_units for each in consumed] == [1, 1]

    def fail(within: StoreTransaction) -> None:
        within.put(STATE, {"pk": "x"})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        metered.run_in_transaction(fail)
    assert len(consumed) == 2


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda _: {"pk": "another"}, StoreRefused),
        (lambda _: {"pk": "one", "number": 1.5}, BadRequest),
        (lambda _: {"pk": "one", "number": 10**38 + 1}, BadRequest),
        (lambda _: {"pk": "one", "text": "x" * 500_000}, ItemTooLarge),
    ],
)
def test_an_invalid_item_is_refused(
    store: SqliteStore, change: Callable[[Item | None], Item], error: type[Exception]
) -> None:
    with pytest.raises(error):
        store.run_in_transaction(lambda within: within.rewrite(STATE, ONE, change))
    assert store.get(STATE, ONE) is None


def test_an_index_key_is_still_checked(store: SqliteStore) -> None:
    with pytest.raises(BadRequest, match="GSI1-PK"):
        store.run_in_transaction(lambda within: within.rewrite(JOBS, Key("1#2", "v"), lambda _: {"GSI1-PK": 7}))


def test_a_refusal_at_the_end_rolls_everything_back(store: SqliteStore) -> None:
    """A rewritten item is validated when it is written; earlier writes are rolled back with it."""

    def work(within: StoreTransaction) -> None:
        within.put(STATE, {"pk": "other"})
        within.rewrite(STATE, ONE, lambda _: {"number": 1.5})

    with pytest.raises(BadRequest, match="number"):
        store.run_in_transaction(work)
    assert (store.get(STATE, ONE), store.get(STATE, OTHER)) == (None, None)


def test_an_item_is_stored_in_the_normalised_form_of_all_backends(store: SqliteStore) -> None:
    odd = {"few": (1, 2), "ids": {7}, "exact": Decimal("1.50"), "text": "\N{SNOWMAN}", "map": {"a": (None, True)}}
    consumed: list[Consumed] = []
    store.metered(consumed.append).run_in_transaction(lambda within: within.rewrite(STATE, ONE, lambda _: odd))
    memory = memory_store(StillClock())
    memory.metered(consumed.append).put(STATE, {"pk": "one", **odd})
    assert store.get(STATE, ONE) == memory.get(STATE, ONE)
    assert consumed[0].write_units == consumed[1].write_units


# Appending: an item that is nearly always the first of its key

ENTRY = {"PK": "1#2", "SK": "a", "deliveries": 1}
AGAIN = Key("1#2", "a")


def appended(store: SqliteStore, item: Item, times: int = 1) -> None:
    def once_more(there: Item | None) -> Item:
        return {**(there or {}), "deliveries": (there or {})["deliveries"] + 1}

    def work(within: StoreTransaction) -> None:
        assert is_transaction(within)
        for _ in range(times):
            within.append(JOB_EVENTS, item, once_more)

    store.run_in_transaction(work)


def test_an_appended_item_is_new_or_the_existing_one_is_returned(store: SqliteStore) -> None:
    appended(store, ENTRY)
    assert store.get(JOB_EVENTS, AGAIN) == ENTRY
    appended(store, {**ENTRY, "other": 1})
    assert store.get(JOB_EVENTS, AGAIN) == {**ENTRY, "deliveries": 2}
    appended(store, ENTRY, times=3)
    assert store.get(JOB_EVENTS, AGAIN) == {**ENTRY, "deliveries": 5}


def test_pythons_own_sqlite_appends_too(tmp_path: Path) -> None:
    store = sqlite_store(tmp_path / "x.db", StillClock(), tables=TABLES, driver=StandardDriver())
    appended(store, ENTRY, times=3)
    assert store.get(JOB_EVENTS, AGAIN) == {**ENTRY, "deliveries": 3}
    store.close()


@pytest.mark.parametrize(
    ("item", "error"),
    [
        ({**ENTRY, "number": 1.5}, BadRequest),
        ({**ENTRY, "SK": ""}, BadRequest),
        ({**ENTRY, "text": "x" * 500_000}, ItemTooLarge),
    ],
)
def test_an_invalid_item_is_not_appended(store: SqliteStore, item: Item, error: type[Exception]) -> None:
    with pytest.raises(error):
        appended(store, item)
    assert store.get(JOB_EVENTS, AGAIN) is None


def test_appending_costs_as_much_as_a_write(store: SqliteStore) -> None:
    consumed: list[Consumed] = []
    appended(store.metered(consumed.append), ENTRY, times=2)
    assert [each.write_units for each in consumed] == [1, 1]


def test_a_transaction_allows_no_nested_transactions(store: SqliteStore) -> None:
    with pytest.raises(StoreRefused):
        store.run_in_transaction(lambda within: within.transact([]))


def test_a_read_or_query_within_a_transaction_sees_its_writes_and_nobody_else_does(store: SqliteStore) -> None:
    def work(within: StoreTransaction) -> list[str]:
        within.rewrite(RUNS, Key("1#7#1", "job#2"), lambda item: {**(item or {}), "ttl": 2**40})
        within.append(RUNS, {"PK": "1#7#1", "SK": "job#1"}, lambda item: item or {})
        assert within.get(RUNS, Key("1#7#1", "job#2")) is not None
        assert store.query(Query(RUNS, "1#7#1")).items == []
        return [item["SK"] for item in within.query(Query(RUNS, "1#7#1")).items]

    assert store.run_in_transaction(work) == ["job#1", "job#2"]
    assert len(store.query(Query(RUNS, "1#7#1")).items) == 2


def test_a_timed_store_offers_the_same_calls_as_its_store(store: SqliteStore) -> None:
    said: list[tuple[str, str, str]] = []
    timed = timed_store(store, StillClock(), lambda table, call, outcome, _: said.append((table, call, outcome)))
    assert isinstance(timed, TransactionalStore)
    assert timed.run_in_transaction(lambda within: within.rewrite(STATE, ONE, counted)).new["count"] == 1
    assert said == [("several", "together", "ok")]
    assert not isinstance(timed_store(memory_store(StillClock()), StillClock(), print), TransactionalStore)


# Deliveries


def delivery(action: str, job: int, number: int, event: str = "workflow_job") -> Delivery:
    payload = job_payload(action, job_id=job, at=CREATED.plus(number), started=CREATED)
    return Delivery(event, delivery_id(CREATED.plus(number), number), "99", json.dumps(payload).encode())


def held(store: Store) -> list[Any]:
    found = [store.get(JOBS, Key(f"12345678#{job}", "v")) or {} for job in (1, 2)]
    run = store.get(RUNS, Key("12345678#17123456789#1", "v")) or {}
    entries = [store.query(Query(JOB_EVENTS, f"12345678#{job}")).items for job in (1, 2)]
    return [[plain(item) for item in found], plain(run), [[plain(entry) for entry in each] for each in entries]]


STORY = [
    delivery("queued", 1, 0),
    delivery("queued", 2, 1),
    delivery("in_progress", 1, 2),
    delivery("completed", 1, 3),
    delivery("queued", 1, 0),  # again
    delivery("in_progress", 2, 4),
]


def results(receipts: list[Receipt | Exception]) -> list[Any]:
    return [each.result if isinstance(each, Receipt) else type(each) for each in receipts]


def test_deliveries_that_share_a_transaction_end_as_if_each_had_its_own(store: SqliteStore) -> None:
    alone = memory_store(StillClock())
    apart = results([Tracker(alone, StillClock(), "here").receive(each) for each in STORY])
    shared = results(Tracker(store, StillClock(), "here").receive_all(STORY))
    assert shared == apart
    assert shared.count(ReceiptResult.DUPLICATE) == 1
    assert held(store) == held(alone)


def test_a_refused_delivery_does_not_block_the_others(store: SqliteStore) -> None:
    broken = Delivery("workflow_job", "b", "99", b"{")
    tracker = Tracker(store, StillClock(), "here")
    found = results(tracker.receive_all([STORY[0], broken, STORY[1]]))
    assert found == [ReceiptResult.STORED, WebhookRefused, ReceiptResult.STORED]
    assert (store.get(JOBS, Key("12345678#2", "v")) or {})["status"] == "queued"


def test_a_delivery_that_cannot_be_written_does_not_block_the_others(store: SqliteStore) -> None:
    """A person has edited an item badly."""
    store.put(RUNS, {"PK": "12345678#7#1", "SK": "job#3", "gates": "no set"})
    payload = job_payload("queued", job_id=3, run_id=7, deployment=5)
    odd = Delivery("workflow_job", delivery_id(CREATED, 9), "99", json.dumps(payload).encode())
    found = results(Tracker(store, StillClock(), "here").receive_all([STORY[0], odd, STORY[1]]))
    assert found == [ReceiptResult.STORED, BadRequest, ReceiptResult.STORED]
    assert store.get(JOBS, Key("12345678#3", "v")) is None, "all of it or nothing"
