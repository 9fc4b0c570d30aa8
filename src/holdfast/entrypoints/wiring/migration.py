"""Builds the migration from S3: wrappers around the tracker and the store while S3_BUCKET is set."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from holdfast.entrypoints.wiring.stores import open_store
from holdfast.entrypoints.wiring.world import world_clock
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.migration.counts import DailyCounts, ReportCall, discard
from holdfast.jobs.migration.dual import Bucket, DualReads, DualTracker
from holdfast.jobs.migration.layout import ObjectLayout
from holdfast.jobs.migration.phases import COMMAND_TIMEOUT_SECONDS, Phase, PhaseWatch, StoredPhase, begin
from holdfast.kernel.errors import BadSetting, Retryable
from holdfast.kernel.ids import nonce
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Migration:
    """What a process needs to take part in the migration."""

    bucket: Bucket
    watch: PhaseWatch
    clock: Clock
    report_call: ReportCall

    def close(self) -> None:
        if isinstance(self.report_call, DailyCounts):
            self.report_call.close()
        self.bucket.objects.close()

    def receiver(self, tracker: Tracker) -> DualTracker:
        return DualTracker(tracker, self.bucket, self.watch, self.clock, self.report_call)

    def reads(self, store: Store) -> DualReads:
        return DualReads(store, self.bucket, self.watch, self.clock, self.report_call)


@dataclass(frozen=True, slots=True)
class MigrationTools:
    """What the `migrate` commands need."""

    store: Store
    bucket: Bucket
    clock: Clock
    wanted: Phase


def open_migration(
    settings: Settings, store: Store, clock: Clock, report_call: ReportCall = discard
) -> Migration | None:
    """For a starting process; None without a migration. Stores the initial phase."""
    if settings.s3_bucket is None:
        return None
    wanted = Phase(settings.jobs_migration)
    try:
        begun = begin(store, wanted, clock.now(), f"start-{nonce()}")
    except Retryable as error:
        # S3 can receive webhooks while the store is unavailable; the setting says whether it should.
        _log.warning("could not read the migration phase, using JOBS_MIGRATION=%s: %s", wanted, error)
        begun = StoredPhase(wanted)
    return Migration(_bucket(settings), PhaseWatch(store, clock, begun), clock, DailyCounts(store, clock, report_call))


def readable(settings: Settings, store: Store, clock: Clock) -> Store:
    """The store for reads, in the current phase, without counting."""
    if settings.s3_bucket is None:
        return store
    watch = PhaseWatch(store, clock, StoredPhase(Phase(settings.jobs_migration)), COMMAND_TIMEOUT_SECONDS)
    return Migration(_bucket(settings), watch, clock, discard).reads(store)


@contextmanager
def open_migration_tools(settings: Settings, *, writable: bool) -> Iterator[MigrationTools]:
    """For a `migrate` command."""
    if settings.s3_bucket is None:
        raise BadSetting(
            "S3_BUCKET is not set, so there is nothing to migrate; set it to the older system's bucket, "
            "for example S3_BUCKET=runs-on-s3bucket-1a2b3c"
        )
    clock = world_clock(settings)
    bucket = _bucket(settings)
    with closing(bucket.objects), closing(open_store(settings, clock, writable=writable)) as store:
        yield MigrationTools(store, bucket, clock, Phase(settings.jobs_migration))


def _bucket(settings: Settings) -> Bucket:
    from holdfast.adapters.aws.s3 import S3Objects  # local import: loads boto3

    return Bucket(S3Objects(str(settings.s3_bucket)), ObjectLayout(settings.s3_webhook_layout))
