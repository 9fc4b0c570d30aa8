"""Existing webhooks, from S3 into the tables: batch by batch, several jobs at once, from where the last one stopped.

Each webhook goes the way that it would have gone when it came: the same writes, with the time at which it came. They
are the same however often they are made, so a batch that was cut short is simply done again, and live webhooks may come
at any time. What is there already is only read.

The place is durable: the key after which nothing has been looked at. It moves when all jobs up to it are done.
"""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final

from holdfast.jobs.ingest import INSTALLATIONS
from holdfast.jobs.migration import walk
from holdfast.jobs.migration.differences import Kind, differences_of_job
from holdfast.jobs.migration.dual import Bucket
from holdfast.jobs.migration.layout import UNSTORED
from holdfast.jobs.migration.pace import Pace
from holdfast.jobs.migration.place import Backfilled, begun, passed
from holdfast.jobs.migration.stored import is_expired, webhooks_of_job
from holdfast.jobs.migration.uncounted import Uncounted
from holdfast.jobs.migration.walk import Again
from holdfast.jobs.record import record
from holdfast.kernel.ids import InstallationId
from holdfast.ports.clock import Clock
from holdfast.ports.objects import ObjectEntry, every_entry
from holdfast.ports.store import Store, attr
from holdfast.ports.store.tables import STATE

RECEIVED_BY: Final = "backfill"

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
        self._quiet = Uncounted(self.store)
        done = self._begun()
        self.watch(done)
        with ThreadPoolExecutor(self.manner.workers, thread_name_prefix="backfill") as threads:
            for batch in walk.batches(self.bucket, self._again, done.cursor):
                parts = list(threads.map(self._job, batch))
                done = self._passed(done.after(parts, batch[-1][-1].key))
                self.watch(done)
            mended = sum(threads.map(self._mend, self._unstored()))
        done = replace(done, mended=done.mended + mended, finished=self.clock.now())
        done = self._passed(done)
        self.watch(done)
        return done

    def _begun(self) -> Backfilled:
        def count() -> int:
            return sum(1 for _ in every_entry(self.bucket.objects, self.bucket.layout.prefix))

        if self.manner.is_dry_run:
            return Backfilled(run="dry-run", started=self.clock.now(), total=self._again(count))
        return begun(self.store, self.clock.now(), lambda: self._again(count))

    def _passed(self, done: Backfilled) -> Backfilled:
        done = replace(done, updated=self.clock.now())
        if not self.manner.is_dry_run:
            self._again(lambda: passed(self.store, done))
        return done

    # What is there

    def _unstored(self) -> list[str]:
        if self.manner.is_dry_run:
            return []
        return [entry.key for entry in every_entry(self.bucket.objects, UNSTORED)]

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
            for webhook in webhooks:
                record(self._quiet, webhook.event, RECEIVED_BY)
                self._know(webhook.event.key.installation_id)
        return replace(part, written=len(webhooks))

    def _mend(self, mark: str) -> int:
        """A webhook that the tables could not take when it came. Its note goes when they have it."""
        key = mark.removeprefix(UNSTORED).rpartition("?")[0]
        self._job([ObjectEntry(key, self.clock.now())])
        self._again(lambda: self.bucket.objects.delete(mark))
        return 1

    def _know(self, installation: InstallationId) -> None:
        if installation not in self._known:
            self.store.update(STATE, INSTALLATIONS, attr("ids").add_elements({installation}))
            with self._lock:
                self._known.add(installation)
