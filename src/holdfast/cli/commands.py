"""How a command ends: what it says on stderr, and its exit code.

An error of ours is one line and its own exit code (1 failed, 2 usage), and so is a mistake in the command line. What
nobody expected keeps its traceback. A reader that went away (``| head``) is handled by click, without a word.
"""

import sys
from collections.abc import Sequence
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from holdfast.cli.exit_codes import ExitCode
from holdfast.kernel.errors import BadSetting, HoldfastError
from holdfast.kernel.text import one_line


class Commands(click.Group):
    """The group at the root."""

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
            _say(_mistake(error))
            sys.exit(error.exit_code)
        except HoldfastError as error:
            # Only bad settings have several lines, one for each; elsewhere a line break came with a stranger's text.
            for line in str(error).split("\n") if isinstance(error, BadSetting) else [str(error)]:
                _say(line)
            sys.exit(error.exit_code)
        sys.exit(code if isinstance(code, int) else ExitCode.DONE)


def _mistake(error: click.ClickException) -> str:
    """What click says, with its best guess alone: it would name up to three, in the order of the alphabet."""
    guesses = getattr(error, "possibilities", None)
    return f"{error.message} Did you mean {guesses[0]!r}?" if guesses else error.format_message()


def _say(message: str) -> None:
    click.echo(f"holdfast: {one_line(message)}", err=True)
