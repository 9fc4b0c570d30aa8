"""Redelivers lost webhooks. GitHub does not retry failed deliveries by itself.

    sweep_deliveries   reads GitHub's delivery log, newest first, down to where the last sweep began,
                       and requests a redelivery of each that failed

The position is durable: `high` is the newest delivery such that it and all older ones are settled. A sweep that stops
early (budget or crash) leaves `top` (where it began), `cursor` (its page) and, if it stopped within a page, `below`
(everything from there up is settled); the next sweep resumes there. A second redelivery does no harm: it is recognized
as a duplicate.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from holdfast.jobs.model.times import made_at
from holdfast.jobs.sweep.polling import CallBudget
from holdfast.kernel.errors import Retryable, WriteConflict
from holdfast.kernel.ids import joined_key
from holdfast.kernel.instants import Instant
from holdfast.ports.github import DeliveryRecord, GitHub, GitHubRefused
from holdfast.ports.store import Item, Key, Store, Update, attr, remove_all, set_all
from holdfast.ports.store.tables import STATE

LOG_SECONDS: Final = 3 * 86_400
# Refused because of their content: a redelivery would be refused as well.
_HOPELESS: Final = frozenset({400, 413, 415})
_SLOW: Final = 408  # a slow request; the next one may be faster


@dataclass
class DeliverySweepResult:
    """`is_done`: the sweep has reached the point where the last one began."""

    examined: int = 0
    redelivered: list[int] = field(default_factory=list)
    is_done: bool = False


def cursor_key(app_id: int) -> Key:
    return Key(joined_key("github", "cursor", app_id))


def is_worth_redelivery(record: DeliveryRecord, now: Instant) -> bool:
    """Whether a failed delivery may succeed if redelivered.

    One that we refused is redelivered once: a wrong secret may have been corrected since.
    """
    sent = made_at(record.guid) or record.delivered_at
    if record.is_success or record.status_code in _HOPELESS or now.seconds_since(sent) > LOG_SECONDS:
        return False
    return not (record.is_redelivery and 400 <= record.status_code < 500 and record.status_code != _SLOW)


def sweep_deliveries(
    store: Store, github: GitHub, app_id: int, now: Instant, budget: CallBudget
) -> DeliverySweepResult:
    """Redeliver failed deliveries, within the budget. Two sweeps at once do no harm."""
    key = cursor_key(app_id)
    position: Item = store.get(STATE, key) or {}
    swept = DeliverySweepResult()
    settled: set[str] = set()  # guids that have succeeded, or were redelivered
    while not swept.is_done and budget.spend():
        page = github.deliveries(position.get("cursor"))
        high = position.get("high", 0)
        new = [record for record in page.records if record.id > high]
        top = position.get("top") or (page.records[0].id if page.records else high)
        below = position.get("below", math.inf)
        # A failure since the sweep began is not settled: this sweep has not redelivered it.
        settled.update(record.guid for record in new if below <= record.id <= top or record.is_success)
        records = sorted((record for record in new if record.id < below), key=lambda record: -record.id)
        swept.examined += len(records)
        for record in records:
            try:
                is_settled = _settle(github, record, settled, now, budget, swept)
            except Retryable:
                _stopped(store, key, position, top, record)
                raise
            if not is_settled:
                _stopped(store, key, position, top, record)
                return swept
        swept.is_done = page.cursor is None or len(new) < len(page.records)
        try:
            position = _moved(store, key, position, top, None if swept.is_done else page.cursor)
        except WriteConflict:
            return swept  # another sweep has moved the position
    return swept


def _settle(
    github: GitHub,
    record: DeliveryRecord,
    settled: set[str],
    now: Instant,
    budget: CallBudget,
    swept: DeliverySweepResult,
) -> bool:
    """Redeliver the delivery if that may help. False: the budget is spent."""
    if record.guid not in settled and is_worth_redelivery(record, now):
        if not budget.spend():
            return False
        with suppress(GitHubRefused):  # too old by now, or gone
            github.redeliver(record.id)
        swept.redelivered.append(record.id)
    settled.add(record.guid)
    return True


def restart_sweep(store: Store, app_id: int) -> None:
    """Forget the cursor of an unfinished sweep, which GitHub may have dropped; `high` stays."""
    with suppress(WriteConflict):
        store.update(STATE, cursor_key(app_id), remove_all("top", "cursor", "below"), attr("top").exists())


def _moved(store: Store, key: Key, position: Item, top: int, cursor: str | None) -> Item:
    """Save the position, unless another sweep has moved it."""
    if cursor is None:
        update = set_all({"high": top}) + remove_all("top", "cursor", "below")
    else:
        update = set_all({"top": top, "cursor": cursor}) + remove_all("below")  # it was for the previous page
    return _written(store, key, position, update)


def _stopped(store: Store, key: Key, position: Item, top: int, record: DeliveryRecord) -> None:
    """Resume at this record next time: a page may have more failures than a sweep has calls."""
    with suppress(WriteConflict):  # another sweep has moved the position
        _written(store, key, position, set_all({"top": top, "below": record.id + 1}))


def _written(store: Store, key: Key, position: Item, update: Update) -> Item:
    version = position.get("n", 0)
    seen = attr("n").equals(version) if version else attr("n").is_absent()
    return store.update(STATE, key, update + set_all({"n": version + 1}), seen).new
