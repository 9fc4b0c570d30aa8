"""Webhooks that were lost. GitHub does not send them again by itself, so we look for them.

    sweep_deliveries   reads GitHub's log of deliveries, newest first, down to where the last sweep began;
                       asks again for what failed

The place is durable: `high` is the newest attempt such that it and all older ones are settled. A sweep that is cut
short (by its budget, or by a crash) leaves `top` (where it began), `cursor` (which page it is at) and, where it stopped
in the middle of that page, `below` (what it has from there up is dealt with); the next one goes on there. Asking twice
for the same delivery does no harm: it is known when it comes.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from holdfast.jobs.budget import Budget
from holdfast.jobs.times import made_at
from holdfast.kernel.errors import Retryable, WriteConflict
from holdfast.kernel.ids import joined_key
from holdfast.kernel.instants import Instant
from holdfast.ports.github import DeliveryRecord, GitHub, GitHubRefused
from holdfast.ports.store import Item, Key, Store, Update, attr, remove_all, set_all
from holdfast.ports.store.tables import STATE

LOG_SECONDS: Final = 3 * 86_400
# Refused for what they are: they would be refused again.
_HOPELESS: Final = frozenset({400, 413, 415})
_SLOW: Final = 408  # that one was long under way says nothing of the next


@dataclass
class Swept:
    """What a sweep did. `is_done`: it came down to where the last one began."""

    examined: int = 0
    redelivered: list[int] = field(default_factory=list)
    is_done: bool = False


def cursor_key(app_id: int) -> Key:
    return Key(joined_key("github", "cursor", app_id))


def is_worth_asking(record: DeliveryRecord, now: Instant) -> bool:
    """Whether a delivery that failed may succeed if it is sent again.

    What we answered with a no of our own is asked for once more, not for ever: a secret may have been put right since.
    """
    sent = made_at(record.guid) or record.delivered_at
    if record.is_success or record.status_code in _HOPELESS or now.seconds_since(sent) > LOG_SECONDS:
        return False
    return not (record.is_redelivery and 400 <= record.status_code < 500 and record.status_code != _SLOW)


def sweep_deliveries(store: Store, github: GitHub, app_id: int, now: Instant, budget: Budget) -> Swept:
    """Ask again for deliveries that failed, as far as the budget goes. Two sweeps at once do no harm."""
    key = cursor_key(app_id)
    place: Item = store.get(STATE, key) or {}
    swept = Swept()
    settled: set[str] = set()  # guids that have succeeded, or were asked for
    while not swept.is_done and budget.spend():
        page = github.deliveries(place.get("cursor"))
        high = place.get("high", 0)
        new = [record for record in page.records if record.id > high]
        top = place.get("top") or (page.records[0].id if page.records else high)
        below = place.get("below", math.inf)
        # What came since the sweep began has not been dealt with: that it failed again settles nothing.
        settled.update(record.guid for record in new if below <= record.id <= top or record.is_success)
        records = sorted((record for record in new if record.id < below), key=lambda record: -record.id)
        swept.examined += len(records)
        for record in records:
            try:
                is_dealt_with = _dealt_with(github, record, settled, now, budget, swept)
            except Retryable:
                _stopped(store, key, place, top, record)
                raise
            if not is_dealt_with:
                _stopped(store, key, place, top, record)
                return swept
        swept.is_done = page.cursor is None or len(new) < len(page.records)
        try:
            place = _moved(store, key, place, top, None if swept.is_done else page.cursor)
        except WriteConflict:
            return swept  # another sweep is further
    return swept


def _dealt_with(
    github: GitHub, record: DeliveryRecord, settled: set[str], now: Instant, budget: Budget, swept: Swept
) -> bool:
    """Ask for the delivery again, where that is of use. False: there was no call left for it."""
    if record.guid not in settled and is_worth_asking(record, now):
        if not budget.spend():
            return False
        with suppress(GitHubRefused):  # too old by now, or gone: nothing more can be done for it
            github.redeliver(record.id)
        swept.redelivered.append(record.id)
    settled.add(record.guid)
    return True


def begin_again(store: Store, app_id: int) -> None:
    """Forget where the sweep was, which GitHub may not know any more; what was settled stays so."""
    with suppress(WriteConflict):
        store.update(STATE, cursor_key(app_id), remove_all("top", "cursor", "below"), attr("top").exists())


def _moved(store: Store, key: Key, place: Item, top: int, cursor: str | None) -> Item:
    """Write down how far the sweep has come, unless another one has moved it meanwhile."""
    if cursor is None:
        update = set_all({"high": top}) + remove_all("top", "cursor", "below")
    else:
        update = set_all({"top": top, "cursor": cursor}) + remove_all("below")  # that was of the page before
    return _written(store, key, place, update)


def _stopped(store: Store, key: Key, place: Item, top: int, record: DeliveryRecord) -> None:
    """The page is read again next time, from this record on: a page may have more failures than a sweep has calls."""
    with suppress(WriteConflict):  # another sweep is further
        _written(store, key, place, set_all({"top": top, "below": record.id + 1}))


def _written(store: Store, key: Key, place: Item, update: Update) -> Item:
    version = place.get("n", 0)
    seen = attr("n").equals(version) if version else attr("n").is_absent()
    return store.update(STATE, key, update + set_all({"n": version + 1}), seen).new
