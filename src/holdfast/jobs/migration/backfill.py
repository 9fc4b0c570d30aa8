"""Copies existing webhooks from S3 into the tables: in batches, several jobs at once, resuming where it stopped.

Each webhook is recorded by the same writes as a live one, with its original time. The writes are idempotent, so an
interrupted batch is simply repeated, and live webhooks may arrive at any time. Webhooks that are already in the tables
are only read.

The position is durable: the last key of the last completed batch.
"""

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import Final

from holdfast.jobs.figures.counting import Counting
from holdfast.jobs.intake.record import record
from holdfast.jobs.intake.tracker import INSTALLATIONS, installations
from holdfast.jobs.migration import scan
from holdfast.jobs.migration.backfill_progress import BackfillProgress, begin_backfill, last_backfill, save_progress
from holdfast.jobs.migration.differences import DifferenceKind, differences_of_job
from holdfast.jobs.migration.dual import Bucket
from holdfast.jobs.migration.layout import UNSTORED
from holdfast.jobs.migration.scan import RateLimit, RetryCalls
from holdfast.jobs.migration.stored import StoredWebhook, is_expired, webhooks_of_job
from holdfast.kernel.errors import BadRequest, WriteConflict
from holdfast.kernel.ids import InstallationId
from holdfast.ports.clock import Clock
from holdfast.ports.objects import ObjectEntry
from holdfast.ports.store import Condition, Key, Meter, Store, Table, TransactionalStore, Update, Written, attr
from holdfast.ports.store.forwarding import ForwardingStore
from holdfast.ports.store.tables import JOB_EVENTS, STATE
from holdfast.ports.store.updates import Plus

RECEIVED_BY: Final = "backfill"
_log = logging.getLogger(__name__)

OnProgress = Callable[[BackfillProgress], None]


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """`objects_per_second` None: no limit."""

    workers: int = 8
    objects_per_second: float | None = None
    is_dry_run: bool = False


