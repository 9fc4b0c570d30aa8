"""The way over from S3, put together: what stands around the tracker and its questions while a bucket is named."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from holdfast.entrypoints.wiring import open_store
from holdfast.entrypoints.world import world_clock
from holdfast.jobs.ingest import Tracker
from holdfast.jobs.migration.counts import Ledger, Tell, nobody
from holdfast.jobs.migration.dual import Bucket, DualReads, DualTracker
from holdfast.jobs.migration.layout import Layout
from holdfast.jobs.migration.phases import PATIENT_SECONDS, Phase, PhaseWatch, StoredPhase, begin
from holdfast.kernel.errors import BadSetting, Retryable
from holdfast.kernel.ids import nonce
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Migrating:
    """What an instance needs that takes part."""

    bucket: Bucket
    watch: PhaseWatch
    clock: Clock
    tell: Tell

    def close(self) -> None:
        if isinstance(self.tell, Ledger):
            self.tell.close()
        self.bucket.objects.close()

    def receiver(self, tracker: Tracker) -> DualTracker:
        return DualTracker(tracker, self.bucket, self.watch, self.clock, self.tell)

    def reads(self, store: Store) -> DualReads:
        return DualReads(store, self.bucket, self.watch, self.clock, self.tell)


@dataclass(frozen=True, slots=True)
class Tools:
    """What the commands work with."""

    store: Store
    bucket: Bucket
    clock: Clock
    wanted: Phase


def open_migration(settings: Settings, store: Store, clock: Clock, told: Tell = nobody) -> Migrating | None:
    """For an instance that starts; None where nothing is migrated. The phase that it begins with is stored."""
    if settings.s3_bucket is None:
        return None
    wanted = Phase(settings.jobs_migration)
    try:
        begun = begin(store, wanted, clock.now(), f"start-{nonce()}")
    except Retryable as error:
        # S3 can take webhooks while the store is away: the setting says whether it should.
        _log.warning("the phase of the migration is not known, and JOBS_MIGRATION=%s counts: %s", wanted, error)
        begun = StoredPhase(wanted)
    return Migrating(_bucket(settings), PhaseWatch(store, clock, begun), clock, Ledger(store, clock, told))


def readable(settings: Settings, store: Store, clock: Clock) -> Store:
    """The store for questions: as an instance would answer them, without counting."""
    if settings.s3_bucket is None:
        return store
    watch = PhaseWatch(store, clock, StoredPhase(Phase(settings.jobs_migration)), PATIENT_SECONDS)
    return Migrating(_bucket(settings), watch, clock, nobody).reads(store)


@contextmanager
def opened_tools(settings: Settings, *, writable: bool) -> Iterator[Tools]:
    """For a command."""
    if settings.s3_bucket is None:
        raise BadSetting(
            "S3_BUCKET is not set: there is nothing to migrate; name the bucket of the older system, "
            "for example S3_BUCKET=runs-on-s3bucket-1a2b3c"
        )
    clock = world_clock(settings)
    bucket = _bucket(settings)
    with closing(bucket.objects), closing(open_store(settings, clock, writable=writable)) as store:
        yield Tools(store, bucket, clock, Phase(settings.jobs_migration))


def _bucket(settings: Settings) -> Bucket:
    from holdfast.adapters.s3 import S3Objects  # with boto3, which only those pay for who need it

    return Bucket(S3Objects(str(settings.s3_bucket)), Layout(settings.s3_webhook_layout))
