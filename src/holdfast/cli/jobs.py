"""`holdfast jobs`, `runs` and `deployments`: what the tracker knows about each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.cluster import TimeOrAge
from holdfast.cli.job_rows import (
    attribute_rows,
    echo_more,
    echo_stats,
    event_row,
    job_row,
    stuck_row,
)
from holdfast.cli.options import as_json, dry_run, with_settings
from holdfast.cli.terminal.output import print_json, print_table, print_words
from holdfast.kernel.errors import BadRequest, NotFound
from holdfast.kernel.instants import Instant

if TYPE_CHECKING:
    from holdfast.jobs.read.item_views import JobView
    from holdfast.kernel.settings import Settings
    from holdfast.views.job_types import DeploymentWithJobs, ListPage, RunWithJobs
    from holdfast.views.job_views import JobViews

T = TypeVar("T")
Command = Callable[..., None]
STATUSES = ("queued", "waiting", "scheduled", "in_progress", "completed")
_JOB_COLUMNS = ["JOB", "STATUS", "CREATED", "REPOSITORY: WORKFLOW / JOB"]


def options(*several: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(several):
            command = option(command)
        return command

    return decorate


# As text: the API and the command line share one parser, with the same messages.
installation = click.option(
    "--installation",
    "installation_id",
    metavar="ID",
    help="GitHub App installation; required if there is more than one.",
)
paging = options(
    click.option("--limit", metavar="N", help="Return at most this many."),
    click.option("--cursor", metavar="CURSOR", help="Continue after the previous page."),
)
span = options(
    click.option("--since", type=TimeOrAge(), help="Only jobs created after this time, or age such as 30m, 6h or 2d."),
    click.option("--until", type=TimeOrAge(), help="Only jobs created before this time, or age such as 30m, 6h or 2d."),
)
repository = click.option("--repo", metavar="OWNER/NAME", help="Only jobs of this repository.")
repository_part = click.option(
    "--repo", metavar="TEXT", help="Only jobs of this repository (OWNER/NAME), or of all whose names contain TEXT."
)
one_job = options(click.argument("job_id", metavar="JOB"), installation, as_json, with_settings("--data"))


def query(settings: Settings, read: Callable[[JobViews, dict[str, str]], T], **filters: Any) -> T:
    """Read with the filters as text. A filter that is not understood is a usage error: exit code 2."""
    from holdfast.entrypoints.wiring.jobs import open_job_views

    with open_job_views(settings) as tracking:
        try:
            return read(tracking, _texts(settings, filters))
        except NotFound:
            raise
        except BadRequest as error:
            raise click.UsageError(str(error)) from error


def _texts(settings: Settings, filters: Mapping[str, Any]) -> dict[str, str]:
    from holdfast.entrypoints.wiring.world import world_clock

    texts = {}
    for name, value in filters.items():
        if callable(value):
            # An age may reach back further than times can be written.
            texts[name] = max(Instant(0), value(world_clock(settings).now())).iso()
        elif value is not None:
            texts[name] = str(value)
    return texts


def _installation(tracking: JobViews, filters: dict[str, str]) -> str:
    """The installation of --installation, or the only one there is."""
    found = filters.pop("installation_id", None)
    return found if found is not None else str(tracking.only_installation())


@click.group("jobs", short_help="Show workflow jobs: status, history and statistics.")
def jobs_commands() -> None:
    """Show workflow jobs: their status, history, statistics, and why they are waiting."""


@jobs_commands.command("list")
@installation
@click.option("--status", type=click.Choice(STATUSES), help="Only jobs with this status.")
@repository_part
@span
@click.option("--pool", metavar="NAME", help="Only jobs of this pool.")
@click.option("--label", metavar="LABEL", help="Only jobs that request a runner label that contains this.")
@click.option("--workflow", metavar="NAME", help="Only jobs whose workflow's name contains this.")
@click.option("--conclusion", metavar="WORD", help="Only jobs with this conclusion.")
@click.option("--name", "job_name", metavar="NAME", help="Only jobs whose name contains this.")
@click.option("--instance-id", metavar="ID", help="Only jobs of this machine.")
@paging
@as_json
@with_settings("--data")
def list_command(settings: Settings, *, as_json: bool, **filters: Any) -> None:
    """List jobs, newest first.

    Repository, workflow, label and name match by part, and ignore case.
    """
    answer = query(settings, lambda tracking, texts: tracking.jobs(texts), **filters)
    _show_jobs(answer, as_json=as_json)


@jobs_commands.command("show")
@one_job
def show_command(settings: Settings, *, job_id: str, as_json: bool, **filters: Any) -> None:
    """Show all attributes of a job."""
    answer = query(
        settings, lambda tracking, texts: tracking.job(_installation(tracking, texts), job_id, texts), **filters
    )
    print_json(answer) if as_json else print_table(["ATTRIBUTE", "VALUE"], attribute_rows(answer))


@jobs_commands.command("events")
@click.option("--day", metavar="DATE", help="Only events of this day, such as 2026-01-15.")
@click.option("--type", "event_type", metavar="TYPE", help="Only events of this type, such as runner_scheduled.")
@paging
@one_job
def events_command(settings: Settings, *, job_id: str, as_json: bool, **filters: Any) -> None:
    """Show the events of a job in order, and what each changed."""
    answer = query(
        settings, lambda tracking, texts: tracking.events(_installation(tracking, texts), job_id, texts), **filters
    )
    if as_json:
        print_json(answer)
        return
    print_table(["AT", "EVENT", "DELIVERIES", "WHAT CHANGED"], [event_row(event) for event in answer.items])
    echo_more(answer)


@jobs_commands.command("explain")
@one_job
def explain_job_command(settings: Settings, *, job_id: str, as_json: bool, **filters: Any) -> None:
    """Explain a job's status: since when, why, and what happens next."""
    answer = query(
        settings, lambda tracking, texts: tracking.explain(_installation(tracking, texts), job_id, texts), **filters
    )
    if as_json:
        print_json(answer)
        return
    for line in answer.lines:
        print_words(line)


