"""`holdfast prices`: the EC2 prices used for cost figures, and how to update them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import as_json, dry_run, with_settings
from holdfast.cli.terminal.output import print_json, print_table, print_words
from holdfast.kernel.settings.own_commands import own_command

if TYPE_CHECKING:
    from holdfast.kernel.settings import Settings


@click.group("prices")
def prices_commands() -> None:
    """Show and update the EC2 prices used for cost figures."""


@prices_commands.command("show")
@as_json
@with_settings("--data")
def show_command(settings: Settings, *, as_json: bool) -> None:
    """Show the prices in use, their date and their source."""
    from holdfast.entrypoints.wiring.prices import price_table

    shown = price_table(settings).shown()
    if as_json:
        print_json(shown)
        return
    print_words(f"EC2 prices as of {shown['as_of']} for {shown['region']}: {shown['source']}")
    update = own_command(settings, "prices refresh")
    print_words(f"from {shown['file'] or 'the prices shipped with Holdfast'}; to update: {update}")
    rows = [[f"{item['large_usd_per_hour']:.5f}", item["family"]] for item in shown["items"]]
    print_table(["USD PER HOUR", "FAMILY (SIZE LARGE)"], rows)


@prices_commands.command("refresh", short_help="Replace the shipped prices with current AWS prices.")
@click.argument("listed", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--region", metavar="REGION", help="AWS region.  [default: the only region in FILE; without FILE, boto3's region]"
)
@as_json
@dry_run
@with_settings("--data")
def refresh_command(
    settings: Settings, *, listed: Path | None, region: str | None, as_json: bool, dry_run: bool
) -> None:
    """Replace the shipped EC2 prices with current ones from AWS.

    FILE is a saved price list: the output of 'aws pricing get-products', or the EC2 price list file of one region.
    Without FILE, prices are fetched from AWS, which needs the permissions in deploy/iam/prices-policy.json.

    The prices are written to PRICES_FILE, or to the data directory. Running processes read them at their next start.
    """
    from holdfast.entrypoints.wiring.prices import refresh

    found = refresh(settings, listed, region, write=not dry_run)
    if as_json:
        print_json(found)
        return
    would = "would be written" if dry_run else "written"
    print_words(f"{found['families']} prices of {found['as_of']} for {found['region']} {would} to {found['file']}")
    for change in found["changed"]:
        click.echo(f"{change['family']}.large: {change['from']:.5f} → {change['to']:.5f}")
