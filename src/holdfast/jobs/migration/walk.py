"""A walk over the bucket: whole jobs, some hundred objects at a time, and patience with what may pass."""

import random
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from holdfast.jobs.migration.dual import Bucket
from holdfast.kernel.backoff import Backoff
from holdfast.kernel.errors import Retryable
from holdfast.ports.clock import Clock
from holdfast.ports.objects import ObjectEntry

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
    for job in bucket.layout.jobs(_entries(bucket, again, after)):
        batch.append(job)
        objects += len(job)
        if objects >= BATCH:
            yield batch
            batch, objects = [], 0
    if batch:
        yield batch


def _entries(bucket: Bucket, again: Again, after: str) -> Iterator[ObjectEntry]:
    while True:
        start = after
        page = again(lambda: bucket.objects.page(bucket.layout.prefix, start))  # noqa: B023 -- called at once
        yield from page.entries
        if page.is_last or not page.entries:
            return
        after = page.entries[-1].key
