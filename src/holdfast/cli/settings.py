"""`holdfast settings`: every setting, its value and its source."""

import click

from holdfast.cli.options import as_json, with_settings
from holdfast.cli.terminal.output import print_json, print_table
from holdfast.kernel.settings import SETTINGS, Settings


@click.command("settings")
@as_json
@with_settings("--host", "--port", "--data")
def settings_command(settings: Settings, *, as_json: bool) -> None:
    """Show every setting, its value and its source.

    Sources, in order of precedence: flags, environment variables, holdfast.toml, defaults.
    """
    values = {row.name: getattr(settings, row.attribute) for row in SETTINGS}
    if not as_json:
        with_units = {row.name: f"{row.words(values[row.name])} {row.unit}".rstrip() for row in SETTINGS}
        rows = [(row.name, with_units[row.name], settings.sources[row.name], row.help_text) for row in SETTINGS]
        print_table(["NAME", "VALUE", "SOURCE", "DESCRIPTION"], rows)
        return
    items = [
        {
            "name": row.name,
            "value": row.public(values[row.name]),
            "source": settings.sources[row.name],
            "default": row.public_default,
            "unit": row.unit,
            "help": row.help_text,
        }
        for row in SETTINGS
    ]
    print_json({"items": items, "cursor": None})
