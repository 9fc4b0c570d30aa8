"""Options that several commands share."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import click
from click.shell_completion import CompletionItem

from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings import SETTINGS, Setting, Settings, load_settings
from holdfast.kernel.settings.kinds import Location

Command = Callable[..., None]
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else, on stdout.")
dry_run = click.option("--dry-run", is_flag=True, help="Tell what would be done, and change nothing.")


def with_settings(*flags: str, even_wrong: bool = False) -> Callable[[Command], Command]:
    """Load the settings, log as they say, and call the command with them.

    The command gets ``--config`` and the named flags; an option's text is that of the setting it stands for. With
    `even_wrong` it is called with what is wrong, where something is.
    """
    rows = [row for row in SETTINGS if row.flag in ("--config", *flags)]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**given: Any) -> None:
            texts = {row.name: given.pop(row.attribute) for row in rows}
            try:
                settings = load_settings(os.environ, {name: text for name, text in texts.items() if text is not None})
            except BadSetting as error:
                if not even_wrong:
                    raise
                command(error, **given)
                return
            _start_logging(settings)
            command(settings, **given)

        wrapped: Command = run
        for row in reversed(rows):
            help_text = f"{row.help_text} [{row.name}; default: {row.default_words}]"
            # As text: the setting's kind checks it, in the same words wherever the value came from.
            wrapped = click.option(
                str(row.flag), row.attribute, metavar=row.flag_value, help=help_text, shell_complete=_completer(row)
            )(wrapped)
        return wrapped

    return decorate


def _completer(row: Setting) -> Completer | None:
    """The shell's own names of files and directories, for a setting that is one."""
    if not isinstance(row.kind, Location):
        return None
    kind = "dir" if row.flag_value == "DIR" else "file"
    return lambda _context, _parameter, incomplete: [CompletionItem(incomplete, type=kind)]


def _start_logging(settings: Settings) -> None:
    from holdfast.entrypoints.logs import start_logging

    start_logging(settings)
