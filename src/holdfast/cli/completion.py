"""`holdfast completion`: scripts for shell completion of commands, options and values."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from holdfast.cli.terminal.output import print_json

_NAME: Final = "holdfast"
_VARIABLE: Final = "_HOLDFAST_COMPLETE"


class _Fish(FishComplete):
    """Click's script cuts a help text at its first comma."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


_KINDS: Final[dict[str, type[ShellComplete]]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": _Fish}
_INSTALLED: Final = {
    "bash": 'Add to ~/.bashrc: eval "$(holdfast completion bash)"',
    "zsh": 'Add to ~/.zshrc, after compinit: eval "$(holdfast completion zsh)"',
    "fish": "Save it as ~/.config/fish/completions/holdfast.fish",
}


@click.group("completion", short_help="Print the shell completion script.")
def completion_commands() -> None:
    """Print a script that completes commands, options and values in your shell."""


def _command(shell: str) -> click.Command:
    @click.option("--json", "as_json", is_flag=True, help="Print the script and how to install it as a JSON object.")
    @click.pass_context
    def print_script(context: click.Context, *, as_json: bool) -> None:
        script = _KINDS[shell](context.find_root().command, {}, _NAME, _VARIABLE).source()
        if as_json:
            print_json({"shell": shell, "script": script, "install": _INSTALLED[shell]})
        else:
            click.echo(script, nl=False)

    about = f"Print the completion script for {shell}.\n\n{_INSTALLED[shell]}"
    return click.command(shell, help=about)(print_script)


for name in _KINDS:
    completion_commands.add_command(_command(name))
