"""Options that several commands share."""

import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings import SETTINGS, Setting, Settings, load_settings
from holdfast.kernel.settings.kinds import Location

Command = Callable[..., None]
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]

_DATA: Final = "HOLDFAST_DATA"
_SQLITE_SUFFIXES: Final = (".db", ".sqlite", ".sqlite3")

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout, and nothing else.")
dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done without changing anything.")


def with_settings(*flags: str, even_invalid: bool = False) -> Callable[[Command], Command]:
    """Load the settings, set up logging, and call the command with the settings.

    The command gets ``--config`` and the named flags; an option takes its help text from its setting. With
    `even_invalid` the command is also called when a setting is invalid, with the error in place of the settings.
    """
    rows = [row for row in SETTINGS if row.flag in ("--config", *flags)]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**options: Any) -> None:
            texts = {row.name: options.pop(row.attribute) for row in rows}
            try:
                settings = load_settings(os.environ, _flags(texts))
            except BadSetting as error:
                if not even_invalid:
                    raise
                command(error, **options)
                return
            _start_logging(settings)
            if not even_invalid:  # `doctor`, which reports them itself
                _warn_of_mistyped()
            command(settings, **options)

        wrapped: Command = run
        for row in reversed(rows):
            help_text = f"{row.help_text} [{row.name}; default: {row.default_words}]"
            # As text: the setting's kind validates it, with the same message whatever the source of the value.
            wrapped = click.option(
                str(row.flag), row.attribute, metavar=row.flag_value, help=help_text, shell_complete=_completer(row)
            )(wrapped)
        return wrapped

    return decorate


def _flags(texts: Mapping[str, str | None]) -> dict[str, str]:
    """The flags that were given. --data may name the SQLite file itself: then its directory is the data directory."""
    given = {name: text for name, text in texts.items() if text is not None}
    path = Path(given.get(_DATA, ""))
    is_file = _DATA in given and (path.is_file() or (path.suffix in _SQLITE_SUFFIXES and not path.is_dir()))
    return {**given, _DATA: str(path.parent), "HOLDFAST_STORE": f"sqlite:{path}"} if is_file else given


def _completer(row: Setting) -> Completer | None:
    """The shell completes files and directories itself, for a setting that names one."""
    if not isinstance(row.kind, Location):
        return None
    kind = "dir" if row.flag_value == "DIR" else "file"
    return lambda _context, _parameter, incomplete: [CompletionItem(incomplete, type=kind)]


def _start_logging(settings: Settings) -> None:
    from holdfast.entrypoints.process_setup import start_logging

    start_logging(settings)


def _warn_of_mistyped() -> None:
    from holdfast.entrypoints.process_setup import warn_of_mistyped

    warn_of_mistyped(os.environ)
