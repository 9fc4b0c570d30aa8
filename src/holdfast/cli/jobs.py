"""`holdfast jobs`, `runs` and `deployments`: what GitHub told of, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.cluster import Since
from holdfast.cli.job_words import (
    attribute_rows,
    echo_more,
    echo_stats,
    event_row,
    job_row,
    stuck_row,
)
from holdfast.cli.options import as_json, with_settings
from holdfast.cli.output import print_json, print_table, print_words
from holdfast.kernel.errors import BadRequest, NotFound
from holdfast.kernel.instants import Instant

if TYPE_CHECKING:
    from holdfast.entrypoints.tracking import Tracking
    from holdfast.kernel.settings import Settings

Command = Callable[..., None]
STATUSES = ("queued", "waiting", "scheduled", "in_progress", "completed")
_JOB_COLUMNS = ["JOB", "STATUS", "CREATED", "REPOSITORY: WORKFLOW / JOB"]


def options(*several: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(several):
            command = option(command)
        return command

    return decorate


# As text: one place reads them, in the same words for the API.
installation = click.option(
    "--installation",
    "installation_id",
    metavar="ID",
    help="The GitHub App's installation; needed if there are several.",
)
paging = options(
    click.option("--limit", metavar="N", help="How many at most."),
    click.option("--cursor", metavar="CURSOR", help="Go on where another page ended."),
)
span = options(
    click.option("--since", type=Since(), help="Created since: 30m, 6h, 2d, or a time."),
    click.option("--until", type=Since(), help="Created until: 30m, 6h, 2d ago, or a time."),
)
repository = click.option("--repo", metavar="OWNER/NAME", help="Only those of this repository.")
one_job = options(click.argument("job_id", metavar="JOB"), installation, as_json, with_settings("--data"))


def ask(settings: Settings, question: Callable[[Tracking, dict[str, str]], dict[str, Any]], **given: Any) -> Any:
    """Put the question with what is given, as texts. What it does not understand was typed wrongly: exit code 2."""
    from holdfast.entrypoints.job_wiring import opened_tracking

    with opened_tracking(settings) as tracking:
        try:
            return question(tracking, _texts(settings, given))
        except NotFound:
            raise
        except BadRequest as error:
            raise click.UsageError(str(error)) from error


def _texts(settings: Settings, given: Mapping[str, Any]) -> dict[str, str]:
    from holdfast.entrypoints.world import world_clock

    texts = {}
    for name, value in given.items():
        if callable(value):
            # A span may reach back further than times can be written.
            texts[name] = max(Instant(0), value(world_clock(settings).now())).iso()
        elif value is not None:
            texts[name] = str(value)
    return texts


def _of(tracking: Tracking, given: dict[str, str]) -> str:
    """The installation that is meant."""
    found = given.pop("installation_id", None)
    return found if found is not None else str(tracking.only_installation())


@click.group("jobs", short_help="Show workflow jobs: where they are, and why.")
def jobs_commands() -> None:
    """Show workflow jobs: where they are, what happened to them, and why."""


@jobs_commands.command("list")
@installation
@click.option("--status", type=click.Choice(STATUSES), help="Only those that are there.")
@repository
@span
@click.option("--pool", metavar="NAME", help="Only those of this pool.")
@click.option("--label", metavar="LABEL", help="Only those that ask for this label.")
@click.option("--workflow", metavar="NAME", help="Only those of this workflow.")
@click.option("--conclusion", metavar="WORD", help="Only those that ended like this.")
@click.option("--name", "job_name", metavar="NAME", help="Only those of this name.")
@paging
@as_json
@with_settings("--data")
def list_command(settings: Settings, *, as_json: bool, **given: Any) -> None:
    """List jobs, the newest first."""
    answer = ask(settings, lambda tracking, texts: tracking.jobs(texts), **given)
    _show_jobs(answer, as_json=as_json)


@jobs_commands.command("show")
@one_job
def show_command(settings: Settings, *, job_id: str, as_json: bool, **given: Any) -> None:
    """Show everything that is known of a job."""
    answer = ask(settings, lambda tracking, texts: tracking.job(_of(tracking, texts), job_id, texts), **given)
    print_json(answer) if as_json else print_table(["ATTRIBUTE", "VALUE"], attribute_rows(answer))


@jobs_commands.command("events")
@click.option("--day", metavar="DATE", help="Only those of this day, such as 2026-01-15.")
@click.option("--type", "event_type", metavar="TYPE", help="Only those of this type, such as runner_scheduled.")
@paging
@one_job
def events_command(settings: Settings, *, job_id: str, as_json: bool, **given: Any) -> None:
    """Show what happened to a job, in its order."""
    answer = ask(settings, lambda tracking, texts: tracking.events(_of(tracking, texts), job_id, texts), **given)
    if as_json:
        print_json(answer)
        return
    print_table(["AT", "EVENT", "TOLD", "WHAT CHANGED"], [event_row(event) for event in answer["items"]])
    echo_more(answer)


@jobs_commands.command("explain")
@one_job
def explain_job_command(settings: Settings, *, job_id: str, as_json: bool, **given: Any) -> None:
    """Tell where a job is, since when, why, and what will happen next."""
    answer = ask(settings, lambda tracking, texts: tracking.explain(_of(tracking, texts), job_id, texts), **given)
    if as_json:
        print_json(answer)
        return
    for line in answer["lines"]:
        print_words(line)


@jobs_commands.command("stuck")
@installation
@click.option("--status", type=click.Choice(STATUSES[:-1]), help="Only those that are stuck there.")
@paging
@as_json
@with_settings("--data")
def stuck_command(settings: Settings, *, as_json: bool, **given: Any) -> None:
    """List jobs that are where they are for too long, the oldest first."""
    answer = ask(settings, lambda tracking, texts: tracking.stuck(texts), **given)
    if as_json:
        print_json(answer)
        return
    if answer["items"]:
        columns = ["JOB", "STATUS", "FOR", "LIMIT", "REPOSITORY: WORKFLOW / JOB"]
        print_table(columns, [stuck_row(job) for job in answer["items"]])
    elif answer["cursor"] is None:
        click.echo("no job is stuck")
    echo_more(answer)


@jobs_commands.command("stats", short_help="Show how often jobs succeed, how long they run and wait.")
@installation
@repository
@span
@paging
@as_json
@with_settings("--data")
def stats_command(settings: Settings, *, as_json: bool, **given: Any) -> None:
    """Show how often jobs succeed, how long they take and wait; seven days back, unless asked."""
    answer = ask(settings, lambda tracking, texts: tracking.stats(texts), **given)
    print_json(answer) if as_json else echo_stats(answer)


@click.group("runs")
def runs_commands() -> None:
    """Show workflow runs."""


@runs_commands.command("show")
@click.argument("run_id", metavar="RUN")
@click.option("--attempt", default="1", show_default=True, metavar="N", help="Which attempt of the run.")
@installation
@paging
@as_json
@with_settings("--data")
def show_run_command(settings: Settings, *, run_id: str, attempt: str, as_json: bool, **given: Any) -> None:
    """Show one attempt of a run, and its jobs."""
    answer = ask(settings, lambda tracking, texts: tracking.run(_of(tracking, texts), run_id, attempt, texts), **given)
    _show_with_jobs(answer, as_json=as_json)


@click.group("deployments")
def deployments_commands() -> None:
    """Show deployments."""


@deployments_commands.command("show")
@click.argument("deployment_id", metavar="DEPLOYMENT")
@installation
@as_json
@with_settings("--data")
def show_deployment_command(settings: Settings, *, deployment_id: str, as_json: bool, **given: Any) -> None:
    """Show a deployment: who waits for it, and whether it was approved."""
    answer = ask(
        settings, lambda tracking, texts: tracking.deployment(_of(tracking, texts), deployment_id, texts), **given
    )
    _show_with_jobs(answer, as_json=as_json)


def _show_with_jobs(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    print_table(["ATTRIBUTE", "VALUE"], attribute_rows({name: answer[name] for name in answer if name != "jobs"}))
    click.echo()
    _show_jobs(answer["jobs"], as_json=False)


def _show_jobs(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    if answer["items"]:
        print_table(_JOB_COLUMNS, [job_row(job) for job in answer["items"]])
    elif answer["cursor"] is None:
        click.echo("no such job")
    echo_more(answer)
