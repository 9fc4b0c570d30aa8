"""`holdfast migrate`: the way over from the older system's objects in S3, step by step."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import as_json, dry_run, with_settings
from holdfast.cli.output import print_json, print_table, print_words
from holdfast.cli.progress import Progress
from holdfast.kernel.errors import NeedsOperator

if TYPE_CHECKING:
    from holdfast.jobs.migration.compare import Compared
    from holdfast.jobs.migration.differences import Difference
    from holdfast.jobs.migration.phases import Phase
    from holdfast.jobs.migration.place import Backfilled
    from holdfast.kernel.settings import Settings

_PHASES = click.Choice(["off", "dual_write", "dual_read", "dynamodb_only"])
_workers = click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="Jobs that are done at once.",
)
_anyway = click.option(
    "--anyway", is_flag=True, help="Although something speaks against it. A jump is refused all the same."
)
_rate = click.option(
    "--rate", metavar="N", type=click.FloatRange(0.1), help="Objects a second at the most.  [default: no limit]"
)


@click.group("migrate", short_help="Go over from an older system that keeps webhooks in S3.")
def migrate_commands() -> None:
    """Go over from an older system that keeps webhooks in S3: forward in steps, and back."""


@migrate_commands.command("status", short_help="Show the phase, how it fares, and whether to go on.")
@as_json
@with_settings("--data")
def status_command(settings: Settings, *, as_json: bool) -> None:
    """Show the phase, how reads and writes fare, what was filled in and compared, and whether to go on."""
    from holdfast.entrypoints.migrating import opened_tools
    from holdfast.jobs.migration.status import standing

    with opened_tools(settings, writable=False) as tools:
        shown = standing(tools.store, tools.bucket.objects, tools.wanted, tools.clock.now()).shown()
    if as_json:
        print_json(shown)
        return
    print_table(["WHAT", "VALUE"], _status_rows(shown))
    if shown["next"] is None:
        click.echo("this is the last phase; see: holdfast migrate cleanup")
    elif shown["is_ready"]:
        click.echo(f"ready for {shown['next']}; run: holdfast migrate advance")
    else:
        click.echo(f"not ready for {shown['next']}:")
    for reason in shown["against"]:
        click.echo(f"  {reason}")


@migrate_commands.command("backfill")
@_workers
@_rate
@as_json
@dry_run
@with_settings("--data")
def backfill_command(settings: Settings, *, workers: int, rate: float | None, as_json: bool, dry_run: bool) -> None:
    """Put existing webhooks into the tables.

    It goes on from where it was stopped or killed, and may run beside live webhooks and twice. After it came to the
    end, another run looks at everything once more, and writes only what is missing.
    """
    from holdfast.entrypoints.migrating import opened_tools
    from holdfast.jobs.migration.backfill import Backfill, Manner
    from holdfast.jobs.migration.readiness import wait_for_both

    with opened_tools(settings, writable=not dry_run) as tools, Progress("backfill", "objects") as progress:

        def watch(done: Backfilled) -> None:
            progress.show(done.objects, done.total, f"{done.written} written, {done.there} there already")

        wait_for_both(tools.store, tools.clock, lambda words: click.echo(words, err=True), is_dry_run=dry_run)
        manner = Manner(workers, rate, dry_run)
        done = Backfill(tools.store, tools.bucket, tools.clock, manner, watch).run()
    if as_json:
        print_json({**done.shown(), "dry_run": dry_run})
        return
    would = "would be written" if dry_run else "written"
    click.echo(
        f"{done.objects} objects of {done.jobs} jobs: {done.written} {would}, {done.there} there already, "
        f"{done.expired} over 90 days old, {done.unusable} unusable, {done.mended} mended"
    )
    for key in done.unusable_keys:
        print_words(f"unusable: {key}")
    if done.unusable > len(done.unusable_keys):
        click.echo(f"and {done.unusable - len(done.unusable_keys)} more; list them with: holdfast migrate compare")


@migrate_commands.command("compare", short_help="Hold S3 against the tables, job by job.")
@click.option(
    "--sample",
    metavar="SHARE",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    help="A share of the jobs; 1: all.",
)
@click.option(
    "--sample-seed", metavar="N", type=int, default=0, show_default=True, help="Another number chooses other jobs."
)
@_workers
@_rate
@as_json
@with_settings("--data")
def compare_command(
    settings: Settings, *, sample: float, sample_seed: int, workers: int, rate: float | None, as_json: bool
) -> None:
    """Hold S3 against the tables, job by job, and list every difference. The exit code is 1 when there is one."""
    from holdfast.entrypoints.migrating import opened_tools
    from holdfast.jobs.migration.compare import Compare

    found: list[dict[str, Any]] = []
    with opened_tools(settings, writable=True) as tools, Progress("compare", "objects") as progress:

        def tell(difference: Difference) -> None:
            found.append(difference.shown())

        def watch(done: Compared) -> None:
            progress.show(done.objects, None, f"{done.differences} differences")

        compare = Compare(tools.store, tools.bucket, tools.clock, tell, watch)
        compare.share, compare.sample_seed = sample, sample_seed
        compare.workers, compare.objects_per_second = workers, rate
        done = compare.run()
    if as_json:
        print_json({"items": found, "cursor": None, **done.shown()})
    else:
        if found:
            columns = ("kind", "installation_id", "job_id", "what", "s3", "tables")
            rows = [[difference[column] for column in columns] for difference in found]
            print_table(["KIND", "INSTALLATION", "JOB", "WHAT", "IN S3", "IN THE TABLES"], rows)
        click.echo(f"{done.jobs} jobs with {done.objects} objects compared: {done.differences} differences")
    if found:
        raise click.exceptions.Exit(1)


@migrate_commands.command("advance")
@click.option("--to", type=_PHASES, help="The phase to go to.  [default: the next one]")
@_anyway
@as_json
@dry_run
@with_settings("--data")
def advance_command(settings: Settings, *, to: str | None, anyway: bool, as_json: bool, dry_run: bool) -> None:
    """Go to the next phase, if nothing speaks against it."""
    _move(settings, to, anyway=anyway, is_forward=True, as_json=as_json, dry_run=dry_run)


@migrate_commands.command("back")
@click.option("--to", type=_PHASES, help="The phase to go to.  [default: the one before]")
@_anyway
@as_json
@dry_run
@with_settings("--data")
def back_command(settings: Settings, *, to: str | None, anyway: bool, as_json: bool, dry_run: bool) -> None:
    """Go to the phase before. Nothing is lost by it: what it means for readers of S3 is told."""
    _move(settings, to, anyway=anyway, is_forward=False, as_json=as_json, dry_run=dry_run)


@migrate_commands.command("cleanup")
@as_json
@dry_run
@with_settings("--data")
def cleanup_command(settings: Settings, *, as_json: bool, dry_run: bool) -> None:
    """Let S3 move webhooks of over 90 days to Glacier. The policy is printed before it is set.

    The bucket's other rules stay as they are, and runner-config.json stays where it is.
    """
    import json

    from holdfast.entrypoints.migrating import opened_tools
    from holdfast.jobs.migration.cleanup import carry_out, planned
    from holdfast.jobs.migration.readiness import check_may_archive

    with opened_tools(settings, writable=False) as tools:
        objects = tools.bucket.objects
        plan = planned(objects.lifecycle(), tools.bucket.layout, settings.s3_runner_config_prefix)
        if not as_json:
            click.echo(json.dumps({"Rules": plan.shown()["rules"]}, indent=2, default=str))
            for note in plan.notes:
                click.echo(f"note: {note}")
        if not dry_run:
            check_may_archive(tools.store, objects)
            if plan.is_change:
                carry_out(objects, plan)
    done = plan.is_change and not dry_run
    if as_json:
        print_json(json.loads(json.dumps({**plan.shown(), "done": done}, default=str)))
    else:
        click.echo(
            "set" if done else "not set: --dry-run" if plan.is_change else "nothing to change: it is set already"
        )


def _move(settings: Settings, to: str | None, *, anyway: bool, is_forward: bool, as_json: bool, dry_run: bool) -> None:
    from holdfast.entrypoints.migrating import opened_tools
    from holdfast.jobs.migration.phases import Phase, move
    from holdfast.jobs.migration.readiness import notes_of, step
    from holdfast.jobs.migration.status import standing

    with opened_tools(settings, writable=not dry_run) as tools:
        now = tools.clock.now()
        it = standing(tools.store, tools.bucket.objects, tools.wanted, now)
        wanted: Phase = step(it, Phase(to) if to else None, is_forward=is_forward)
        against = it.against_next() if is_forward else it.against_back(wanted)
        if against and not (anyway or dry_run):
            raise NeedsOperator(f"not ready for {wanted}: {'; '.join(against)}")
        if not dry_run:
            move(tools.store, it.stored, wanted, now, f"cli-{getpass.getuser()}")
    shown: dict[str, Any] = {
        "from": str(it.stored.phase),
        "to": str(wanted),
        "done": not dry_run,
        "against": against,
        "notes": notes_of(it.stored, wanted),
    }
    if as_json:
        print_json(shown)
        return
    how = "gone" if not dry_run else "would be refused:" if against and not anyway else "would go"
    click.echo(f"{how} from {shown['from']} to {shown['to']}")
    for line in (*against, *shown["notes"]):
        click.echo(f"  {line}")


def _status_rows(shown: dict[str, Any]) -> list[list[object]]:
    since = f" since {shown['since']}" if shown["since"] else ""
    backfill, compare = shown["backfill"], shown["compare"]
    latencies = ", ".join(f"{name} {ms:.1f}" for name, ms in shown["mean_ms"].items() if ms is not None)
    return [
        ["phase", f"{shown['phase']}{since}"],
        ["JOBS_MIGRATION", shown["setting"]],
        ["reads found in the tables", _percent(shown["hit_rate"])],
        ["writes that failed there", _percent(shown["error_rate"])],
        ["mean time, in ms", latencies or "nothing was counted yet"],
        ["in S3 and not stored", shown["unstored"]],
        ["backfill", _backfill_words(backfill) if backfill else "none yet"],
        ["compare", _compare_words(compare) if compare else "none yet"],
    ]


def _percent(share: float | None) -> str:
    return "nothing was counted yet" if share is None else f"{share:.2%}"


def _backfill_words(backfill: dict[str, Any]) -> str:
    how = f"finished {backfill['finished']}" if backfill["finished"] else f"stopped at {backfill['updated']}"
    return f"{how}: {backfill['objects']} of {backfill['total']} objects, {backfill['unusable']} unusable"


def _compare_words(compare: dict[str, Any]) -> str:
    share = "" if compare["share"] >= 1 else f" (a share of {compare['share']:g})"
    return f"finished {compare['finished']}: {compare['jobs']} jobs{share}, {compare['differences']} differences"
