"""`holdfast tick`, `explain`, `pause` and `resume`: what the cluster does, and why."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import click

from holdfast.cli.colours import Style
from holdfast.cli.options import as_json, dry_run, with_settings
from holdfast.cli.output import print_json, print_table, print_words
from holdfast.cli.tick_words import RULE_COLUMNS, rule_row, tick_row
from holdfast.cluster.glance import glance_words
from holdfast.cluster.steps import step_words
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant

if TYPE_CHECKING:
    from holdfast.kernel.settings import Settings

_SPAN = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Since(click.ParamType[Callable[[Instant], Instant]]):
    """How far back: 30m, 6h, 2d, or a time. It depends on what time it is in the world."""

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Callable[[Instant], Instant]:
        if callable(value):
            return cast(Callable[[Instant], Instant], value)
        found = _SPAN.fullmatch(str(value))
        if found:
            seconds = int(found[1]) * _UNITS[found[2]]
            return lambda now: now.plus(-seconds)
        try:
            instant = Instant.from_iso(str(value))
        except ValueError:
            self.fail(
                f"{value!r} is neither a span nor a time; for example 30m, 6h, 2d or 2026-01-15T10:00:00Z", param, ctx
            )
        return lambda _now: instant


@click.command("tick")
@as_json
@dry_run
@with_settings("--data")
def tick_command(settings: Settings, *, as_json: bool, dry_run: bool) -> None:
    """Look once, decide, and act; what a schedule calls. In the simulated world a minute passes first."""
    from holdfast.entrypoints.once import look_once, tick_once

    ticked = look_once(settings) if dry_run else tick_once(settings)
    if as_json:
        print_json(ticked)
        return
    print_words(", ".join(f"{name} {value}" for name, value in glance_words(ticked["seen"]).items()))
    print_table(RULE_COLUMNS, [rule_row(rule) for rule in ticked["rules"]])
    for step in ticked["steps"]:
        print_words(f"{'would do' if dry_run else 'done'}: {step_words(step)}", Style.BUSY)
    if not ticked["steps"]:
        click.echo("nothing to do" if dry_run else "nothing was done")
    if ticked.get("stopped"):
        print_words(f"stopped: {ticked['stopped']}", Style.BAD)


@click.command("explain", short_help="Show what each tick saw and did, or why not.")
@click.option("--since", type=Since(), default="1h", show_default=True, help="How far back: 30m, 6h, 2d, or a time.")
@as_json
@with_settings("--data")
def explain_command(settings: Settings, *, since: Callable[[Instant], Instant], as_json: bool) -> None:
    """Show what each tick saw, what each rule said, and what was done or not, and why."""
    from contextlib import closing

    from holdfast.entrypoints.overview import all_decisions
    from holdfast.entrypoints.wiring import open_store
    from holdfast.entrypoints.world import world_clock

    now = world_clock(settings).now()
    with closing(open_store(settings, writable=False)) as store:
        found = all_decisions(store, ClusterId(settings.cluster_id), since(now), now)
    if as_json:
        print_json({"items": found, "cursor": None})
    elif not found:
        click.echo(f"no tick was logged since {since(now).iso_seconds()}")
    else:
        print_table(
            ["AT", "WORKERS", "CPU", "PENDING", "WHAT WAS DONE, OR WHY NOT"], [tick_row(tick) for tick in found]
        )


@click.command("pause")
@click.option("--reason", default="", help="Why; shown to whoever asks.")
@as_json
@dry_run
@with_settings("--data")
def pause_command(settings: Settings, *, reason: str, as_json: bool, dry_run: bool) -> None:
    """Begin nothing new until 'holdfast resume'. What is under way is brought to its end.

    A pause that stands already keeps its reason, and is told.
    """
    from holdfast.entrypoints.switches import looked_at, pause_cluster

    _tell(
        looked_at(settings, would_pause=True) if dry_run else pause_cluster(settings, _user(), reason), as_json=as_json
    )


@click.command("resume")
@as_json
@dry_run
@with_settings("--data")
def resume_command(settings: Settings, *, as_json: bool, dry_run: bool) -> None:
    """End a pause. Where there is none, that is told."""
    from holdfast.entrypoints.switches import looked_at, resume_cluster

    answer = looked_at(settings, would_pause=False) if dry_run else resume_cluster(settings, _user())
    _tell(answer, as_json=as_json)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"  # a container's user need not have a name


def _tell(answer: Mapping[str, Any], *, as_json: bool) -> None:
    print_json(answer) if as_json else print_words(answer["told"])
