"""`holdfast migrate`: move from an older system's S3 objects to the tables, phase by phase."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import as_json, dry_run, with_settings
from holdfast.cli.terminal.output import print_json, print_table, print_words
from holdfast.cli.terminal.progress import Progress
from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.settings.own_commands import own_command

if TYPE_CHECKING:
    from holdfast.jobs.migration.backfill_progress import BackfillProgress
    from holdfast.jobs.migration.compare import ComparisonResult
    from holdfast.jobs.migration.differences import JobDifference
    from holdfast.jobs.migration.phases import Phase
    from holdfast.kernel.settings import Settings
    from holdfast.views.migration_answers import BackfillState, ComparisonProgress, MigrationStatusAnswer

_PHASES = click.Choice(["off", "dual_write", "dual_read", "dynamodb_only"])
_workers = click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="Number of jobs processed in parallel.",
)
_anyway = click.option(
    "--anyway", is_flag=True, help="Proceed even if checks advise against it. Skipping a phase is still refused."
)
_rate = click.option(
    "--rate", metavar="N", type=click.FloatRange(0.1), help="At most this many objects per second.  [default: no limit]"
)


@click.group("migrate", short_help="Migrate from an older system that stores webhooks in S3.")
def migrate_commands() -> None:
    """Migrate from an older system that stores webhooks in S3, one phase at a time, with a way back."""


@migrate_commands.command("status", short_help="Show the phase and whether the next one is safe.")
@as_json
@with_settings("--data")
def status_command(settings: Settings, *, as_json: bool) -> None:
    """Show the phase, read and write health, backfill and compare results, and whether the next phase is safe."""
    from holdfast.entrypoints.wiring.migration import open_migration_tools
    from holdfast.jobs.migration.status import migration_status
    from holdfast.views.migration_answers import migration_status_answer

    with open_migration_tools(settings, writable=False) as tools:
        found = migration_status(tools.store, tools.bucket.objects, tools.wanted, tools.clock.now())
    answer = migration_status_answer(found)
    if as_json:
        print_json(answer)
        return
    print_table(["STATUS", "VALUE"], _status_rows(answer))
    if answer.next is None:
        click.echo(f"this is the last phase; next: {own_command(settings, 'migrate cleanup')}")
    elif answer.is_ready:
        click.echo(f"ready for {answer.next}; run: {own_command(settings, 'migrate advance')}")
    else:
        click.echo(f"not ready for {answer.next}:")
    for reason in answer.against:
        click.echo(f"  {reason}")


@migrate_commands.command("backfill")
@_workers
@_rate
@as_json
@dry_run
@with_settings("--data")
def backfill_command(settings: Settings, *, workers: int, rate: float | None, as_json: bool, dry_run: bool) -> None:
    """Copy existing webhooks from S3 into the tables.

    Safe to run more than once and alongside live webhooks. An interrupted backfill resumes where it stopped; after a
    completed one, another run rereads everything and writes only what is missing.
    """
    from holdfast.entrypoints.wiring.migration import open_migration_tools
    from holdfast.jobs.migration.backfill import Backfill, BackfillOptions
    from holdfast.jobs.migration.status import wait_for_dual_write
    from holdfast.views.migration_answers import backfill_answer

    with open_migration_tools(settings, writable=not dry_run) as tools, Progress("backfill", "objects") as progress:

        def show_progress(done: BackfillProgress) -> None:
            progress.show(done.objects, done.total, f"{done.written} written, {done.there} already present")

        wait_for_dual_write(tools.store, tools.clock, lambda words: click.echo(words, err=True), is_dry_run=dry_run)
        options = BackfillOptions(workers, rate, dry_run)
        done = Backfill(tools.store, tools.bucket, tools.clock, options, show_progress).run()
    if as_json:
        print_json(backfill_answer(done, dry_run=dry_run))
        return
    would = "would be written" if dry_run else "written"
    click.echo(
        f"{done.objects} objects of {done.jobs} jobs: {done.written} {would}, {done.there} already present, "
        f"{done.expired} over 90 days old, {done.unusable} unusable, {done.mended} repaired"
    )
    for key in done.unusable_keys:
        print_words(f"unusable: {key}")
    if done.unusable > len(done.unusable_keys):
        compare = own_command(settings, "migrate compare")
        click.echo(f"and {done.unusable - len(done.unusable_keys)} more; to list them: {compare}")


@migrate_commands.command("compare", short_help="Compare S3 with the tables, job by job.")
@click.option(
    "--sample",
    metavar="SHARE",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    help="Compare this share of the jobs; 1 compares all.",
)
@click.option(
    "--sample-seed", metavar="N", type=int, default=0, show_default=True, help="Seed that selects the sample."
)
@_workers
@_rate
@as_json
@with_settings("--data")
def compare_command(
    settings: Settings, *, sample: float, sample_seed: int, workers: int, rate: float | None, as_json: bool
) -> None:
    """Compare S3 with the tables, job by job, and list every difference. The exit code is 1 if there is one."""
    from holdfast.entrypoints.wiring.migration import open_migration_tools
    from holdfast.jobs.migration.compare import S3Comparison
    from holdfast.views.migration_answers import comparison_answer

    found: list[JobDifference] = []
    with open_migration_tools(settings, writable=True) as tools, Progress("compare", "objects") as progress:

        def show_progress(done: ComparisonResult) -> None:
            progress.show(done.objects, None, f"{done.differences} differences")

        compare = S3Comparison(tools.store, tools.bucket, tools.clock, found.append, show_progress)
        compare.share, compare.sample_seed = sample, sample_seed
        compare.workers, compare.objects_per_second = workers, rate
        done = compare.run()
    answer = comparison_answer(done, found)
    if as_json:
        print_json(answer)
    else:
        if answer.items:
            rows = [
                [each.kind, each.installation_id, each.job_id, each.what, each.s3, each.tables] for each in answer.items
            ]
            print_table(["KIND", "INSTALLATION", "JOB", "WHAT", "IN S3", "IN THE TABLES"], rows)
        click.echo(f"{done.jobs} jobs with {done.objects} objects compared: {done.differences} differences")
    if found:
        raise click.exceptions.Exit(1)


@migrate_commands.command("advance")
@click.option("--to", type=_PHASES, help="The phase to move to.  [default: the next one]")
@_anyway
@as_json
@dry_run
@with_settings("--data")
def advance_command(settings: Settings, *, to: str | None, anyway: bool, as_json: bool, dry_run: bool) -> None:
    """Move to the next phase, if it is safe."""
    _move(settings, to, anyway=anyway, is_forward=True, as_json=as_json, dry_run=dry_run)


@migrate_commands.command("back")
@click.option("--to", type=_PHASES, help="The phase to move to.  [default: the previous one]")
@_anyway
@as_json
@dry_run
@with_settings("--data")
def back_command(settings: Settings, *, to: str | None, anyway: bool, as_json: bool, dry_run: bool) -> None:
    """Move to the previous phase. No data is lost; the output says what it means for readers of S3."""
    _move(settings, to, anyway=anyway, is_forward=False, as_json=as_json, dry_run=dry_run)


@migrate_commands.command("cleanup", short_help="Move old webhooks to Glacier.")
@as_json
@dry_run
@with_settings("--data")
def cleanup_command(settings: Settings, *, as_json: bool, dry_run: bool) -> None:
    """Set a lifecycle policy that moves webhooks older than 90 days to Glacier.

    The policy is printed before it is set. The bucket's other rules are kept, and runner-config.json is not moved.
    """
    from holdfast.entrypoints.wiring.migration import open_migration_tools
    from holdfast.jobs.migration.cleanup import carry_out, planned
    from holdfast.jobs.migration.status import check_may_archive
    from holdfast.views.migration_answers import cleanup_answer

    with open_migration_tools(settings, writable=False) as tools:
        objects = tools.bucket.objects
        plan = planned(objects.lifecycle(), tools.bucket.layout, settings.s3_runner_config_prefix)
        answer = cleanup_answer(plan, done=plan.is_change and not dry_run)
        if not as_json:
            print_json({"Rules": answer.rules})
            for note in plan.notes:
                click.echo(f"note: {note}")
        if not dry_run:
            check_may_archive(tools.store, objects)
            if plan.is_change:
                carry_out(objects, plan)
    if as_json:
        print_json(answer)
    else:
        click.echo(
            "policy set"
            if answer.done
            else "not set (--dry-run)"
            if plan.is_change
            else "nothing to change: already set"
        )


def _move(settings: Settings, to: str | None, *, anyway: bool, is_forward: bool, as_json: bool, dry_run: bool) -> None:
    from holdfast.entrypoints.wiring.migration import open_migration_tools
    from holdfast.jobs.migration.phases import Phase, move
    from holdfast.jobs.migration.status import migration_status, move_notes, phase_to_move_to
    from holdfast.views.migration_answers import PhaseChange

    with open_migration_tools(settings, writable=not dry_run) as tools:
        now = tools.clock.now()
        it = migration_status(tools.store, tools.bucket.objects, tools.wanted, now)
        wanted: Phase = phase_to_move_to(it, Phase(to) if to else None, is_forward=is_forward)
        against = it.against_next() if is_forward else it.against_back(wanted)
        if against and not (anyway or dry_run):
            raise NeedsOperator(f"not ready for {wanted}: {'; '.join(against)}")
        if not dry_run:
            move(tools.store, it.stored, wanted, now, f"cli-{getpass.getuser()}")
    notes = move_notes(it.stored, wanted)
    if as_json:
        print_json(PhaseChange(before=it.stored.phase, after=wanted, done=not dry_run, against=against, notes=notes))
        return
    how = "moved" if not dry_run else "would be refused: move" if against and not anyway else "would move"
    click.echo(f"{how} from {it.stored.phase} to {wanted}")
    for line in (*against, *notes):
        click.echo(f"  {line}")


def _status_rows(status: MigrationStatusAnswer) -> list[list[object]]:
    since = f" since {status.since}" if status.since else ""
    latencies = ", ".join(f"{name} {ms:.1f}" for name, ms in status.mean_ms.items() if ms is not None)
    return [
        ["phase", f"{status.phase}{since}"],
        ["JOBS_MIGRATION", status.setting],
        ["reads served by the tables", _percent(status.hit_rate)],
        ["failed writes to the tables", _percent(status.error_rate)],
        ["mean latency, in ms", latencies or "no data yet"],
        ["in S3 but not in the tables", status.unstored],
        ["backfill", _backfill_words(status.backfill) if status.backfill else "not run yet"],
        ["compare", _compare_words(status.compare) if status.compare else "not run yet"],
    ]


def _percent(share: float | None) -> str:
    return "no data yet" if share is None else f"{share:.2%}"


def _backfill_words(done: BackfillState) -> str:
    how = f"finished {done.finished}" if done.finished else f"incomplete, last updated {done.updated}"
    return f"{how}: {done.objects} of {done.total} objects, {done.unusable} unusable"


def _compare_words(done: ComparisonProgress) -> str:
    share = "" if done.share >= 1 else f" (a sample of {done.share:.0%})"
    return f"finished {done.finished}: {done.jobs} jobs{share}, {done.differences} differences"
