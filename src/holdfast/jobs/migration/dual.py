"""Writing to both sides, and reading from both: what each phase means for a webhook and for a question.

The older system's objects are webhooks about jobs. Other events have no object: they are the tables' in every phase.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from holdfast.jobs.facts import JobEvent, job_event
from holdfast.jobs.ingest import Tracker
from holdfast.jobs.keys import job_key_of
from holdfast.jobs.migration.bounded import Bounded
from holdfast.jobs.migration.counts import Call, Outcome, Side, Tell, Told
from holdfast.jobs.migration.layout import Layout
from holdfast.jobs.migration.phases import Phase, PhaseWatch
from holdfast.jobs.migration.stored import EVENT, StoredWebhook, item_of, mark_unstored, put_webhook, webhooks_by_key
from holdfast.jobs.payloads import JobPayload, Unusable, decoded
from holdfast.jobs.receipts import Receipt, Result
from holdfast.jobs.webhook import Delivery
from holdfast.kernel.errors import HoldfastError, Retryable
from holdfast.ports.clock import Clock
from holdfast.ports.objects import Objects
from holdfast.ports.store import Condition, Item, Key, Meter, Page, Query, Store, Table, Update, Write, Written
from holdfast.ports.store.tables import JOBS

T = TypeVar("T")
_TRIES: Final = 2  # of a call to S3, within GitHub's ten seconds
STORE_SECONDS: Final = 4.0  # of these ten, while S3 is the source of truth
_THREADS: Final = 64
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The older system's objects, and how their keys are made."""

    objects: Objects
    layout: Layout


class _Counting:
    """Each call to a side is timed and told."""

    def __init__(self, clock: Clock, tell: Tell) -> None:
        self._clock = clock
        self._tell = tell

    def told(self, stay: int, call: Call, side: Side, ask: Callable[[], T], outcome: Callable[[T], Outcome]) -> T:
        started = self._clock.monotonic_seconds()
        how: Outcome = "failed"
        try:
            found = ask()
            how = outcome(found)
        finally:
            self._tell(Told(stay, call, side, how, self._clock.monotonic_seconds() - started))
        return found


class DualTracker:
    """Takes in deliveries as `Tracker` does, and keeps S3 as the phase asks."""

    def __init__(
        self,
        tracker: Tracker,
        bucket: Bucket,
        watch: PhaseWatch,
        clock: Clock,
        tell: Tell,
        store_seconds: float = STORE_SECONDS,
    ) -> None:
        self._tracker = tracker
        self._bounded = Bounded(store_seconds, _THREADS, "dual-write")
        self._bucket = bucket
        self._watch = watch
        self._clock = clock
        self._counting = _Counting(clock, tell)

    def receive(self, delivery: Delivery) -> Receipt:
        stored = self._watch.now()
        if not stored.phase.writes_objects or delivery.event != EVENT:
            return self._tracker.receive(delivery)
        now = self._clock.now()
        try:
            self._tracker.check_age(delivery, now)
            event = job_event(delivery, decoded(delivery.body, JobPayload), now)
        except Unusable:
            return self._tracker.receive(delivery)  # which knows what to do with it
        # S3 first: while it is the source of truth, what it does not hold is not acknowledged.
        told = self._counting.told
        key = told(stored.seq, "write", "s3", lambda: self._put(delivery, event), lambda _: "ok")

        def take() -> Receipt:
            return self._tracker.receive(delivery)

        if stored.phase is Phase.DUAL_READ:  # the tables are read first: they must not fall behind
            return told(stored.seq, "write", "store", take, lambda _: "ok")
        try:
            return told(stored.seq, "write", "store", lambda: self._bounded(take), lambda _: "ok")
        except Exception as error:
            self._note(key, event, error)
            return Receipt(Result.STORED, delivery.id, EVENT, installation=event.key.installation_id, job=event.key)

    def _put(self, delivery: Delivery, event: JobEvent) -> str:
        return _twice(lambda: put_webhook(self._bucket.objects, self._bucket.layout, delivery, event))

    def _note(self, key: str, event: JobEvent, error: Exception) -> None:
        _log.error(
            "a webhook is in S3 and not in the tables, until 'holdfast migrate backfill' has run: %s: %s",
            key,
            error,
            exc_info=None if isinstance(error, HoldfastError) else error,
        )
        # Where S3 does not take the note either, its failure is the webhook's: otherwise nobody would know.
        _twice(lambda: mark_unstored(self._bucket.objects, key, event.mark))


