"""`holdfast status`, `explain`, `pause` and `resume`: what the cluster does, and why."""

from __future__ import annotations

import getpass
import re
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import as_json, dry_run, with_settings
from holdfast.cli.output import print_json, print_table
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant

if TYPE_CHECKING:
    from holdfast.kernel.settings import Settings

_SPAN = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Since(click.ParamType[Instant]):
    """How far back: 30m, 6h, 2d, or a time."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Instant:
        from holdfast.adapters.system_clock import SystemClock

        if isinstance(value, Instant):
            return value
        found = _SPAN.fullmatch(str(value))
        if found:
            return SystemClock().now().plus(-int(found[1]) * _UNITS[found[2]])
        try:
            return Instant.from_iso(str(value))
        except ValueError:
            self.fail(
                f"{value!r} is neither a span nor a time; for example 30m, 6h, 2d or 2026-01-15T10:00:00Z", param, ctx
            )


@click.command("status")
@as_json
@with_settings("--data")
def status_command(settings: Settings, *, as_json: bool) -> None:
    """Show what the cluster is doing."""
    from contextlib import closing

    from holdfast.adapters.system_clock import SystemClock
    from holdfast.entrypoints.overview import cluster_overview
    from holdfast.entrypoints.wiring import open_store

    with closing(open_store(settings, writable=False)) as store:
        overview = cluster_overview(store, ClusterId(settings.cluster_id), SystemClock().now())
    if as_json:
        print_json(overview)
        return
    for line in _status_lines(overview):
        click.echo(line)


@click.command("explain")
@click.option("--since", type=Since(), default="1h", show_default=True, help="How far back: 30m, 6h, 2d, or a time.")
@as_json
@with_settings("--data")
def explain_command(settings: Settings, *, since: Instant, as_json: bool) -> None:
    """Show what each tick saw, what each rule said, and what was done or not, and why."""
    from contextlib import closing

    from holdfast.adapters.system_clock import SystemClock
    from holdfast.entrypoints.overview import decisions
    from holdfast.entrypoints.wiring import open_store

    with closing(open_store(settings, writable=False)) as store:
        found = decisions(store, ClusterId(settings.cluster_id), since, SystemClock().now())
    if as_json:
        print_json({"items": found, "cursor": None})
    elif not found:
        click.echo(f"no tick was logged since {since.iso_seconds()}")
    else:
        print_table(
            ["AT", "WORKERS", "CPU", "PENDING", "WHAT WAS DONE, OR WHY NOT"], [_tick_row(tick) for tick in found]
        )


@click.command("pause")
@click.option("--reason", default="", help="Why; shown to whoever asks.")
@as_json
@dry_run
@with_settings("--data")
def pause_command(settings: Settings, *, reason: str, as_json: bool, dry_run: bool) -> None:
    """Begin nothing new until 'holdfast resume'. What is under way is brought to its end."""
    from contextlib import closing

    from holdfast.adapters.system_clock import SystemClock
    from holdfast.cluster.pause import Pause, set_pause
    from holdfast.entrypoints.wiring import open_store

    if not dry_run:
        with closing(open_store(settings)) as store:
            set_pause(store, ClusterId(settings.cluster_id), Pause(getpass.getuser(), SystemClock().now(), reason))
    _tell_switch(settings, "would pause" if dry_run else "paused", as_json=as_json, done=not dry_run)


@click.command("resume")
@as_json
@dry_run
@with_settings("--data")
def resume_command(settings: Settings, *, as_json: bool, dry_run: bool) -> None:
    """End a pause."""
    from contextlib import closing

    from holdfast.cluster.pause import end_pause
    from holdfast.entrypoints.wiring import open_store

    if not dry_run:
        with closing(open_store(settings)) as store:
            end_pause(store, ClusterId(settings.cluster_id))
    _tell_switch(settings, "would resume" if dry_run else "resumed", as_json=as_json, done=not dry_run)


def _tell_switch(settings: Settings, words: str, *, as_json: bool, done: bool) -> None:
    if as_json:
        print_json({"cluster": settings.cluster_id, "step": words, "done": done})
    else:
        click.echo(f"{words} cluster {settings.cluster_id}")


def _status_lines(overview: dict[str, Any]) -> list[str]:
    action, paused, last = overview["action"], overview["paused"], overview["lastTick"]
    lines = [f"cluster {overview['cluster']}: {overview['workers']} workers"]
    if paused:
        lines.append(
            f"  paused by {paused['by']} since {paused['since']}{': ' if paused['reason'] else ''}{paused['reason']}"
        )
    if action:
        lines.append(f"  {action['kind']} {action['id']}: {action['phase']} for {action['seconds']} s")
    else:
        lines.append("  no action under way")
    lines.append(f"  last action completed: {overview['lastScaleAt'] or 'never'}")
    if overview["upFailures"]:
        lines.append(
            f"  {overview['upFailures']} scale-ups failed in a row; next try after {overview['upBackoffUntil']}"
        )
    if last is None:
        lines.append("  no tick in the last hour")
    else:
        lines.append(f"  last tick {last['at']}: {_what_was_done(last)}")
        lines += [f"    {rule['name']}: {rule['verdict']} ({rule['value']}; {rule['limit']})" for rule in last["rules"]]
    return lines


def _tick_row(tick: dict[str, Any]) -> list[str]:
    seen = tick["seen"]
    return [tick["at"], seen.get("workers", ""), seen.get("cpu", ""), seen.get("pending", ""), _what_was_done(tick)]


def _what_was_done(tick: dict[str, Any]) -> str:
    if tick["stopped"]:
        return f"stopped: {tick['stopped']}"
    if tick["steps"]:
        return "; ".join(f"{step['kind']}: {step['because']}" for step in tick["steps"])
    return f"nothing: {', '.join(_missing(tick['rules'])) or 'all is as it should be'}"


def _missing(rules: list[dict[str, Any]]) -> list[str]:
    """The rules that kept it from going up, and those that kept it from going down."""
    return [f"not {rule['name']} ({rule['value']})" for rule in rules if rule["verdict"] != "yes"]
