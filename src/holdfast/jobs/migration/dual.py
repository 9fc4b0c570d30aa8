"""Dual writes and reads: how webhooks are stored and jobs are read in each phase.

The older system's objects are webhooks about jobs. Other events have no object, and are only in the tables.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from holdfast.jobs.intake.payloads import UnusablePayload
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import Delivery, Receipt, ReceiptResult
from holdfast.jobs.migration.counts import Call, Outcome, ReportCall, Side, StorageCall
from holdfast.jobs.migration.layout import ObjectLayout
from holdfast.jobs.migration.phases import Phase, PhaseWatch
from holdfast.jobs.migration.store_timeout import StoreTimeout
from holdfast.jobs.migration.stored import EVENT, StoredWebhook, item_of, mark_unstored, put_webhook, webhooks_by_key
from holdfast.jobs.model.facts import JobEvent, job_event
from holdfast.jobs.model.keys import job_key_of
from holdfast.kernel.errors import HoldfastError, Retryable
from holdfast.ports.clock import Clock
from holdfast.ports.objects import Objects
from holdfast.ports.store import Item, Key, Meter, Store, Table
from holdfast.ports.store.forwarding import ForwardingStore
from holdfast.ports.store.tables import JOBS, RUNS

T = TypeVar("T")
_TRIES: Final = 2  # of a call to S3, within GitHub's ten seconds
STORE_SECONDS: Final = 4.0  # of these ten, while S3 is the source of truth
READ_SECONDS: Final = 3.0  # after which S3 stands in for the tables
_THREADS: Final = 64
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The older system's objects, and the layout of their keys."""

    objects: Objects
    layout: ObjectLayout


class _CallTimer:
    """Times and reports each call to S3 or the tables."""

    def __init__(self, clock: Clock, report: ReportCall) -> None:
        self._clock = clock
        self._report = report

    def timed(self, stay: int, call: Call, side: Side, run: Callable[[], T], outcome: Callable[[T], Outcome]) -> T:
        started = self._clock.monotonic_seconds()
        how: Outcome = "failed"
        try:
            found = run()
            how = outcome(found)
        finally:
            self._report(StorageCall(stay, call, side, how, self._clock.monotonic_seconds() - started))
        return found


class DualTracker:
    """Receives deliveries like `Tracker`, and writes objects to S3 if the phase requires it."""

    def __init__(
        self,
        tracker: Tracker,
        bucket: Bucket,
        watch: PhaseWatch,
        clock: Clock,
        report: ReportCall,
        store_seconds: float = STORE_SECONDS,
    ) -> None:
        self._tracker = tracker
        self._with_timeout = StoreTimeout(store_seconds, _THREADS, "dual-write")
        self._bucket = bucket
        self._watch = watch
        self._clock = clock
        self._timer = _CallTimer(clock, report)

    def receive(self, delivery: Delivery) -> Receipt:
        stored = self._watch.now()
        if not stored.phase.writes_objects or delivery.event != EVENT:
            return self._tracker.receive(delivery)
        now = self._clock.now()
        try:
            event = job_event(delivery, self._tracker.recognized_job(delivery, now), now)
        except UnusablePayload:
            return self._tracker.receive(delivery)  # which records it as unusable
        # S3 first: while it is the source of truth, a webhook that is not in S3 is not acknowledged.
        timed = self._timer.timed
        key = timed(stored.seq, "write", "s3", lambda: self._put(delivery, event), lambda _: "ok")

        def take() -> Receipt:
            return self._tracker.receive(delivery)

        if stored.phase is Phase.DUAL_READ:  # the tables are read first, so they must be complete
            return timed(stored.seq, "write", "store", take, lambda _: "ok")
        try:
            return timed(stored.seq, "write", "store", lambda: self._with_timeout(take), lambda _: "ok")
        except Exception as error:
            self._note(key, event, error)
            return Receipt(
                ReceiptResult.STORED, delivery.id, EVENT, installation=event.key.installation_id, job=event.key
            )

    def _put(self, delivery: Delivery, event: JobEvent) -> str:
        return _twice(lambda: put_webhook(self._bucket.objects, self._bucket.layout, delivery, event))

    def _note(self, key: str, event: JobEvent, error: Exception) -> None:
        _log.error(
            "a webhook is in S3 but not in the tables; run: holdfast migrate backfill: %s: %s",
            key,
            error,
            exc_info=None if isinstance(error, HoldfastError) else error,
        )
        # If the note fails as well, the webhook fails: otherwise the gap would go unnoticed.
        _twice(lambda: mark_unstored(self._bucket.objects, key, event.mark))


