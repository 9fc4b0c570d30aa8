"""A walk over the bucket: whole jobs, some hundred objects at a time, and patience with what may pass."""

import random
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from holdfast.jobs.migration.dual import Bucket
from holdfast.kernel.backoff import Backoff
from holdfast.kernel.errors import Retryable
from holdfast.ports.clock import Clock
from holdfast.ports.objects import ObjectEntry, ObjectPage, Objects, every_entry

BATCH: Final = 500  # objects; after a kill, as many are looked at again
TRIES_MOST: Final = 6
_BACKOFF: Final = Backoff(first_seconds=0.2, most_seconds=5)

T = TypeVar("T")


class Again:
    """A walk takes hours, and must not end at the first throttle. The last error goes through."""

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


def batches(bucket: Bucket, again: Again, after: str = "") -> Iterator[list[list[ObjectEntry]]]:
    """The jobs after a key. None is split: the last one of a page may go on in the next."""
    batch: list[list[ObjectEntry]] = []
    objects = 0
    for job in bucket.layout.jobs(entries(bucket.objects, again, bucket.layout.prefix, after)):
        batch.append(job)
        objects += len(job)
        if objects >= BATCH:
            yield batch
            batch, objects = [], 0
    if batch:
        yield batch


def entries(objects: Objects, again: Again, prefix: str, after: str = "") -> Iterator[ObjectEntry]:
    """Page by page, each with as much patience: of ten thousand pages some fail. Folders are no objects."""

    def page(start: str) -> ObjectPage:
        return again(lambda: objects.page(prefix, start))

    return (entry for entry in every_entry(page, after) if not _is_folder(entry))


def _is_folder(entry: ObjectEntry) -> bool:
    """What S3's console makes so that an empty folder is shown."""
    return entry.key.endswith("/") and entry.size_bytes == 0
