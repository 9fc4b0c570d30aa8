"""`holdfast status`: what the cluster is doing, once or live."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.colours import Style
from holdfast.cli.layout import Paint, plain, table_lines
from holdfast.cli.options import as_json, with_settings
from holdfast.cli.output import print_json, safe_row, stdout_paint, terminal_width, words_lines
from holdfast.cli.tick_words import (
    NOTICE_COLUMNS,
    RULE_COLUMNS,
    notice_row,
    rule_row,
    style_of,
    to_seconds,
    what_was_done,
)
from holdfast.kernel.ids import cluster_words

if TYPE_CHECKING:
    from holdfast.kernel.settings import Settings

Data = Mapping[str, Any]


@click.command("status")
@click.option("--watch", is_flag=True, help="Go on looking, and show what changes; Ctrl-C ends it, with exit code 0.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    help="With --watch: how often to look.  [default: 2]",
)
@as_json
@with_settings("--data")
def status_command(settings: Settings, *, watch: bool, interval: float | None, as_json: bool) -> None:
    """Show what the cluster is doing.

    With --watch a terminal is redrawn in place. A pipe gets a block whenever something has changed, or with --json an
    object on a line of its own; that time passes is no change.
    """
    if watch:
        _watch(settings, interval or 2.0, as_json=as_json)
        return
    if interval is not None:
        raise click.UsageError("--interval is for --watch; without it there is one look")
    overview = _look(settings)
    if as_json:
        print_json(overview)
        return
    for line in status_lines(overview, terminal_width(), stdout_paint()):
        click.echo(line)


def _look(settings: Settings) -> dict[str, Any]:
    from contextlib import closing

    from holdfast.entrypoints.overview import cluster_overview
    from holdfast.entrypoints.policies import policy_of
    from holdfast.entrypoints.wiring import open_store
    from holdfast.entrypoints.world import world_clock
    from holdfast.kernel.ids import ClusterId

    with closing(open_store(settings, writable=False)) as store:
        name = ClusterId(settings.cluster_id)
        return cluster_overview(store, name, policy_of(settings), world_clock(settings).now())


def _watch(settings: Settings, interval_seconds: float, *, as_json: bool) -> None:
    from holdfast.cli.watch import Blocks, Screen, ended_by_signal, watch

    view: Screen | Blocks
    if as_json:
        view = Blocks(lambda overview: [json.dumps(overview)], substance, apart=False)
    elif not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        view = Blocks(lambda overview: status_lines(overview, None), substance)
    else:
        view = Screen(lambda overview: status_lines(overview, terminal_width(), stdout_paint()), interval_seconds)
    with ended_by_signal(), view as shown:
        watch(lambda: _look(settings), shown, interval_seconds)


def status_lines(overview: Data, width: int | None, paint: Paint = plain) -> Iterator[str]:
    """For people: as wide as their terminal, or a line for each thing."""
    count = "1 worker" if overview["workers"] == 1 else f"{overview['workers']} workers"
    yield from words_lines(f"{cluster_words(overview['cluster'])} has {count}", width, Style.TITLE, paint)
    for text, style in _facts(overview):
        yield from words_lines(text, width, style, paint, indent=2)
    last = overview["lastTick"]
    yield from _table(NOTICE_COLUMNS, [notice_row(notice) for notice in overview["notices"]], width, paint)
    yield from _table(RULE_COLUMNS, [rule_row(rule) for rule in last["rules"]] if last else [], width, paint)


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int | None, paint: Paint) -> Iterator[str]:
    if rows:
        yield ""
        for line in table_lines(columns, list(map(safe_row, rows)), None if width is None else width - 2, paint):
            yield f"  {line}"


def _facts(overview: Data) -> Iterator[tuple[str, Style]]:
    action, paused, last = overview["action"], overview["paused"], overview["lastTick"]
    if paused:
        why = f": {paused['reason']}" if paused["reason"] else ""
        yield f"paused by {paused['by']} since {to_seconds(paused['since'])}{why}", Style.WARNING
    if action:
        yield f"{action['kind']} {action['id']}: {action['phase']} for {action['seconds']} s", Style.BUSY
    else:
        yield "no action under way", Style.PLAIN
    yield f"last action completed: {to_seconds(overview['lastScaleAt'] or 'never')}", Style.PLAIN
    if overview["upFailures"]:
        until = to_seconds(overview["upBackoffUntil"] or "now")
        yield f"{overview['upFailures']} scale-ups failed in a row; next try after {until}", Style.BAD
    if failure := overview["lastFailure"]:
        yield f"newest failure {to_seconds(failure['at'])}: {failure['what']}: {failure['why']}", Style.BAD
    if last is None:
        yield "no tick since yesterday", Style.WARNING
    else:
        yield f"last tick {to_seconds(last['at'])}: {what_was_done(last)}", style_of(last)


def substance(overview: Data) -> object:
    """What makes one look differ from another: verdicts and not their numbers, what is under way and not for how long.

    Numbers change at every tick. Whoever reads a pipe wants to know when something happened.
    """
    action, last = overview["action"], overview["lastTick"]
    return (
        overview["workers"],
        None if action is None else {name: value for name, value in action.items() if name != "seconds"},
        overview["notices"],
        overview["lastScaleAt"],
        overview["upFailures"],
        overview["paused"],
        overview["lastFailure"],
        None if last is None else ([(rule["name"], rule["verdict"]) for rule in last["rules"]], last["stopped"]),
        None if last is None or not last["steps"] else (last["at"], [step["kind"] for step in last["steps"]]),
    )
