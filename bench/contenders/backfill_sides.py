"""One side of the backfill's benchmark, as a process: `python -m bench.contenders.backfill_sides SIDE JOBS DIRECTORY`.

The bucket is generated as it is read: a job's three objects follow from its number, and none is kept. SQLite keeps a
cache of some megabytes for each thread; a store that forgets everything shows what the backfill itself keeps.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final, cast

from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import sqlite_store
from holdfast.adapters.system_clock import SystemClock
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import Delivery
from holdfast.jobs.migration.backfill import Backfill, BackfillOptions
from holdfast.jobs.migration.compare import S3Comparison
from holdfast.jobs.migration.dual import Bucket
from holdfast.jobs.migration.layout import ObjectLayout
from holdfast.kernel.instants import Instant
from holdfast.ports.objects import ObjectEntry, ObjectPage, Rule, StoredObject
from holdfast.ports.store import Condition, Item, Key, Store, Table, Update, Written
from holdfast.ports.store.tables import STATE, TABLES
from tests.support.migration_world import life

LAYOUT: Final = ObjectLayout("webhooks/{installation_id}/{job_id}/{status}.json")
STATUSES: Final = ("completed", "in_progress", "queued")  # in the order of their keys
WORKERS: Final = 8
_FIRST: Final = 10_000_000  # all numbers have as many digits: their order is that of their keys
_MODEL: Final = 11_223_344


class MadeUpBucket:
    """Implements `holdfast.ports.objects.Objects`, for reading."""

    def __init__(self, jobs: int, now: Instant) -> None:
        self.jobs = jobs
        self._now = now
        bodies = [sent.body for sent in life(_MODEL)]
        self._models = dict(zip(("queued", "in_progress", "completed"), bodies, strict=True))

    def page(self, prefix: str, after: str = "", most: int = 1000) -> ObjectPage:
        if prefix != LAYOUT.prefix:
            return ObjectPage([], is_last=True)
        start = self._position(after) + 1 if after else 0
        end = min(start + most, self.jobs * len(STATUSES))
        entries = [ObjectEntry(self._key(position), self._now) for position in range(start, end)]
        return ObjectPage(entries, is_last=end == self.jobs * len(STATUSES))

    def get(self, key: str, most_bytes: int | None = None) -> StoredObject | None:  # noqa: ARG002 -- all are short
        place = LAYOUT.place(key)
        if place is None:
            return None
        number = str(place.job_id).encode()
        # The run, too: three jobs each.
        run = str(place.job_id // 3 + 1).encode()
        model = self._models[place.status]
        body = model.replace(str(_MODEL).encode(), number).replace(str(_MODEL // 3 + 1).encode(), run)
        return StoredObject(key, body, {}, '"made-up"', self._now)

    def put(
        self,
        key: str,
        body: bytes,
        metadata: Mapping[str, str] | None = None,
        *,
        if_absent: bool = False,
        if_etag: str | None = None,
    ) -> bool:
        raise NotImplementedError

    def delete(self, key: str) -> None:
        raise NotImplementedError

    def lifecycle(self) -> list[Rule]:
        raise NotImplementedError

    def set_lifecycle(self, rules: Sequence[Rule]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to give back."""

    def deliveries(self, number: int) -> Iterator[Delivery]:
        """The same webhooks of one job, as GitHub would have sent them."""
        for status in reversed(STATUSES):
            stored = self.get(LAYOUT.template.format(installation_id=1, job_id=_FIRST + number, status=status))
            if stored is not None:
                yield Delivery("workflow_job", f"{number}-{status}", "99", stored.body)

    def _key(self, position: int) -> str:
        job, status = _FIRST + position // len(STATUSES), STATUSES[position % len(STATUSES)]
        return f"webhooks/1/{job}/{status}.json"

    def _position(self, key: str) -> int:
        place = LAYOUT.place(key)
        if place is None:
            raise ValueError(key)
        return (place.job_id - _FIRST) * len(STATUSES) + STATUSES.index(str(place.status))


class Forgetful:
    """Accepts every write and keeps none, except for the position. As much of a store as a backfill uses."""

    def __init__(self) -> None:
        self._state = memory_store(SystemClock())

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        return self._state.get(table, key, consistent=consistent) if table is STATE else None

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        if table is STATE:
            self._state.put(table, item, condition)

    def update(self, table: Table, key: Key, update: Update, condition: Condition | None = None) -> Written:
        if table is STATE:
            return self._state.update(table, key, update, condition)
        return Written(None, update.applied({"PK": key.partition, "SK": key.sort}))

    def close(self) -> None:
        """Nothing to give back."""


def backfill(store: Store, bucket: MadeUpBucket) -> None:
    done = Backfill(store, Bucket(bucket, LAYOUT), SystemClock(), BackfillOptions(workers=WORKERS)).run()
    if done.unusable or done.written + done.there != done.objects:
        raise RuntimeError(f"not everything was filled in: {done}")


def compare(store: Store, bucket: MadeUpBucket) -> None:
    found = S3Comparison(store, Bucket(bucket, LAYOUT), SystemClock(), lambda _: None, workers=WORKERS).run()
    if found.differences:
        raise RuntimeError(f"the two sides differ: {found}")


def live(store: Store, bucket: MadeUpBucket) -> None:
    """The cost of the webhooks if received live."""
    tracker = Tracker(store, SystemClock(), "bench")

    def take(job: int) -> None:
        for delivery in bucket.deliveries(job):
            tracker.receive(delivery)

    with ThreadPoolExecutor(WORKERS) as threads:
        for _ in threads.map(take, range(bucket.jobs)):
            pass


FORGETFUL: Final = "backfill, nothing kept"
SIDES: Final[dict[str, Sequence[Callable[[Store, MadeUpBucket], None]]]] = {
    "backfill": (backfill,),
    FORGETFUL: (backfill,),
    "backfill again": (backfill, backfill),
    "compare": (backfill, compare),
    "live": (live,),
}


def _store(side: str, directory: Path) -> Store:
    if side == FORGETFUL:
        return cast(Store, Forgetful())
    return sqlite_store(directory / "holdfast.db", SystemClock(), tables=TABLES)


def main(side: str, jobs: int, directory: Path) -> None:
    """Only the last step is measured; the others prepare it."""
    bucket = MadeUpBucket(jobs, SystemClock().now())
    *before, step = SIDES[side]
    with closing(_store(side, directory)) as store:
        for prepare in before:
            prepare(store, bucket)
        started, cpu_started = time.perf_counter(), time.process_time()
        step(store, bucket)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mb": peak_mb}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
