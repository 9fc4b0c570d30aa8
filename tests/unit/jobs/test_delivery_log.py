"""GitHub's delivery log, page by page: each failed delivery is redelivered, however the log is ordered and cut."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.entrypoints.webhook_receiver import STATUSES
from holdfast.jobs.intake.webhook import WebhookRefusal
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.github_sweeps import GitHubSweeps
from holdfast.jobs.sweep.lost_webhooks import (
    LOG_SECONDS,
    REREAD_SECONDS,
    cursor_key,
    is_behind,
    is_worth_redelivery,
    sweep_deliveries,
)
from holdfast.jobs.sweep.retry import RetryPolicy
from holdfast.kernel.errors import StoreUnavailable
from holdfast.ports.github import DeliveryPage, DeliveryRecord
from holdfast.ports.store import Item, Key, Meter, Store, Table, set_all
from holdfast.ports.store.forwarding import ForwardingStore
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
        self.pages: tuple[Sequence[DeliveryRecord], ...] = pages
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
    assert (store.get(STATE, cursor_key(APP)) or {}).keys() == {"pk", "high", "high_ms", "asked", "n"}


def test_what_was_lost_is_requested_oldest_first_over_several_sweeps(store: Store) -> None:
    log = Log([failed(9), failed(8)], [failed(7), failed(6)], [failed(5)])
    sweep(store, log, 2)
    assert log.asked == [], "the log is listed first"
    for _ in range(4):
        sweep(store, log, 2)
    assert log.asked == [5, 6, 7, 8, 9]


def test_a_success_on_a_page_of_an_earlier_sweep_still_settles_its_failure(store: Store) -> None:
    log = Log([succeeded(9, "again"), failed(8), failed(7, "again"), failed(6)])
    sweep(store, log, 1)
    assert log.asked == []
    sweep(store, log, 100)
    assert log.asked == [6, 8]


def test_a_record_that_appears_late_under_a_lower_id_is_requested_once(store: Store) -> None:
    log = Log([succeeded(9, "nine"), succeeded(8, "eight")])
    sweep(store, log, 10)
    log.pages = ([succeeded(9, "nine"), failed(5), succeeded(8, "eight")],)
    for _ in range(3):
        sweep(store, log, 10)
    assert log.asked == [5]


def test_records_from_long_before_the_last_sweep_are_not_read_again(store: Store) -> None:
    log = Log([succeeded(9, "nine")])
    later = CREATED.plus(REREAD_SECONDS + 60)
    sweep_deliveries(store, log, APP, later, CallBudget(10))  # type: ignore[arg-type]
    log.pages = ([succeeded(9, "nine"), failed(5)],)
    assert sweep_deliveries(store, log, APP, later, CallBudget(10)).examined == 0  # type: ignore[arg-type]


class ForgetfulStore(ForwardingStore):
    """Its next read of stored ids fails."""

    is_away = False

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        if self.is_away and "#lost#" in key.partition:
            raise StoreUnavailable("away")
        return super().get(table, key, consistent=consistent)

    def metered(self, meter: Meter) -> Store:
        return ForgetfulStore(self._store.metered(meter))


def test_ids_that_cannot_be_read_are_requested_by_a_later_sweep(store: Store) -> None:
    """Found by seeds 125, 725, 761 and 977: their name was forgotten when the store did not answer."""
    forgetful = ForgetfulStore(store)
    log = Log([failed(9), failed(8)], [failed(7)])
    sweep(forgetful, log, 3)
    assert log.asked == [7]
    forgetful.is_away = True
    with pytest.raises(StoreUnavailable):
        sweep(forgetful, log, 3)
    forgetful.is_away = False
    sweep(forgetful, log, 3)
    assert log.asked == [7, 8, 9]


def test_a_delivery_that_was_refused_as_too_old_is_requested_again() -> None:
    """Our clock may have been ahead."""
    record = replace(failed(9), status_code=STATUSES[WebhookRefusal.TOO_OLD][0])
    assert is_worth_redelivery(record, CREATED)
    assert is_worth_redelivery(replace(record, is_redelivery=True), CREATED)


def test_an_unfinished_sweep_of_an_older_version_is_resumed(store: Store) -> None:
    """It requested the newest first, and had stopped within the second page."""
    log = Log([failed(9), failed(8)], [failed(7), failed(6)])
    store.update(STATE, cursor_key(APP), set_all({"high": 1, "top": 9, "cursor": "1", "below": 7, "n": 4}))
    sweep(store, log, 10)
    assert log.asked == [6, 7]
    assert (store.get(STATE, cursor_key(APP)) or {})["high"] == 9


class OutageLog:
    """A log of one delivery every `gap_seconds`, all of which failed; GitHub keeps each for three days.

    Redeliveries are appended as successes. Calls beyond the App's limit are refused.
    """

    def __init__(self, clock: StillClock, deliveries: int, gap_seconds: float) -> None:
        self._clock = clock
        begin = clock.now().plus(-deliveries * gap_seconds)
        self.log = [
            DeliveryRecord(number, f"guid {number}", begin.plus(number * gap_seconds), False, 0, "workflow_job")
            for number in range(1, deliveries + 1)
        ]
        self.lost = len(self.log)
        self.asked: list[int] = []
        self.calls: deque[int] = deque()

    def deliveries(self, cursor: str | None = None) -> DeliveryPage:
        self._count()
        before = int(cursor) if cursor else len(self.log)
        records = [record for record in self.log[max(0, before - 100) : before][::-1] if not self._is_dropped(record)]
        return DeliveryPage(records, str(before - 100) if before > 100 and len(records) == 100 else None)

    def redeliver(self, delivery: int) -> None:
        self._count()
        record = self.log[delivery - 1]
        assert not self._is_dropped(record), f"delivery {delivery} was requested too late"
        self.asked.append(delivery)
        self.log.append(DeliveryRecord(len(self.log) + 1, record.guid, self._clock.now(), True, 200, record.event))

    def _is_dropped(self, record: DeliveryRecord) -> bool:
        return self._clock.now().seconds_since(record.delivered_at) > LOG_SECONDS

    def _count(self) -> None:
        now = self._clock.now().epoch_ms
        while self.calls and self.calls[0] <= now - 3_600_000:
            self.calls.popleft()
        self.calls.append(now)
        assert len(self.calls) <= 4500, "the rest of an hour's calls is left to others"


def test_thirty_thousand_lost_deliveries_are_found_oldest_first_before_the_log_drops_them() -> None:
    """An outage of two and a half days, which leaves twelve hours for the oldest; sweeps every five minutes."""
    clock = StillClock(CREATED)
    store = memory_store(clock)
    github = OutageLog(clock, 30_000, 7.2)
    sweeps = GitHubSweeps(store, github, clock, RetryPolicy(), APP, "here")  # type: ignore[arg-type]
    began = clock.now()
    while len(github.asked) < github.lost:
        assert clock.now().seconds_since(began) < 12 * 3600, f"{len(github.asked)} found after half a day"
        assert sweeps.sweep(200, 300).problems == []
        clock.advance(300)
    assert github.asked == list(range(1, 30_001)), "each once, the oldest first"
    for _ in range(20):
        sweeps.sweep(200, 300)
        clock.advance(300)
    assert len(github.asked) == 30_000
    assert not is_behind(store, APP)
