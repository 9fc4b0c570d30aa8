"""Existing webhooks, from S3 into the tables: batch by batch, several jobs at once, from where the last one stopped.

Each webhook goes the way that it would have gone when it came: the same writes, with the time at which it came. They
are the same however often they are made, so a batch that was cut short is simply done again, and live webhooks may come
at any time. What is there already is only read.

The place is durable: the key after which nothing has been looked at. It moves when all jobs up to it are done.
"""

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import Final

from holdfast.jobs.ingest import INSTALLATIONS
from holdfast.jobs.migration import walk
from holdfast.jobs.migration.differences import Kind, differences_of_job
from holdfast.jobs.migration.dual import Bucket
from holdfast.jobs.migration.layout import UNSTORED
from holdfast.jobs.migration.pace import Pace
from holdfast.jobs.migration.place import Backfilled, begun, last_backfill, passed
from holdfast.jobs.migration.stored import StoredWebhook, is_expired, webhooks_of_job
from holdfast.jobs.migration.uncounted import Uncounted
from holdfast.jobs.migration.walk import Again
from holdfast.jobs.record import record
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstallationId
from holdfast.ports.clock import Clock
from holdfast.ports.objects import ObjectEntry
from holdfast.ports.store import Store, attr
from holdfast.ports.store.tables import STATE

RECEIVED_BY: Final = "backfill"
_log = logging.getLogger(__name__)

Watch = Callable[[Backfilled], None]


@dataclass(frozen=True, slots=True)
class Manner:
    """How a backfill goes about it. `objects_per_second` None: as fast as it can."""

    workers: int = 8
    objects_per_second: float | None = None
    is_dry_run: bool = False


@dataclass
class Backfill:
    """`watch` is told after each batch."""

    store: Store
    bucket: Bucket
    clock: Clock
    manner: Manner = field(default_factory=Manner)
    watch: Watch = lambda _: None
    chance: random.Random = field(default_factory=random.Random)
    _known: set[InstallationId] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def run(self) -> Backfilled:
        """From where the last one stopped to the end; from the beginning if that one came to the end."""
        self._again = Again(self.clock, self.chance)
        self._pace = Pace(self.clock, self.manner.objects_per_second)
        done = self._begun()
        self.watch(done)
        with ThreadPoolExecutor(self.manner.workers, thread_name_prefix="backfill") as threads:
            for batch in walk.batches(self.bucket, self._again, done.cursor):
                parts = list(threads.map(self._job, batch))
                done = self._passed(done.after(parts, batch[-1][-1].key))
                self.watch(done)
            notes = self._notes()
            while some := list(islice(notes, walk.BATCH)):
                done = done.after(threads.map(self._mended, some), done.cursor)
        done = self._passed(replace(done, finished=self.clock.now()))
        self.watch(done)
        return done

    def _begun(self) -> Backfilled:
        known = None if self.manner.is_dry_run else self._again(lambda: last_backfill(self.store))
        if known is not None and known.finished is None:
            return known
        # Each page is tried again by itself, so the whole count is not: a bucket that is away is told soon.
        total = sum(1 for _ in walk.entries(self.bucket.objects, self._again, self.bucket.layout.prefix))
        if self.manner.is_dry_run:
            return Backfilled(run="dry-run", started=self.clock.now(), total=total)
        return self._again(lambda: begun(self.store, self.clock.now(), total))

    def _passed(self, done: Backfilled) -> Backfilled:
        done = replace(done, updated=self.clock.now())
        if not self.manner.is_dry_run:
            self._again(lambda: passed(self.store, done))
        return done

    # One job

    def _job(self, entries: Sequence[ObjectEntry]) -> Backfilled:
        """What became of one job's objects, as a sum to be added."""
        self._pace.wait(len(entries))
        now = self.clock.now()
        part = Backfilled(objects=len(entries), jobs=1)
        if is_expired(min(entry.modified for entry in entries), now):
            return replace(part, expired=len(entries))
        return self._again(lambda: self._taken(entries, part))

    def _taken(self, entries: Sequence[ObjectEntry], part: Backfilled) -> Backfilled:
        webhooks, bad = webhooks_of_job(self.bucket.objects, self.bucket.layout, entries)
        part = replace(part, unusable=len(bad), unusable_keys=tuple(bad))
        if not webhooks:
            return part
        found = differences_of_job(self.store, webhooks, self.clock.now())
        # An attribute that differs though its webhook is recorded is not ours to overwrite: `compare` tells of it.
        if not any(difference.kind is not Kind.FIELD for difference in found):
            return replace(part, there=len(webhooks))
        if not self.manner.is_dry_run:
            try:
                self._record(webhooks)
            except BadRequest as error:
                # The tables will never take it; all other jobs are not kept waiting for it.
                _log.error("the webhooks of job %s were not stored: %s", webhooks[0].event.key, error)
                keys = (*part.unusable_keys, *(webhook.key for webhook in webhooks))
                return replace(part, unusable=len(keys), unusable_keys=keys)
        return replace(part, written=len(webhooks))

    def _record(self, webhooks: Sequence[StoredWebhook]) -> None:
        """A job's webhooks one after the other; in one transaction, where the store can do that."""
        together = getattr(self.store, "together", None)
        if together is None:
            _record_all(self.store, webhooks)
        else:
            together(lambda store: _record_all(store, webhooks))
        for installation in {webhook.event.key.installation_id for webhook in webhooks}:
            self._know(installation)

    # Webhooks that the tables could not take when they came

    def _notes(self) -> Iterator[str]:
        if not self.manner.is_dry_run:
            for entry in walk.entries(self.bucket.objects, self._again, UNSTORED):
                yield entry.key

    def _mended(self, note: str) -> Backfilled:
        """The note goes when the tables have its webhook, or nobody has. Otherwise it stays, and is named."""
        key = note.removeprefix(UNSTORED).rpartition("?")[0]
        found = self._job([ObjectEntry(key, self.clock.now())])
        if found.unusable:
            return Backfilled(unusable=1, unusable_keys=(note,))
        self._again(lambda: self.bucket.objects.delete(note))
        return Backfilled(mended=1)

    def _know(self, installation: InstallationId) -> None:
        if installation not in self._known:
            self.store.update(STATE, INSTALLATIONS, attr("ids").add_elements({installation}))
            with self._lock:
                self._known.add(installation)


def _record_all(store: Store, webhooks: Sequence[StoredWebhook]) -> None:
    uncounted = Uncounted(store)
    for webhook in webhooks:
        record(uncounted, webhook.event, RECEIVED_BY)
