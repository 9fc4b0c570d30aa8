"""`holdfast tick`, `explain`, `pause` and `resume`: run the cluster's control loop, and see why it acted."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from holdfast.cli.options import as_json, dry_run, with_settings
from holdfast.cli.terminal.colours import Style
from holdfast.cli.terminal.output import print_json, print_table, print_words
from holdfast.cli.tick_rows import RULE_COLUMNS, detail_lines, rule_row, tick_row
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings.own_commands import own_command

if TYPE_CHECKING:
    from holdfast.control.pause import PauseAnswer
    from holdfast.kernel.settings import Settings
    from holdfast.views.decisions import RuleResult

_AGE = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class TimeOrAge(click.ParamType[Callable[[Instant], Instant]]):
    """A time, or an age such as 30m, 6h or 2d, counted back from the time in the world."""

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Callable[[Instant], Instant]:
        if callable(value):
            return cast(Callable[[Instant], Instant], value)
        found = _AGE.fullmatch(str(value))
        if found:
            seconds = int(found[1]) * _UNITS[found[2]]
            return lambda now: now.plus(-seconds)
        try:
            instant = Instant.from_iso(str(value))
        except ValueError:
            self.fail(
                f"{value!r} is neither an age nor a time; for example 30m, 6h, 2d or 2026-01-15T10:00:00Z", param, ctx
            )
        return lambda _now: instant


@click.command("tick")
@as_json
@dry_run
@with_settings("--data")
def tick_command(settings: Settings, *, as_json: bool, dry_run: bool) -> None:
    """Run one tick: observe the cluster, decide and act.

    For schedulers such as cron. In the simulated world, one minute passes first.
    """
    from holdfast.entrypoints.cluster_commands import dry_run_tick, run_tick
    from holdfast.views.command_answers import CompletedTick

    ticked = dry_run_tick(settings) if dry_run else run_tick(settings)
    if as_json:
        print_json(ticked)
        return
    print_words(", ".join(f"{name} {value}" for name, value in ticked.seen.words().items()))
    print_table(RULE_COLUMNS, [rule_row(rule) for rule in ticked.rules])
    _print_details(ticked.rules)
    for step in ticked.steps:
        print_words(f"{'would do' if dry_run else 'done'}: {step.words()}", Style.BUSY)
    if not ticked.steps:
        click.echo("nothing to do")
    if isinstance(ticked, CompletedTick) and ticked.stopped:
        print_words(f"stopped: {ticked.stopped}", Style.BAD)


@click.command("explain", short_help="Show what each tick did, and why.")
@click.option(
    "--since",
    type=TimeOrAge(),
    default="1h",
    show_default=True,
    help="Start at this time, or age such as 30m, 6h or 2d.",
)
@as_json
@with_settings("--data")
def explain_command(settings: Settings, *, since: Callable[[Instant], Instant], as_json: bool) -> None:
    """Show what each tick observed and did, and which rules held it back."""
    from contextlib import closing

    from holdfast.entrypoints.wiring.stores import open_store
    from holdfast.entrypoints.wiring.world import world_clock
    from holdfast.views.decisions import all_decisions

    now = world_clock(settings).now()
    with closing(open_store(settings, writable=False)) as store:
        found = all_decisions(store, ClusterId(settings.cluster_id), since(now), now)
    if as_json:
        print_json(found)
    elif not found.items:
        click.echo(f"no ticks recorded since {since(now).iso_seconds()}")
    else:
        columns = ["AT", "WORKERS", "CPU", "PENDING", "WHAT IT DID, OR WHY NOT"]
        print_table(columns, [tick_row(tick) for tick in found.items])
        _print_details(found.items[-1].rules)


@click.command("pause")
@click.option("--reason", default="", help="Why it is paused; shown on the console and by 'holdfast status'.")
@as_json
@dry_run
@with_settings("--data")
def pause_command(settings: Settings, *, reason: str, as_json: bool, dry_run: bool) -> None:
    """Start no new actions until 'holdfast resume'. An action in progress still completes.

    If the cluster is already paused, the existing pause and its reason are kept.
    """
    from holdfast.entrypoints.cluster_commands import dry_run_pause, pause_cluster

    _print_answer(
        dry_run_pause(settings, would_pause=True) if dry_run else pause_cluster(settings, _user(), reason),
        as_json=as_json,
    )


@click.command("resume")
@as_json
@dry_run
@with_settings("--data")
def resume_command(settings: Settings, *, as_json: bool, dry_run: bool) -> None:
    """End a pause."""
    from holdfast.entrypoints.cluster_commands import dry_run_pause, resume_cluster

    answer = dry_run_pause(settings, would_pause=False) if dry_run else resume_cluster(settings, _user())
    _print_answer(answer, as_json=as_json)


@click.command("kill", short_help="Kill the daemon of a simulated world, to see it resume.")
@as_json
@dry_run
@with_settings("--data")
def kill_command(settings: Settings, *, as_json: bool, dry_run: bool) -> None:
    """Kill the daemon that uses this data, without any chance to clean up (SIGKILL).

    In the simulated world only: start 'holdfast run' again, and see that it resumes. Other copies of Holdfast, with
    other data, are not touched.
    """
    from holdfast.entrypoints.daemon_file import kill_daemon

    pid = kill_daemon(settings, dry_run=dry_run)
    if as_json:
        print_json({"pid": pid, "killed": not dry_run})
    else:
        again = own_command(settings, "run")
        print_words(f"would kill process {pid}" if dry_run else f"killed process {pid}; resume with: {again}")


def _print_details(rules: Sequence[RuleResult]) -> None:
    for line in detail_lines(rules):
        print_words(line, Style.WARNING)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # a container's user need not have a name


def _print_answer(answer: PauseAnswer, *, as_json: bool) -> None:
    print_json(answer) if as_json else print_words(answer.message)
