"""Redelivers lost webhooks. GitHub does not retry failed deliveries by itself.

    list        read GitHub's delivery log, newest first, down to where the last sweep began
    redeliver   request each delivery that failed, the oldest first: the log drops it first

The position is durable: `high` is the newest delivery such that it and all older ones are settled, and `high_ms` is
when it was read. A sweep that stops early (budget or crash) leaves `top` (where it began), `cursor` (the next page to
list) and `lost` (the names of items with the ids that are left); the next sweep resumes there. A second redelivery does
no harm: it is recognized as a duplicate.

A record may appear late, under a lower id than others. So the fifteen minutes before `high_ms` are read again; `asked`
has the ids that were requested lately.
"""

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from holdfast.jobs.intake.webhook import short_mark
from holdfast.jobs.model.times import made_at
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.kernel.errors import Retryable, WriteConflict
from holdfast.kernel.ids import joined_key
from holdfast.kernel.instants import Instant
from holdfast.ports.github import DeliveryPage, DeliveryRecord, GitHub, GitHubRefused
from holdfast.ports.store import Item, Key, Store, Update, attr, remove_all, set_all
from holdfast.ports.store.tables import STATE

LOG_SECONDS: Final = 3 * 86_400
REREAD_SECONDS: Final = 900
_ASKED_MOST: Final = 500
_IDS_EACH: Final = 1000  # of one stored item: about 10 KB
# Refused because of their content: a redelivery would be refused as well.
_HOPELESS: Final = frozenset({400, 413, 415})
_SLOW: Final = 408  # a slow request; the next one may be faster


@dataclass
class DeliverySweepResult:
    """`is_done`: everything up to the point where the sweep began is settled."""

    examined: int = 0
    redelivered: list[int] = field(default_factory=list)
    is_done: bool = False


def cursor_key(app_id: int) -> Key:
    return Key(joined_key("github", "cursor", app_id))


def is_worth_redelivery(record: DeliveryRecord, now: Instant) -> bool:
    """Whether a failed delivery may succeed if redelivered.

    One that we refused is redelivered once: a wrong secret may have been corrected since. GitHub redelivers for three
    days after the first attempt, which may itself come days after the event. A redelivery does not say when the first
    attempt was, so the event's own time, which is in the id, ends the requests.
    """
    if record.is_success or record.status_code in _HOPELESS or now.seconds_since(record.delivered_at) > LOG_SECONDS:
        return False
    made = made_at(record.guid)
    if record.is_redelivery and made is not None and now.seconds_since(made) > 2 * LOG_SECONDS:
        return False
    return not (record.is_redelivery and 400 <= record.status_code < 500 and record.status_code != _SLOW)


def is_behind(store: Store, app_id: int) -> bool:
    """Whether the last sweep left deliveries for the next one."""
    return "top" in (store.get(STATE, cursor_key(app_id)) or {})


def sweep_deliveries(
    store: Store, github: GitHub, app_id: int, now: Instant, budget: CallBudget
) -> DeliverySweepResult:
    """Redeliver failed deliveries, within the budget. Two sweeps at once do no harm."""
    sweep = _DeliverySweep(store, github, app_id, now, budget)
    try:
        if sweep.list_log():
            sweep.redeliver()
    except Retryable:
        sweep.save()
        raise
    sweep.save()
    return sweep.swept


