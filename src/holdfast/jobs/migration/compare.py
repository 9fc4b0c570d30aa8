"""S3 held against the tables, job by job: all of them, or a share that is chosen by the job's key.

Live webhooks go on. One that comes between two looks makes a difference that is gone a moment later, so whatever
differs is looked at again before it is told.
"""

import hashlib
import random
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.jobs.facts import Status
from holdfast.jobs.ingest import installations
from holdfast.jobs.keys import JobKey, job_key_of
from holdfast.jobs.migration import walk
from holdfast.jobs.migration.differences import Difference, Kind, differences_of_job, unusable
from holdfast.jobs.migration.dual import Bucket
from holdfast.jobs.migration.pace import Pace
from holdfast.jobs.migration.stored import is_expired, webhooks_by_key, webhooks_of_job
from holdfast.jobs.migration.walk import Again
from holdfast.jobs.queries import LIMIT_MOST, Paging, jobs_by_status
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.objects import ObjectEntry
from holdfast.ports.store import Item, Key, Store
from holdfast.ports.store.tables import JOBS, STATE

KEY: Final = Key("migration#compare")
LOOKS: Final = 3
LOOK_AGAIN_SECONDS: Final = 2.0
_SPARE_SECONDS: Final = 3600  # a job so near its end may be gone from the tables already
_HASH: Final = 2**64


@dataclass(frozen=True, slots=True)
class Compared:
    """`share` of the jobs were compared; `kinds` counts the differences."""

    started: Instant
    finished: Instant | None = None
    share: float = 1.0
    jobs: int = 0
    objects: int = 0
    expired: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def differences(self) -> int:
        return self.kinds.total()

    @property
    def lacking(self) -> int:
        """Differences that stand in the way of reading the tables: what only they have does not."""
        return self.differences - self.kinds[Kind.ONLY_IN_TABLE]

    def shown(self) -> dict[str, Any]:
        return {
            "started": self.started.iso(),
            "finished": self.finished.iso() if self.finished else None,
            "share": self.share,
            "jobs": self.jobs,
            "objects": self.objects,
            "expired": self.expired,
            "differences": self.differences,
            "kinds": dict(sorted(self.kinds.items())),
        }


@dataclass(frozen=True, slots=True)
class _Look:
    """What was found at one job's objects. `is_over`: the tables need not have it any more."""

    entries: Sequence[ObjectEntry] = ()
    found: Sequence[Difference] = ()
    is_over: bool = False

    @property
    def may_pass(self) -> bool:
        return any(difference.kind is not Kind.UNUSABLE for difference in self.found)


