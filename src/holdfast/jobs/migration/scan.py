"""Scans the bucket in batches of whole jobs, with retries and an optional rate limit."""

import random
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Final, TypeVar

from holdfast.jobs.migration.dual import Bucket
from holdfast.kernel.backoff import Backoff
from holdfast.kernel.errors import Retryable
from holdfast.ports.clock import Clock
from holdfast.ports.objects import ObjectEntry, ObjectPage, Objects, every_entry

BATCH: Final = 500  # objects; after a crash, about as many are read again
TRIES_MOST: Final = 6
_BACKOFF: Final = Backoff(first_seconds=0.2, most_seconds=5)

T = TypeVar("T")


class RetryCalls:
    """Retries calls: a scan takes hours and must survive throttling. The last error is raised."""

    def __init__(self, clock: Clock, chance: random.Random) -> None:
        self._clock = clock
        self._chance = chance

    def __call__(self, work: Callable[[], T]) -> T:
        waits = _BACKOFF.waits(self._chance)
        for _ in range(TRIES_MOST - 1):
            try:
                return work()
            except Retryable:
                self._clock.sleep(next(waits))
        return work()


def batches(bucket: Bucket, retry: RetryCalls, after: str = "") -> Iterator[list[list[ObjectEntry]]]:
    """The jobs after a key, in batches. No job is split, even if its objects are on two pages."""
    batch: list[list[ObjectEntry]] = []
    objects = 0
    for job in bucket.layout.jobs(entries(bucket.objects, retry, bucket.layout.prefix, after)):
        batch.append(job)
        objects += len(job)
        if objects >= BATCH:
            yield batch
            batch, objects = [], 0
    if batch:
        yield batch


def entries(objects: Objects, retry: RetryCalls, prefix: str, after: str = "") -> Iterator[ObjectEntry]:
    """The objects after a key, without folders. Each page is retried by itself: of thousands of pages some fail."""

    def page(start: str) -> ObjectPage:
        return retry(lambda: objects.page(prefix, start))

    return (entry for entry in every_entry(page, after) if not _is_folder(entry))


def _is_folder(entry: ObjectEntry) -> bool:
    """An empty object that S3's console creates to show a folder."""
    return entry.key.endswith("/") and entry.size_bytes == 0


class RateLimit:
    """At most `per_second` over all threads; None: no limit."""

    def __init__(self, clock: Clock, per_second: float | None) -> None:
        self._clock = clock
        self._seconds_each = 1 / per_second if per_second else 0.0
        self._next = clock.monotonic_seconds()
        self._lock = Lock()

    def wait(self, number: int = 1) -> None:
        """Wait until `number` more may proceed."""
        if not self._seconds_each:
            return
        with self._lock:
            now = self._clock.monotonic_seconds()
            turn = max(self._next, now)
            self._next = turn + number * self._seconds_each
        if turn > now:
            self._clock.sleep(turn - now)
