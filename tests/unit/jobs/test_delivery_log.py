"""GitHub's delivery log, page by page: each failed delivery is redelivered, however the log is ordered and cut."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.jobs.sweep.lost_webhooks import cursor_key, sweep_deliveries
from holdfast.jobs.sweep.polling import CallBudget
from holdfast.ports.github import DeliveryPage, DeliveryRecord
from holdfast.ports.store import Store
from holdfast.ports.store.tables import STATE
from tests.clocks import StillClock
from tests.payloads import CREATED

APP = 42


def failed(number: int, guid: str = "") -> DeliveryRecord:
    return DeliveryRecord(number, guid or f"guid {number}", CREATED, False, 503, "workflow_job")


def succeeded(number: int, guid: str) -> DeliveryRecord:
    return DeliveryRecord(number, guid, CREATED, True, 200, "workflow_job")


class Log:
    """A log whose pages are as they are given."""

    def __init__(self, *pages: Sequence[DeliveryRecord]) -> None:
        self.pages = pages
        self.asked: list[int] = []

    def deliveries(self, cursor: str | None = None) -> DeliveryPage:
        number = int(cursor or 0)
        return DeliveryPage(list(self.pages[number]), str(number + 1) if number + 1 < len(self.pages) else None)

    def redeliver(self, delivery: int) -> None:
        self.asked.append(delivery)


@pytest.fixture
def store() -> Store:
    return memory_store(StillClock(CREATED))


def sweep(store: Store, log: Any, calls: int) -> None:
    sweep_deliveries(store, log, APP, CREATED, CallBudget(calls))


@pytest.mark.parametrize("calls", [2, 3, 4, 100])
@pytest.mark.parametrize(
    "pages",
    [([9, 8, 7], [6, 5, 4]), ([9, 8, 6], [7, 5, 4]), ([9, 7, 8], [6, 4, 5])],
    ids=["in order", "over the edge of a page", "within a page"],
)
def test_records_whose_ids_are_not_in_order_are_not_skipped(
    store: Store, pages: Sequence[Sequence[int]], calls: int
) -> None:
    log = Log(*[[failed(number) for number in page] for page in pages])
    for _ in range(8):
        sweep(store, log, calls)
    assert sorted(log.asked) == [4, 5, 6, 7, 8, 9]
    assert (store.get(STATE, cursor_key(APP)) or {}).keys() == {"pk", "high", "n"}


def test_the_place_where_a_sweep_stopped_applies_to_one_page_only(store: Store) -> None:
    log = Log([failed(9), failed(8)], [failed(7), failed(6)])
    sweep(store, log, 2)
    assert (store.get(STATE, cursor_key(APP)) or {})["below"] == 9
    sweep(store, log, 2)
    place = store.get(STATE, cursor_key(APP)) or {}
    assert (place["cursor"], "below" in place) == ("1", False)


def test_a_success_before_the_cursor_still_settles_its_failure(store: Store) -> None:
    """The sweep stopped after the success, and the failure that it settles comes after the cursor."""
    log = Log([succeeded(9, "again"), failed(8), failed(7, "again"), failed(6)])
    sweep(store, log, 1)
    assert log.asked == []
    sweep(store, log, 100)
    assert log.asked == [8, 6]