class _DeliverySweep:
    """One sweep. `lost` has the ids that it has listed and not yet redelivered, newest first."""

    def __init__(self, store: Store, github: GitHub, app_id: int, now: Instant, budget: CallBudget) -> None:
        self._store = store
        self._github = github
        self._app_id = app_id
        self._now = now
        self._budget = budget
        self._position: Item = store.get(STATE, cursor_key(app_id)) or {}
        self._top: int | None = self._position.get("top")
        self._top_ms: int = self._position.get("top_ms", now.epoch_ms)
        self._cursor: str | None = self._position.get("cursor")
        self._is_listed = bool(self._position.get("is_listed"))
        self._stored: list[str] = list(self._position.get("lost", ()))
        self._lost: list[int] = []
        self._asked: set[int] = {int(number) for number in self._position.get("asked", ())}
        self._listed: set[int] = set()
        self._settled: set[str] = set()  # guids that have succeeded, or are in `lost`
        self.swept = DeliverySweepResult()

    def list_log(self) -> bool:
        """List what failed. False: the budget is spent before the end."""
        while not self._is_listed:
            if not self._budget.spend():
                return False
            page = self._github.deliveries(self._cursor)
            if self._top is None:
                self._top = max((record.id for record in page.records), default=self._position.get("high", 0))
            self._take(page, self._top)
            self._cursor = page.cursor
        return True

    def _take(self, page: DeliveryPage, top: int) -> None:
        high, high_ms = self._position.get("high", 0), self._position.get("high_ms", math.inf)
        since_ms = high_ms - REREAD_SECONDS * 1000
        new = [record for record in page.records if record.id > high or record.delivered_at.epoch_ms >= since_ms]
        self.swept.examined += len(new)
        self._listed.update(record.id for record in new)
        for record in sorted(new, key=lambda record: -record.id):
            if record.id > top and not record.is_success:
                continue  # it failed since the sweep began: the next one requests it
            is_open = record.guid not in self._settled and record.id not in self._asked
            if is_open and is_worth_redelivery(record, self._now):
                self._lost.append(record.id)
            self._settled.add(record.guid)
        self._is_listed = page.cursor is None or len(new) < len(page.records)

    def redeliver(self) -> None:
        """Request what was lost, the oldest first."""
        while self._lost or self._stored:
            if not self._lost:
                self._lost = self._loaded(self._stored[-1])
                self._stored.pop()  # not before they are read: if that fails, the name is stored again
                continue
            if not self._budget.spend():
                return
            with suppress(GitHubRefused):  # too old by now, or gone
                self._github.redeliver(self._lost[-1])
            self.swept.redelivered.append(self._lost.pop())
        self.swept.is_done = True

    def save(self) -> None:
        """Save the position, unless another sweep has moved it. The ids first: the position names their items."""
        if self._top is None:
            return  # nothing was read
        if self.swept.is_done:
            if "top" not in self._position:  # all was listed now, and what is older is not read again
                self._asked &= self._listed
            update = set_all({"high": max(self._top, self._position.get("high", 0)), "high_ms": self._top_ms})
            update += remove_all("top", "top_ms", "cursor", "is_listed", "lost")
        else:
            left = [self._lost[at : at + _IDS_EACH] for at in range(0, len(self._lost), _IDS_EACH)]
            names = [*self._stored, *(self._store_ids(ids) for ids in left)]
            update = set_all({"top": self._top, "top_ms": self._top_ms, "is_listed": self._is_listed, "lost": names})
            is_at = self._cursor is not None and not self._is_listed
            update += set_all({"cursor": self._cursor}) if is_at else remove_all("cursor")
        asked = sorted(self._asked.union(self.swept.redelivered), reverse=True)[:_ASKED_MOST]
        update += set_all({"asked": asked}) if asked else remove_all("asked")
        with suppress(WriteConflict):
            _write(self._store, cursor_key(self._app_id), self._position, update + remove_all("below"))

    def _store_ids(self, ids: Iterable[int]) -> str:
        """Stored under a name made from them, so that two sweeps never overwrite each other's."""
        listed = list(ids)
        name = short_mark("lost", *map(str, listed))
        expiry = self._now.epoch_seconds + LOG_SECONDS
        self._store.put(STATE, {"pk": self._key(name).partition, "ids": listed, "expiresAt": expiry})
        return name

    def _loaded(self, name: str) -> list[int]:
        return [int(number) for number in (self._store.get(STATE, self._key(name)) or {}).get("ids", ())]

    def _key(self, name: str) -> Key:
        return Key(joined_key("github", "lost", self._app_id, name))


def restart_sweep(store: Store, app_id: int) -> None:
    """Forget the cursor of an unfinished sweep, which GitHub may have dropped; `high` stays."""
    unfinished = remove_all("top", "top_ms", "cursor", "is_listed", "lost", "below")
    with suppress(WriteConflict):
        store.update(STATE, cursor_key(app_id), unfinished, attr("top").exists())


def _write(store: Store, key: Key, position: Item, update: Update) -> None:
    version = position.get("n", 0)
    seen = attr("n").equals(version) if version else attr("n").is_absent()
    store.update(STATE, key, update + set_all({"n": version + 1}), seen)
