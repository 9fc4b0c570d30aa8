"""`holdfast status`: what the cluster is doing now, once or continuously."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import as_json, with_settings
from holdfast.cli.terminal.colours import Style
from holdfast.cli.terminal.layout import Paint, plain, table_lines
from holdfast.cli.terminal.output import print_json, safe_row, stdout_paint, terminal_width, words_lines
from holdfast.cli.tick_rows import (
    NOTICE_COLUMNS,
    RULE_COLUMNS,
    detail_lines,
    notice_row,
    rule_row,
    tick_style,
    to_seconds,
    what_was_done,
)
from holdfast.kernel.ids import cluster_words
from holdfast.kernel.settings.own_commands import own_command
from holdfast.kernel.text import some

if TYPE_CHECKING:
    from holdfast.kernel.settings import Settings
    from holdfast.views.cluster_status import ClusterStatus


@click.command("status")
@click.option("--watch", is_flag=True, help="Keep watching and show changes, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    help="How often --watch refreshes.  [default: 2]",
)
@as_json
@with_settings("--data")
def status_command(settings: Settings, *, watch: bool, interval: float | None, as_json: bool) -> None:
    """Show what the cluster is doing.

    With --watch, a terminal is redrawn in place. A pipe gets a block of text for each change, or with --json an object
    per line; times that merely advance do not count as a change.
    """
    if watch:
        _watch(settings, interval or 2.0, as_json=as_json)
        return
    if interval is not None:
        raise click.UsageError("--interval needs --watch")
    overview = _read_status(settings)
    if as_json:
        print_json(overview)
        return
    for line in status_lines(overview, terminal_width(), stdout_paint(), doctor=own_command(settings, "doctor")):
        click.echo(line)


def _read_status(settings: Settings) -> ClusterStatus:
    from contextlib import closing

    from holdfast.cluster.policy import policy_of
    from holdfast.entrypoints.wiring.stores import open_store
    from holdfast.entrypoints.wiring.world import world_clock
    from holdfast.kernel.ids import ClusterId
    from holdfast.views.cluster_status import cluster_status

    with closing(open_store(settings, writable=False)) as store:
        name = ClusterId(settings.cluster_id)
        return cluster_status(store, name, policy_of(settings), world_clock(settings).now())


def _watch(settings: Settings, interval_seconds: float, *, as_json: bool) -> None:
    from holdfast.cli.terminal.watch import Blocks, Screen, ended_by_signal, watch
    from holdfast.views.plain_json import json_object

    doctor = own_command(settings, "doctor")
    view: Screen[ClusterStatus] | Blocks[ClusterStatus]
    if as_json:
        view = Blocks(lambda overview: [json.dumps(json_object(overview))], significant_state, blank_lines=False)
    elif not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        view = Blocks(lambda overview: status_lines(overview, None, doctor=doctor), significant_state)
    else:
        view = Screen(
            lambda overview: status_lines(overview, terminal_width(), stdout_paint(), doctor=doctor), interval_seconds
        )
    with ended_by_signal(), view as shown:
        watch(lambda: _read_status(settings), shown, interval_seconds)


def status_lines(
    overview: ClusterStatus, width: int | None, paint: Paint = plain, *, doctor: str = "holdfast doctor"
) -> Iterator[str]:
    """The status as lines for people, wrapped to `width` if there is one."""
    count = "an unknown number of workers" if overview.workers is None else some(overview.workers, "worker")
    yield from words_lines(f"{cluster_words(overview.cluster)} has {count}", width, Style.TITLE, paint)
    for text, style in _facts(overview, doctor):
        yield from words_lines(text, width, style, paint, indent=2)
    last = overview.last_tick
    yield from _table(NOTICE_COLUMNS, [notice_row(notice) for notice in overview.notices], width, paint)
    yield from _table(RULE_COLUMNS, [rule_row(rule) for rule in last.rules] if last else [], width, paint)
    for line in detail_lines(last.rules) if last else ():
        yield from words_lines(line, width, Style.WARNING, paint, indent=2)


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int | None, paint: Paint) -> Iterator[str]:
    if rows:
        yield ""
        for line in table_lines(columns, list(map(safe_row, rows)), None if width is None else width - 2, paint):
            yield f"  {line}"


def _facts(overview: ClusterStatus, doctor: str) -> Iterator[tuple[str, Style]]:
    action, paused = overview.action, overview.paused
    if paused:
        why = f": {paused.reason}" if paused.reason else ""
        yield f"paused by {paused.by} since {to_seconds(paused.since)}{why}", Style.WARNING
    if action:
        yield f"{action.kind} {action.id}: {action.phase} for {action.seconds} s", Style.BUSY
    else:
        yield "no action in progress", Style.PLAIN
    yield f"last action completed: {to_seconds(overview.last_scale_at or 'never')}", Style.PLAIN
    if overview.up_failures:
        until = to_seconds(overview.up_backoff_until or "now")
        yield f"{overview.up_failures} scale-ups failed in a row; next attempt after {until}", Style.BAD
    yield from _ticks(overview, doctor)


def _ticks(overview: ClusterStatus, doctor: str) -> Iterator[tuple[str, Style]]:
    last, failed, failure = overview.last_tick, overview.failed_ticks, overview.last_failure
    if failed:  # as `holdfast explain` shows them
        yield f"last tick {to_seconds(failed.at)}: {what_was_done(failed)}", Style.BAD
    elif failure:
        yield f"last failure {to_seconds(failure.at)}: {failure.what}: {failure.why}", Style.BAD
    if last is not None:
        completed = "last tick that completed" if failed else "last tick"
        yield f"{completed} {to_seconds(last.at)}: {what_was_done(last)}", tick_style(last)
    elif failed:
        yield f"no tick completed in the last day; '{doctor}' checks everything that a tick needs", Style.WARNING
    else:
        yield f"no ticks in the last day; '{doctor}' checks everything that a tick needs", Style.WARNING


def significant_state(overview: ClusterStatus) -> object:
    """What counts as a change for --watch: verdicts without their numbers, the action without its age.

    Numbers change at every tick; a reader of a pipe wants to know when something happened.
    """
    from msgspec import structs

    action, last = overview.action, overview.last_tick
    return (
        overview.workers,
        None if action is None else structs.replace(action, seconds=0),
        overview.notices,
        overview.last_scale_at,
        overview.up_failures,
        overview.paused,
        overview.last_failure,
        overview.failed_ticks and overview.failed_ticks.stopped,
        None if last is None else ([(rule.name, rule.verdict) for rule in last.rules], last.stopped),
        None if last is None or not last.steps else (last.at, [step.kind for step in last.steps]),
    )