class DualReads(ForwardingStore):
    """A store for queries: reads a single job from S3, the tables or both, by the phase.

    Implements `holdfast.ports.store.Store`. S3 has no indexes: lists come from the tables in every phase.
    """

    def __init__(
        self,
        store: Store,
        bucket: Bucket,
        watch: PhaseWatch,
        clock: Clock,
        report: ReportCall,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        super().__init__(store)
        self._read_seconds = read_seconds
        self._with_timeout = StoreTimeout(read_seconds, _THREADS, "dual-read")
        self._bucket = bucket
        self._watch = watch
        self._clock = clock
        self._report = report
        self._timer = _CallTimer(clock, report)

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        stored = self._watch.now()

        def call() -> Item | None:
            return self._store.get(table, key, consistent=consistent)

        if table.name != JOBS.name or not stored.phase.writes_objects:
            return call()

        def timed_out() -> Item | None:
            return self._with_timeout(call)

        from_store = partial(self._timer.timed, stored.seq, "read", "store", timed_out, _hit_or_miss)
        if stored.phase is Phase.DUAL_READ:
            return self._from_store_first(from_store, stored.seq, key)
        return self._from_both(from_store, stored.seq, key)

    def batch_get(self, table: Table, keys: Sequence[Key], *, consistent: bool = False) -> list[Item | None]:
        """While S3 may stand in, a job's run does not make its view wait for as long as the store retries."""

        def call() -> list[Item | None]:
            return self._store.batch_get(table, keys, consistent=consistent)

        is_run = table.name == RUNS.name and self._watch.now().phase.writes_objects
        return self._with_timeout(call) if is_run else call()

    def _from_store_first(self, from_store: Callable[[], Item | None], stay: int, key: Key) -> Item | None:
        try:
            found = from_store()
        except Retryable as error:
            _log.warning("the store does not respond; reading from S3: %s", error)
            from_s3 = self._from_s3(stay, key, None, "stood_in")
            if from_s3 is None:
                raise  # whether the job exists is unknown
            return from_s3
        return found if found is not None else self._from_s3(stay, key, None, "fallback")

    def _from_both(self, from_store: Callable[[], Item | None], stay: int, key: Key) -> Item | None:
        """S3 takes precedence; the tables add facts without an object, such as webhooks from before dual_write."""
        try:
            known = from_store()
        except HoldfastError as error:
            _log.warning("the store does not respond; showing the job as stored in S3: %s", error)
            return self._from_s3(stay, key, None, "stood_in")
        return self._from_s3(stay, key, known, "fallback" if known is None else "hit")

    def _from_s3(self, stay: int, key: Key, known: Item | None, there: Outcome) -> Item | None:
        def call() -> list[StoredWebhook]:
            job = job_key_of(key.partition)
            return _twice(lambda: webhooks_by_key(self._bucket.objects, self._bucket.layout, job))

        found = self._timer.timed(stay, "read", "s3", call, lambda webhooks: there if webhooks else "miss")
        if known is None or not found:
            return item_of(found, known)
        # Without the marks, S3's webhooks are folded in again, so that S3 completes what the tables lack.
        unmarked = {name: value for name, value in known.items() if name != "dl"}
        merged = item_of(found, unmarked) or {}
        return merged | {"dl": known.get("dl", frozenset()) | merged["dl"]}

    def metered(self, meter: Meter) -> Store:
        store = self._store.metered(meter)
        return DualReads(store, self._bucket, self._watch, self._clock, self._report, self._read_seconds)


def _hit_or_miss(found: Item | None) -> Outcome:
    return "miss" if found is None else "hit"


def _twice(call: Callable[[], T]) -> T:
    """Call S3, with one retry."""
    for _ in range(_TRIES - 1):
        try:
            return call()
        except Retryable:
            continue
    return call()