@dataclass
class Backfill:
    """Calls `on_progress` after each batch."""

    store: Store
    bucket: Bucket
    clock: Clock
    options: BackfillOptions = field(default_factory=BackfillOptions)
    on_progress: OnProgress = lambda _: None
    chance: random.Random = field(default_factory=random.Random)
    _known: set[InstallationId] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def run(self) -> BackfillProgress:
        """Resume the unfinished backfill, or start a new one."""
        self._retry = RetryCalls(self.clock, self.chance)
        self._pace = RateLimit(self.clock, self.options.objects_per_second)
        done = self._begin()
        self.on_progress(done)
        with ThreadPoolExecutor(self.options.workers, thread_name_prefix="backfill") as threads:
            for batch in scan.batches(self.bucket, self._retry, done.cursor):
                parts = list(threads.map(self._job, batch))
                done = self._save(done.after(parts, batch[-1][-1].key))
                self.on_progress(done)
            notes = self._notes()
            while some := list(islice(notes, scan.BATCH)):
                done = done.after(threads.map(self._fill_in_noted, some), done.cursor)
        if not self.options.is_dry_run:
            # Before it is finished: a backfill that dies here counts again when it is resumed.
            for installation in self._retry(lambda: installations(self.store)):
                self._retry(Counting(self.store, self.clock, installation).recount)
        done = self._save(replace(done, finished=self.clock.now()))
        self.on_progress(done)
        return done

    def _begin(self) -> BackfillProgress:
        known = None if self.options.is_dry_run else self._retry(lambda: last_backfill(self.store))
        if known is not None and known.finished is None:
            return known
        # Not retried as a whole, since each page is: an unavailable bucket is reported soon.
        total = sum(1 for _ in scan.entries(self.bucket.objects, self._retry, self.bucket.layout.prefix))
        if self.options.is_dry_run:
            return BackfillProgress(run="dry-run", started=self.clock.now(), total=total)
        return self._retry(lambda: begin_backfill(self.store, self.clock.now(), total))

    def _save(self, done: BackfillProgress) -> BackfillProgress:
        done = replace(done, updated=self.clock.now())
        if not self.options.is_dry_run:
            self._retry(lambda: save_progress(self.store, done))
        return done

    # One job

    def _job(self, entries: Sequence[ObjectEntry]) -> BackfillProgress:
        """The counts for one job's objects."""
        self._pace.wait(len(entries))
        now = self.clock.now()
        part = BackfillProgress(objects=len(entries), jobs=1)
        if is_expired(min(entry.modified for entry in entries), now):
            return replace(part, expired=len(entries))
        return self._retry(lambda: self._filled_in(entries, part))

    def _filled_in(self, entries: Sequence[ObjectEntry], part: BackfillProgress) -> BackfillProgress:
        webhooks, bad = webhooks_of_job(self.bucket.objects, self.bucket.layout, entries)
        part = replace(part, unusable=len(bad), unusable_keys=tuple(bad))
        if not webhooks:
            return part
        found = differences_of_job(self.store, webhooks, self.clock.now())
        # An attribute that differs although its webhook is recorded is not overwritten: `compare` reports it.
        if not any(difference.kind is not DifferenceKind.FIELD for difference in found):
            return replace(part, there=len(webhooks))
        if not self.options.is_dry_run:
            try:
                self._record(webhooks)
            except BadRequest as error:
                # The tables will never accept it; the other jobs continue.
                _log.error("the webhooks of job %s were not stored: %s", webhooks[0].event.key, error)
                keys = (*part.unusable_keys, *(webhook.key for webhook in webhooks))
                return replace(part, unusable=len(keys), unusable_keys=keys)
        return replace(part, written=len(webhooks))

    def _record(self, webhooks: Sequence[StoredWebhook]) -> None:
        """Record a job's webhooks in order; in one transaction, if the store supports it."""
        if isinstance(self.store, TransactionalStore):
            self.store.run_in_transaction(lambda store: _record_all(store, webhooks))
        else:
            _record_all(self.store, webhooks)
        for installation in {webhook.event.key.installation_id for webhook in webhooks}:
            self._add_installation(installation)

    # Webhooks that failed to reach the tables when they arrived

    def _notes(self) -> Iterator[str]:
        if not self.options.is_dry_run:
            for entry in scan.entries(self.bucket.objects, self._retry, UNSTORED):
                yield entry.key

    def _fill_in_noted(self, note: str) -> BackfillProgress:
        """Fill in the webhook of a note, and delete the note. It stays, and is reported, if the webhook is unusable."""
        key = note.removeprefix(UNSTORED).rpartition("?")[0]
        found = self._job([ObjectEntry(key, self.clock.now())])
        if found.unusable:
            return BackfillProgress(unusable=1, unusable_keys=(note,))
        self._retry(lambda: self.bucket.objects.delete(note))
        return BackfillProgress(mended=1)

    def _add_installation(self, installation: InstallationId) -> None:
        if installation not in self._known:
            self.store.update(STATE, INSTALLATIONS, attr("ids").add_elements({installation}))
            with self._lock:
                self._known.add(installation)


def _record_all(store: Store, webhooks: Sequence[StoredWebhook]) -> None:
    without_counts = BackfillStore(store)
    for webhook in webhooks:
        record(without_counts, webhook.event, RECEIVED_BY)


class BackfillStore(ForwardingStore):
    """A store that does not increment counters in a job's history: a webhook found again in S3 is not a redelivery."""

    def update(self, table: Table, key: Key, update: Update, condition: Condition | None = None) -> Written:
        if table.name != JOB_EVENTS.name:
            return self._store.update(table, key, update, condition)
        kept = Update(tuple(change for change in update.changes if not isinstance(change, Plus)))
        if kept.changes:
            return self._store.update(table, key, kept, condition)
        found = self._store.get(table, key)
        if found is None:
            raise WriteConflict(f"{table.name} {key}: no such item", None)
        return Written(found, found)

    def metered(self, meter: Meter) -> Store:
        return BackfillStore(self._store.metered(meter))