class DualReads:
    """The store for whoever asks about jobs: a job by its key is looked for where the phase says.

    Implements `holdfast.ports.store.Store`. S3 has no indexes: lists come from the tables in every phase.
    """

    def __init__(self, store: Store, bucket: Bucket, watch: PhaseWatch, clock: Clock, tell: Tell) -> None:
        self._store = store
        self._bucket = bucket
        self._watch = watch
        self._clock = clock
        self._tell = tell
        self._counting = _Counting(clock, tell)

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        stored = self._watch.now()

        def ask() -> Item | None:
            return self._store.get(table, key, consistent=consistent)

        if table.name != JOBS.name or not stored.phase.writes_objects:
            return ask()
        asked = partial(self._counting.told, stored.seq, "read", "store", ask, _hit_or_miss)
        if stored.phase is Phase.DUAL_READ:
            return self._from_store_first(asked, stored.seq, key)
        return self._from_both(asked, stored.seq, key)

    def _from_store_first(self, ask_store: Callable[[], Item | None], stay: int, key: Key) -> Item | None:
        try:
            found = ask_store()
        except Retryable as error:
            _log.warning("the store does not answer, and S3 is asked: %s", error)
            from_s3 = self._asked_s3(stay, key, None, "stood_in")
            if from_s3 is None:
                raise  # whether there is such a job is not known
            return from_s3
        return found if found is not None else self._asked_s3(stay, key, None, "fallback")

    def _from_both(self, ask_store: Callable[[], Item | None], stay: int, key: Key) -> Item | None:
        """What S3 knows counts; the tables add what no webhook tells, and what came while S3 was not written."""
        try:
            known = ask_store()
        except HoldfastError as error:
            _log.warning("the store does not answer; the job is shown as S3 knows it: %s", error)
            return self._asked_s3(stay, key, None, "stood_in")
        return self._asked_s3(stay, key, known, "fallback" if known is None else "hit")

    def _asked_s3(self, stay: int, key: Key, known: Item | None, there: Outcome) -> Item | None:
        def ask() -> list[StoredWebhook]:
            job = job_key_of(key.partition)
            return _twice(lambda: webhooks_by_key(self._bucket.objects, self._bucket.layout, job))

        found = self._counting.told(stay, "read", "s3", ask, lambda webhooks: there if webhooks else "miss")
        if known is None or not found:
            return item_of(found, known)
        # Without the marks, S3's facts are weighed once more: where the tables say less, S3 is believed.
        unmarked = {name: value for name, value in known.items() if name != "dl"}
        merged = item_of(found, unmarked) or {}
        return merged | {"dl": known.get("dl", frozenset()) | merged["dl"]}

    # As they are

    def batch_get(self, table: Table, keys: Sequence[Key], *, consistent: bool = False) -> list[Item | None]:
        return self._store.batch_get(table, keys, consistent=consistent)

    def query(self, query: Query) -> Page:
        return self._store.query(query)

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        self._store.put(table, item, condition)

    def update(self, table: Table, key: Key, update: Update, condition: Condition | None = None) -> Written:
        return self._store.update(table, key, update, condition)

    def delete(self, table: Table, key: Key, condition: Condition | None = None) -> None:
        self._store.delete(table, key, condition)

    def transact(self, writes: Sequence[Write]) -> None:
        self._store.transact(writes)

    def remove_expired(self, table: Table, *, most: int = 1000) -> int:
        return self._store.remove_expired(table, most=most)

    def metered(self, meter: Meter) -> Store:
        return DualReads(self._store.metered(meter), self._bucket, self._watch, self._clock, self._tell)

    def close(self) -> None:
        self._store.close()


def _hit_or_miss(found: Item | None) -> Outcome:
    return "miss" if found is None else "hit"


def _twice(ask: Callable[[], T]) -> T:
    """A call to S3, and once more if that may help."""
    for _ in range(_TRIES - 1):
        try:
            return ask()
        except Retryable:
            continue
    return ask()