@jobs_commands.command("stuck")
@installation
@click.option("--status", type=click.Choice(STATUSES[:-1]), help="Only jobs stuck in this status.")
@paging
@as_json
@with_settings("--data")
def stuck_command(settings: Settings, *, as_json: bool, **filters: Any) -> None:
    """List stuck jobs, oldest first."""
    answer = query(settings, lambda tracking, texts: tracking.stuck(texts), **filters)
    if as_json:
        print_json(answer)
        return
    if answer.items:
        columns = ["JOB", "STATUS", "FOR", "LIMIT", "REPOSITORY: WORKFLOW / JOB"]
        print_table(columns, [stuck_row(job) for job in answer.items])
    elif answer.cursor is None:
        click.echo("no stuck jobs")
    echo_more(answer)


@jobs_commands.command("stats", short_help="Show success rates, run times and queue times.")
@installation
@repository
@span
@paging
@as_json
@with_settings("--data")
def stats_command(settings: Settings, *, as_json: bool, **filters: Any) -> None:
    """Show success rates, run times and queue times, over the last 7 days by default."""
    answer = query(settings, lambda tracking, texts: tracking.stats(texts), **filters)
    print_json(answer) if as_json else echo_stats(answer)


@jobs_commands.command("recount", short_help="Count the jobs of past days again.")
@installation
@click.option("--since", metavar="TIME", help="Count from this time on.  [default: all jobs that are stored]")
@as_json
@dry_run
@with_settings("--data")
def recount_command(
    settings: Settings, *, installation_id: str | None, since: str | None, as_json: bool, dry_run: bool
) -> None:
    """Count the jobs of past days again, for statistics and costs.

    The process that counts does it, within minutes. Figures of days whose jobs have expired stay as they are.
    """
    from holdfast.entrypoints.figure_counts import recount

    found = recount(settings, installation_id, since, write=not dry_run)
    if as_json:
        print_json(found)
        return
    for counted in found.installations:
        would = "would" if dry_run else "will"
        print_words(f"installation {counted}: the next passes {would} count its jobs again")


@click.group("runs")
def runs_commands() -> None:
    """Show workflow runs."""


@runs_commands.command("show")
@click.argument("run_id", metavar="RUN")
@click.option("--attempt", default="1", show_default=True, metavar="N", help="The attempt of the run.")
@installation
@paging
@as_json
@with_settings("--data")
def show_run_command(settings: Settings, *, run_id: str, attempt: str, as_json: bool, **filters: Any) -> None:
    """Show one attempt of a run and its jobs."""
    answer = query(
        settings,
        lambda tracking, texts: tracking.run(_installation(tracking, texts), run_id, attempt, texts),
        **filters,
    )
    _show_with_jobs(answer, as_json=as_json)


@click.group("deployments")
def deployments_commands() -> None:
    """Show deployments."""


@deployments_commands.command("show")
@click.argument("deployment_id", metavar="DEPLOYMENT")
@installation
@as_json
@with_settings("--data")
def show_deployment_command(settings: Settings, *, deployment_id: str, as_json: bool, **filters: Any) -> None:
    """Show a deployment: its approval, and the jobs waiting for it."""
    answer = query(
        settings,
        lambda tracking, texts: tracking.deployment(_installation(tracking, texts), deployment_id, texts),
        **filters,
    )
    _show_with_jobs(answer, as_json=as_json)


def _show_with_jobs(answer: RunWithJobs | DeploymentWithJobs, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    print_table(["ATTRIBUTE", "VALUE"], attribute_rows(answer, without="jobs"))
    click.echo()
    _show_jobs(answer.jobs, as_json=False)


def _show_jobs(answer: ListPage[JobView], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    if answer.items:
        print_table(_JOB_COLUMNS, [job_row(job) for job in answer.items])
    elif answer.cursor is None:
        click.echo("no jobs found")
    echo_more(answer)
