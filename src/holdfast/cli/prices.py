"""`holdfast prices`: what EC2's machines cost, as far as figures here say, and newer prices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import as_json, dry_run, with_settings
from holdfast.cli.output import print_json, print_table, print_words

if TYPE_CHECKING:
    from holdfast.kernel.settings import Settings


@click.group("prices")
def prices_commands() -> None:
    """EC2's prices, of which the cost of jobs and machines is made."""


@prices_commands.command("show")
@as_json
@with_settings("--data")
def show_command(settings: Settings, *, as_json: bool) -> None:
    """Show the prices that count, their date and whose word they are."""
    from holdfast.entrypoints.pricing import price_table

    shown = price_table(settings).shown()
    if as_json:
        print_json(shown)
        return
    print_words(f"of {shown['as_of']}, for {shown['region']}: {shown['source']}")
    print_words(f"from {shown['file'] or 'what is shipped with Holdfast'}; newer ones: holdfast prices refresh")
    rows = [[f"{item['large_usd_per_hour']:.5f}", item["family"]] for item in shown["items"]]
    print_table(["USD AN HOUR", "SIZE LARGE OF"], rows)


@prices_commands.command("refresh", short_help="Take AWS's prices of today instead of the shipped ones.")
@click.argument("listed", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--region", metavar="REGION", help="Of which region.  [default: the file's only one; without a file, boto3's]"
)
@as_json
@dry_run
@with_settings("--data")
def refresh_command(
    settings: Settings, *, listed: Path | None, region: str | None, as_json: bool, dry_run: bool
) -> None:
    """Take AWS's prices of today; from then on they count instead of the shipped ones.

    FILE is a saved list: the output of 'aws pricing get-products', or AWS's price list file of EC2 in a region. Without
    it AWS is asked, which needs the permission of deploy/iam/prices-policy.json.

    They are written to PRICES_FILE, or into the data directory. What runs already reads them when it starts next.
    """
    from holdfast.entrypoints.pricing import refresh

    found = refresh(settings, listed, region, write=not dry_run)
    if as_json:
        print_json(found)
        return
    would = "would be written" if dry_run else "written"
    print_words(f"{found['families']} prices of {found['as_of']} for {found['region']} {would} to {found['file']}")
    for change in found["changed"]:
        click.echo(f"{change['family']}.large: {change['from']:.5f} before, {change['to']:.5f} now")