@dataclass
class Compare:
    """`tell` gets each difference as it is found, `watch` the sums after each batch."""

    store: Store
    bucket: Bucket
    clock: Clock
    tell: Callable[[Difference], None]
    watch: Callable[[Compared], None] = lambda _: None
    share: float = 1.0
    sample_seed: int = 0
    workers: int = 8
    objects_per_second: float | None = None
    chance: random.Random = field(default_factory=random.Random)

    def run(self) -> Compared:
        self._again = Again(self.clock, self.chance)
        self._pace = Pace(self.clock, self.objects_per_second)
        self._seen = array("Q")  # eight bytes a job: what stays of each, to find what only the tables have
        done = Compared(self.clock.now(), share=self.share)
        with ThreadPoolExecutor(self.workers, thread_name_prefix="compare") as threads:
            for batch in walk.batches(self.bucket, self._again):
                chosen = [job for job in batch if self._is_chosen(job)]
                for look in self._looks(threads, chosen):
                    done = self._added(done, look)
                self.watch(done)
        if self.share >= 1:
            for difference in self._only_in_table(done.started):
                done = self._added(done, _Look(found=[difference]))
        done = replace(done, finished=self.clock.now())
        self._again(lambda: self.store.put(STATE, _written(done)))
        return done

    def _added(self, done: Compared, look: "_Look") -> Compared:
        for difference in look.found:
            self.tell(difference)
        return replace(
            done,
            jobs=done.jobs + bool(look.entries),
            objects=done.objects + len(look.entries),
            expired=done.expired + look.is_over,
            kinds=done.kinds + Counter(str(difference.kind) for difference in look.found),
        )

    def _is_chosen(self, entries: Sequence[ObjectEntry]) -> bool:
        place = self.bucket.layout.place(entries[0].key)
        if place is None:
            return True
        name = f"{place.installation_id}#{place.job_id}"
        if self.share >= 1:
            self._seen.append(_hash(name))
            return True
        return _hash(f"{self.sample_seed}#{name}") < self.share * _HASH

    def _looks(self, threads: ThreadPoolExecutor, jobs: Sequence[Sequence[ObjectEntry]]) -> Iterator["_Look"]:
        """The last look at each job. Those that differ are waited for together: before a backfill, all do."""
        looks = list(threads.map(self._paced, jobs))
        for _ in range(LOOKS - 1):
            again = [number for number, look in enumerate(looks) if look.may_pass]
            if not again:
                break
            self.clock.sleep(LOOK_AGAIN_SECONDS)
            for number, look in zip(again, threads.map(self._look, [jobs[n] for n in again]), strict=True):
                looks[number] = look
        yield from looks

    def _paced(self, entries: Sequence[ObjectEntry]) -> "_Look":
        self._pace.wait(len(entries))
        return self._look(entries)

    def _look(self, entries: Sequence[ObjectEntry]) -> "_Look":
        """What differs now, or that the job is over its time."""
        if self._is_over(min(entry.modified for entry in entries)):
            return _Look(entries, is_over=True)
        return self._again(lambda: self._read(entries))

    def _read(self, entries: Sequence[ObjectEntry]) -> "_Look":
        webhooks, bad = webhooks_of_job(self.bucket.objects, self.bucket.layout, entries)
        if not webhooks:
            return _Look(entries, unusable(bad))
        if self._is_over(min(webhook.received_at for webhook in webhooks)):
            return _Look(entries, is_over=True)
        return _Look(entries, [*unusable(bad), *differences_of_job(self.store, webhooks, self.clock.now())])

    def _is_over(self, received: Instant) -> bool:
        return is_expired(received, self.clock.now().plus(_SPARE_SECONDS))

    # The other direction

    def _only_in_table(self, started: Instant) -> Iterator[Difference]:
        seen = array("Q", sorted(self._seen))
        for job in self._jobs_of_tables():
            name = f"{job.installation_id if self.bucket.layout.names_installation else None}#{job.job_id}"
            place = bisect_left(seen, _hash(name))
            if place < len(seen) and seen[place] == _hash(name):
                continue
            webhooks = self._again(lambda: webhooks_by_key(self.bucket.objects, self.bucket.layout, job))  # noqa: B023
            item = None if webhooks else self.store.get(JOBS, job.item)
            if item is not None and not _is_new(item, started):
                yield Difference(Kind.ONLY_IN_TABLE, job, f"job {job}", None, item.get("status"))

    def _jobs_of_tables(self) -> Iterator[JobKey]:
        for installation in installations(self.store):
            for status in Status:
                cursor = None
                while True:
                    paging = Paging(LIMIT_MOST, cursor)
                    found = self._again(lambda: jobs_by_status(self.store, installation, status, paging=paging))  # noqa: B023
                    yield from (job_key_of(item["PK"]) for item in found.items)
                    cursor = found.cursor
                    if cursor is None:
                        break


def last_compare(store: Store) -> Compared | None:
    item = store.get(STATE, KEY)
    if item is None:
        return None
    kinds = Counter({name: int(number) for name, number in item["kinds"].items()})
    sums = {name: int(item[name]) for name in ("jobs", "objects", "expired")}
    started, finished = Instant(int(item["startedMs"])), Instant(int(item["finishedMs"]))
    return Compared(started, finished, float(item["shareMillionths"]) / 1e6, kinds=kinds, **sums)


def _written(done: Compared) -> Item:
    assert done.finished is not None  # noqa: S101 -- written at the end; narrows the type
    return {
        "pk": KEY.partition,
        "startedMs": done.started.epoch_ms,
        "finishedMs": done.finished.epoch_ms,
        "shareMillionths": round(done.share * 1_000_000),
        "jobs": done.jobs,
        "objects": done.objects,
        "expired": done.expired,
        "kinds": dict(done.kinds),
    }


def _is_new(item: Item, started: Instant) -> bool:
    """Whether it came while we were looking: its object may come a moment later than we looked for it."""
    return str(item.get("received_at", "")) >= started.iso()


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())
