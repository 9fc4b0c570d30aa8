"""`holdfast cost`: what jobs cost, and what tracking them costs on DynamoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.job_rows import echo_counted, words
from holdfast.cli.jobs import installation, paging, query, repository, span
from holdfast.cli.options import as_json, with_settings
from holdfast.cli.terminal.colours import Style
from holdfast.cli.terminal.output import print_json, print_table, print_words
from holdfast.cli.tick_rows import to_seconds
from holdfast.kernel.settings.own_commands import own_command
from holdfast.kernel.text import dollars

if TYPE_CHECKING:
    from decimal import Decimal

    from holdfast.kernel.settings import Settings
    from holdfast.views.job_types import CostRow
    from holdfast.views.tracker_cost import ComparedTracker, MeasuredJob, TrackerCost

GROUPS = ("repo", "workflow", "team", "pool", "day")


@click.command("cost", short_help="Show what jobs cost, most expensive first.")
@click.option("--by", type=click.Choice(GROUPS), help="Group costs by this.  [default: repo]")
@click.option("--dynamodb", is_flag=True, help="Show what tracking a million jobs costs on DynamoDB.")
@installation
@repository
@span
@paging
@as_json
@with_settings("--data")
def cost_command(settings: Settings, *, dynamodb: bool, as_json: bool, **filters: Any) -> None:
    """Show what the machines of jobs cost, most expensive first, over the last 30 days by default."""
    if dynamodb:
        if any(value is not None for value in filters.values()):
            raise click.UsageError("--dynamodb takes no other options: the measurement does not depend on your jobs")
        _show_tracker_cost(settings, as_json=as_json)
        return
    answer = query(settings, lambda tracking, texts: tracking.costs(texts), **filters)
    if as_json:
        print_json(answer)
        return
    span = f"from {to_seconds(answer.since)} to {to_seconds(answer.until)}"
    print_words(f"{answer.jobs} jobs {span}: {dollars(answer.usd)} USD", Style.TITLE)
    print_table(["USD", "JOBS", "", answer.by.upper()], [_cost_row(group) for group in answer.items])
    update = own_command(settings, "prices refresh")
    print_words(f"EC2 prices as of {answer.prices_as_of}: {answer.prices_source}; to update: {update}")
    echo_counted(answer)


def _cost_row(group: CostRow) -> list[object]:
    notes = ["estimated"] if group.is_estimate else []
    notes += [f"excludes {group.unpriced} with unknown price"] if group.unpriced else []
    return [dollars(group.usd), group.jobs, ", ".join(notes), group.name]


def _show_tracker_cost(settings: Settings, *, as_json: bool) -> None:
    from holdfast.adapters.system_clock import SystemClock
    from holdfast.views.tracker_cost import tracker_cost

    found = tracker_cost(settings, SystemClock())
    if as_json:
        print_json(found)
        return
    for row in found.items:
        kind = "a job with a deployment" if row.has_deployment else "an ordinary job"
        sizes = f"{row.size_bytes} bytes with every attribute, {row.stored_bytes} bytes stored"
        print_words(f"{kind}, {sizes}:")
        print_words(f"units by step: {words(row.by_step)}", indent=2)
        print_words(f"units by table: {words(row.by_table)}", indent=2)
    print_words(f"DynamoDB prices as of {found.prices_as_of or 'your settings'}: {found.prices_source}")
    click.echo("USD per million jobs, on demand and provisioned:")
    print_table(["UNITS PER JOB", "ON DEMAND", "PROVISIONED", "DEPLOYMENT", "WHAT"], _compared_rows(found))


def _compared_rows(found: TrackerCost) -> list[list[object]]:
    rows: list[list[object]] = []
    for has_deployment in (False, True):
        rows += [
            _compared_row(row, "this tracker (measured)") for row in found.items if row.has_deployment is has_deployment
        ]
        rows += [_compared_row(row, row.name) for row in found.compared if row.has_deployment is has_deployment]
    return rows


def _compared_row(row: MeasuredJob | ComparedTracker, name: str) -> list[object]:
    units = f"{row.units:g}" if row.units else "-"
    return [units, _amount(row.usd_on_demand), _amount(row.usd_provisioned), words(row.has_deployment), name]


def _amount(usd: Decimal | None) -> str:
    return "-" if usd is None else dollars(usd)
