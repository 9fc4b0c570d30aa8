"""Answers of `holdfast migrate`: the status, a backfill, a comparison, a move, and the lifecycle after them."""

from collections.abc import Mapping, Sequence

from msgspec import field, structs

from holdfast.jobs.migration.backfill_progress import BackfillProgress
from holdfast.jobs.migration.cleanup import Cleanup
from holdfast.jobs.migration.compare import ComparisonResult
from holdfast.jobs.migration.differences import DifferenceKind, JobDifference
from holdfast.jobs.migration.phases import Phase
from holdfast.jobs.migration.status import MigrationStatus
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Amount, Count, Shape, Share, Time


class BackfillState(Shape, frozen=True, kw_only=True):
    run: str
    started: Time | None
    updated: Time | None
    finished: Time | None
    total: Count
    objects: Count
    jobs: Count
    written: Count
    there: Count
    expired: Count
    unusable: Count
    mended: Count
    unusable_keys: list[str]


class BackfillAnswer(BackfillState, frozen=True, kw_only=True):
    dry_run: bool


class ComparisonProgress(Shape, frozen=True, kw_only=True):
    """How many jobs of a sample in S3 were compared with the tables, and what differed."""

    started: Time
    finished: Time | None
    share: Share
    jobs: Count
    objects: Count
    expired: Count
    differences: Count
    kinds: dict[DifferenceKind, Count]


class FoundDifference(Shape, frozen=True, kw_only=True):
    kind: DifferenceKind
    installation_id: Count | None
    job_id: Count | None
    what: str
    s3: object
    tables: object


class ComparisonAnswer(ComparisonProgress, frozen=True, kw_only=True):
    items: list[FoundDifference]
    cursor: None = None


class MigrationStatusAnswer(Shape, frozen=True, kw_only=True):
    """`against`: what stands in the way of the next phase."""

    phase: Phase
    since: Time | None
    setting: Phase
    next: Phase | None
    is_ready: bool
    against: list[str]
    hit_rate: Share | None
    error_rate: Share | None
    mean_ms: dict[str, Amount | None]
    counts: dict[str, Amount]
    unstored: Count
    backfill: BackfillState | None
    compare: ComparisonProgress | None
    moves: list[dict[str, object]]


class PhaseChange(Shape, frozen=True, kw_only=True):
    before: Phase = field(name="from")
    after: Phase = field(name="to")
    done: bool
    against: list[str]
    notes: list[str]


class CleanupAnswer(Shape, frozen=True, kw_only=True):
    """The bucket's lifecycle rules, ours included."""

    rules: list[dict[str, object]]
    is_change: bool
    notes: list[str]
    done: bool


def migration_status_answer(status: MigrationStatus) -> MigrationStatusAnswer:
    against = status.against_next()
    figures = status.figures
    return MigrationStatusAnswer(
        phase=status.stored.phase,
        since=_time(status.stored.since),
        setting=status.wanted,
        next=status.next,
        is_ready=status.next is not None and not against,
        against=against,
        hit_rate=figures.hit_rate,
        error_rate=figures.error_rate,
        mean_ms={
            "store_read": figures.mean_ms("read", "store"),
            "store_write": figures.mean_ms("write", "store"),
            "s3_read": figures.mean_ms("read", "s3"),
            "s3_write": figures.mean_ms("write", "s3"),
        },
        counts=dict(sorted(figures.counts.items())),
        unstored=status.unstored,
        backfill=_backfill_state(status.backfilled) if status.backfilled else None,
        compare=_comparison_progress(status.compared) if status.compared else None,
        moves=[dict(move) for move in status.stored.moves],
    )


def backfill_answer(done: BackfillProgress, *, dry_run: bool) -> BackfillAnswer:
    return BackfillAnswer(**structs.asdict(_backfill_state(done)), dry_run=dry_run)


def comparison_answer(done: ComparisonResult, found: Sequence[JobDifference]) -> ComparisonAnswer:
    return ComparisonAnswer(
        **structs.asdict(_comparison_progress(done)), items=[_found_difference(each) for each in found]
    )


def cleanup_answer(plan: Cleanup, *, done: bool) -> CleanupAnswer:
    rules = [{name: _plain(value) for name, value in rule.items()} for rule in plan.rules]
    return CleanupAnswer(rules=rules, is_change=plan.is_change, notes=list(plan.notes), done=done)


def _backfill_state(done: BackfillProgress) -> BackfillState:
    return BackfillState(
        run=done.run,
        started=_time(done.started),
        updated=_time(done.updated),
        finished=_time(done.finished),
        total=done.total,
        objects=done.objects,
        jobs=done.jobs,
        written=done.written,
        there=done.there,
        expired=done.expired,
        unusable=done.unusable,
        mended=done.mended,
        unusable_keys=list(done.unusable_keys),
    )


def _comparison_progress(done: ComparisonResult) -> ComparisonProgress:
    return ComparisonProgress(
        started=done.started.iso(),
        finished=_time(done.finished),
        share=done.share,
        jobs=done.jobs,
        objects=done.objects,
        expired=done.expired,
        differences=done.differences,
        kinds={DifferenceKind(kind): count for kind, count in sorted(done.kinds.items())},
    )


def _found_difference(found: JobDifference) -> FoundDifference:
    return FoundDifference(
        kind=found.kind,
        installation_id=found.job.installation_id if found.job else None,
        job_id=found.job.job_id if found.job else None,
        what=found.what,
        s3=_plain(found.in_s3),
        tables=_plain(found.in_tables),
    )


def _time(instant: Instant | None) -> str | None:
    return None if instant is None else instant.iso()


def _plain(value: object) -> object:
    """A value of a table or of S3. What JSON has no type for, such as a time in a bucket's own rule, becomes text."""
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
