"""How a command ends: its exit code, and the line it prints on stderr when it fails.

One of our own errors, or a mistake in the command line, prints one line and has its own exit code. An unexpected error
keeps its traceback. Click handles a closed pipe (``| head``) silently. docs/terminal.md has the table of exit codes; a
test compares the two.
"""

import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import click
from click.exceptions import NoArgsIsHelpError

from holdfast.kernel.errors import BadSetting, HoldfastError
from holdfast.kernel.text import one_line


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130  # 128 + SIGINT, as shells count


_LISTED_MOST: Final = 10
# Click names the type of an option; a person reads a number.
_PLAINER: Final = {
    "is not a valid integer range": "is not a whole number",
    "is not a valid integer": "is not a whole number",
    "is not a valid float range": "is not a number",
    "is not a valid float": "is not a number",
}


class RootGroup(click.Group):
    """The `holdfast` command itself: turns errors into a line on stderr and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002  click's signature
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.Abort:
            sys.exit(ExitCode.INTERRUPTED)
        except NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            _print_error(_usage_message(error))
            sys.exit(error.exit_code)
        except HoldfastError as error:
            # Only bad settings span several lines, one per setting. A line break elsewhere came from foreign text.
            for line in str(error).split("\n") if isinstance(error, BadSetting) else [str(error)]:
                _print_error(line)
            sys.exit(error.exit_code)
        sys.exit(code if isinstance(code, int) else ExitCode.DONE)


def _usage_message(error: click.ClickException) -> str:
    """Click's message with its best suggestion only: click would list up to three, in alphabetical order."""
    guesses = getattr(error, "possibilities", None)
    if guesses:
        return f"{error.message} Did you mean {guesses[0]!r}?"
    message = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    group = context.command if context else None
    if context and isinstance(group, click.Group) and message.startswith("No such command"):
        names = f" '{context.command_path}' has: {', '.join(group.commands)}."
        return message + (names if len(group.commands) <= _LISTED_MOST else "")
    for clicks, ours in _PLAINER.items():
        message = message.replace(clicks, ours)
    return message


def _print_error(message: str) -> None:
    click.echo(f"holdfast: {one_line(message)}", err=True)
