"""Compares S3 with the tables, job by job: all jobs, or a sample chosen by the job's key.

Webhooks continue to arrive. One that arrives between the two reads causes a transient difference, so a job that differs
is checked again before the difference is reported.
"""

import hashlib
import random
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.jobs.intake.tracker import installations
from holdfast.jobs.migration import scan
from holdfast.jobs.migration.differences import DifferenceKind, JobDifference, differences_of_job, unusable_objects
from holdfast.jobs.migration.dual import Bucket
from holdfast.jobs.migration.scan import RateLimit, RetryCalls
from holdfast.jobs.migration.stored import is_expired, webhooks_by_key, webhooks_of_job
from holdfast.jobs.model.facts import Status
from holdfast.jobs.model.keys import JobKey, job_key_of
from holdfast.jobs.read.queries import LIMIT_MOST, Paging, jobs_by_status
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.objects import ObjectEntry
from holdfast.ports.store import Item, Key, Store
from holdfast.ports.store.tables import JOBS, STATE

KEY: Final = Key("migration#compare")
CHECKS: Final = 3
RECHECK_SECONDS: Final = 2.0
_SPARE_SECONDS: Final = 3600  # a job about to expire may already be gone from the tables
_HASH: Final = 2**64


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """`share` is the share of jobs that were compared; `kinds` counts the differences."""

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
        """The differences that forbid reading from the tables: all but jobs that only the tables have."""
        return self.differences - self.kinds[DifferenceKind.ONLY_IN_TABLE]


@dataclass(frozen=True, slots=True)
class _JobCheck:
    """The result for one job's objects. `is_over`: the job has expired, so the tables need not have it."""

    entries: Sequence[ObjectEntry] = ()
    found: Sequence[JobDifference] = ()
    is_over: bool = False

    @property
    def may_be_transient(self) -> bool:
        return any(difference.kind is not DifferenceKind.UNUSABLE for difference in self.found)


@dataclass
class S3Comparison:
    """Calls `report` with each difference, and `on_progress` with the sums after each batch."""

    store: Store
    bucket: Bucket
    clock: Clock
    report: Callable[[JobDifference], None]
    on_progress: Callable[[ComparisonResult], None] = lambda _: None
    share: float = 1.0
    sample_seed: int = 0
    workers: int = 8
    objects_per_second: float | None = None
    chance: random.Random = field(default_factory=random.Random)

    def run(self) -> ComparisonResult:
        self._retry = RetryCalls(self.clock, self.chance)
        self._pace = RateLimit(self.clock, self.objects_per_second)
        self._seen = array("Q")  # a hash of each job in S3, to find jobs that only the tables have
        done = ComparisonResult(self.clock.now(), share=self.share)
        with ThreadPoolExecutor(self.workers, thread_name_prefix="compare") as threads:
            for batch in scan.batches(self.bucket, self._retry):
                chosen = [job for job in batch if self._is_chosen(job)]
                for check in self._checks(threads, chosen):
                    done = self._added(done, check)
                self.on_progress(done)
        if self.share >= 1:
            for difference in self._only_in_table(done.started):
                done = self._added(done, _JobCheck(found=[difference]))
        done = replace(done, finished=self.clock.now())
        self._retry(lambda: self.store.put(STATE, _written(done)))
        return done

    def _added(self, done: ComparisonResult, check: "_JobCheck") -> ComparisonResult:
        for difference in check.found:
            self.report(difference)
        return replace(
            done,
            jobs=done.jobs + bool(check.entries),
            objects=done.objects + len(check.entries),
            expired=done.expired + check.is_over,
            kinds=done.kinds + Counter(str(difference.kind) for difference in check.found),
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

    def _checks(self, threads: ThreadPoolExecutor, jobs: Sequence[Sequence[ObjectEntry]]) -> Iterator["_JobCheck"]:
        """The last check of each job. Jobs that differ share one wait: before a backfill, all differ."""
        checks = list(threads.map(self._paced, jobs))
        for _ in range(CHECKS - 1):
            again = [number for number, check in enumerate(checks) if check.may_be_transient]
            if not again:
                break
            self.clock.sleep(RECHECK_SECONDS)
            for number, check in zip(again, threads.map(self._check, [jobs[n] for n in again]), strict=True):
                checks[number] = check
        yield from checks

    def _paced(self, entries: Sequence[ObjectEntry]) -> "_JobCheck":
        self._pace.wait(len(entries))
        return self._check(entries)

    def _check(self, entries: Sequence[ObjectEntry]) -> "_JobCheck":
        """The current differences, or that the job has expired."""
        if self._is_over(min(entry.modified for entry in entries)):
            return _JobCheck(entries, is_over=True)
        return self._retry(lambda: self._read(entries))

    def _read(self, entries: Sequence[ObjectEntry]) -> "_JobCheck":
        webhooks, bad = webhooks_of_job(self.bucket.objects, self.bucket.layout, entries)
        if not webhooks:
            return _JobCheck(entries, unusable_objects(bad))
        if self._is_over(min(webhook.received_at for webhook in webhooks)):
            return _JobCheck(entries, is_over=True)
        return _JobCheck(entries, [*unusable_objects(bad), *differences_of_job(self.store, webhooks, self.clock.now())])

    def _is_over(self, received: Instant) -> bool:
        return is_expired(received, self.clock.now().plus(_SPARE_SECONDS))

    # The other direction

    def _only_in_table(self, started: Instant) -> Iterator[JobDifference]:
        seen = array("Q", sorted(self._seen))
        for job in self._jobs_of_tables():
            name = f"{job.installation_id if self.bucket.layout.names_installation else None}#{job.job_id}"
            place = bisect_left(seen, _hash(name))
            if place < len(seen) and seen[place] == _hash(name):
                continue
            webhooks = self._retry(lambda: webhooks_by_key(self.bucket.objects, self.bucket.layout, job))  # noqa: B023
            item = None if webhooks else self.store.get(JOBS, job.item)
            if item is not None and not _is_new(item, started):
                yield JobDifference(DifferenceKind.ONLY_IN_TABLE, job, f"job {job}", None, item.get("status"))

    def _jobs_of_tables(self) -> Iterator[JobKey]:
        for installation in installations(self.store):
            for status in Status:
                cursor = None
                while True:
                    paging = Paging(LIMIT_MOST, cursor)
                    found = self._retry(lambda: jobs_by_status(self.store, installation, status, paging=paging))  # noqa: B023
                    yield from (job_key_of(item["PK"]) for item in found.items)
                    cursor = found.cursor
                    if cursor is None:
                        break


def last_compare(store: Store) -> ComparisonResult | None:
    item = store.get(STATE, KEY)
    if item is None:
        return None
    kinds = Counter({name: int(number) for name, number in item["kinds"].items()})
    sums = {name: int(item[name]) for name in ("jobs", "objects", "expired")}
    started, finished = Instant(int(item["startedMs"])), Instant(int(item["finishedMs"]))
    return ComparisonResult(started, finished, float(item["shareMillionths"]) / 1e6, kinds=kinds, **sums)


def _written(done: ComparisonResult) -> Item:
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
    """Whether the job arrived during the comparison: its object may have been written after our read."""
    return str(item.get("received_at", "")) >= started.iso()


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())
