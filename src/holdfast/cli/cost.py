"""`holdfast cost`: what the jobs' machines cost, and what the tracker itself does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.colours import Style
from holdfast.cli.job_words import echo_more, words
from holdfast.cli.jobs import ask, installation, paging, repository, span
from holdfast.cli.options import as_json, with_settings
from holdfast.cli.output import print_json, print_table, print_words
from holdfast.cli.tick_words import to_seconds

if TYPE_CHECKING:
    from holdfast.kernel.settings import Settings

GROUPS = ("repo", "workflow", "team", "pool", "day")


@click.command("cost", short_help="Show what the jobs' machines cost, the dearest first.")
@click.option("--by", type=click.Choice(GROUPS), help="What to add up by.  [default: repo]")
@click.option("--dynamodb", is_flag=True, help="What tracking itself costs on DynamoDB, for a million jobs.")
@installation
@repository
@span
@paging
@as_json
@with_settings("--data")
def cost_command(settings: Settings, *, dynamodb: bool, as_json: bool, **given: Any) -> None:
    """Show what the jobs' machines cost, the dearest first; thirty days back, unless asked."""
    if dynamodb:
        asked = [name for name, value in given.items() if value is not None]
        if asked:
            raise click.UsageError("--dynamodb is asked alone: it is measured, and does not depend on your jobs")
        _show_tracker_cost(settings, as_json=as_json)
        return
    answer = ask(settings, lambda tracking, texts: tracking.costs(texts), **given)
    if as_json:
        print_json(answer)
        return
    span = f"from {to_seconds(answer['since'])} to {to_seconds(answer['until'])}"
    print_words(f"{answer['jobs']} jobs {span}: {answer['usd']:.2f} USD", Style.TITLE)
    print_table(["USD", "JOBS", "", answer["by"].upper()], [_cost_row(group) for group in answer["items"]])
    print_words(
        f"EC2's prices are of {answer['prices_as_of']}: {answer['prices_source']}; newer ones: holdfast prices refresh"
    )
    echo_more(answer)


def _cost_row(group: Mapping[str, Any]) -> list[object]:
    notes = ["estimated"] if group["is_estimate"] else []
    notes += [f"without {group['unpriced']} of unknown price"] if group["unpriced"] else []
    return [f"{group['usd']:.4f}", group["jobs"], ", ".join(notes), group["name"]]


def _show_tracker_cost(settings: Settings, *, as_json: bool) -> None:
    from holdfast.adapters.system_clock import SystemClock
    from holdfast.entrypoints.tracker_cost import tracker_cost

    found = tracker_cost(settings, SystemClock())
    if as_json:
        print_json(found)
        return
    for row in found["items"]:
        kind = "with a deployment" if row["has_deployment"] else "of the normal kind"
        sizes = f"{row['size_bytes']} bytes with every attribute, {row['stored_bytes']} as it is stored"
        print_words(f"a job {kind}, {sizes}:")
        print_words(f"units by step: {words(row['by_step'])}", indent=2)
        print_words(f"units by table: {words(row['by_table'])}", indent=2)
    print_words(f"DynamoDB's prices are of {found['prices_as_of'] or 'your own'}: {found['prices_source']}")
    click.echo("USD for a million jobs, on demand and provisioned:")
    print_table(["UNITS A JOB", "ON DEMAND", "PROVISIONED", "DEPLOYMENT", "WHAT"], _compared_rows(found))


def _compared_rows(found: Mapping[str, Any]) -> list[list[object]]:
    rows: list[list[object]] = []
    for has_deployment in (False, True):
        ours = [{**row, "name": "this tracker, measured"} for row in found["items"]]
        for row in [*ours, *found["compared"]]:
            if row["has_deployment"] is has_deployment:
                dollars = [_amount(row["usd_on_demand"]), _amount(row["usd_provisioned"])]
                rows.append([row["units"] or "-", *dollars, words(has_deployment), row["name"]])
    return rows


def _amount(usd: float | None) -> str:
    return "-" if usd is None else f"{usd:.2f}"
