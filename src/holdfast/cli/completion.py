"""`holdfast completion`: the script with which a shell completes commands, options and their values."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from holdfast.cli.output import print_json

_NAME: Final = "holdfast"
_VARIABLE: Final = "_HOLDFAST_COMPLETE"


class _Fish(FishComplete):
    """click's, which cuts a help text at its first comma."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


_KINDS: Final[dict[str, type[ShellComplete]]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": _Fish}
_INSTALLED: Final = {
    "bash": 'Add to ~/.bashrc: eval "$(holdfast completion bash)"',
    "zsh": 'Add to ~/.zshrc, after compinit: eval "$(holdfast completion zsh)"',
    "fish": "Write it to ~/.config/fish/completions/holdfast.fish",
}


@click.group("completion", short_help="Print the script for completion in a shell.")
def completion_commands() -> None:
    """Print the script that completes commands, options and values in a shell."""


def _command(shell: str) -> click.Command:
    @click.option("--json", "as_json", is_flag=True, help="The script in one JSON object, with how to install it.")
    @click.pass_context
    def print_script(context: click.Context, *, as_json: bool) -> None:
        script = _KINDS[shell](context.find_root().command, {}, _NAME, _VARIABLE).source()
        if as_json:
            print_json({"shell": shell, "script": script, "install": _INSTALLED[shell]})
        else:
            click.echo(script, nl=False)

    about = f"Print the script for {shell}.\n\n{_INSTALLED[shell]}"
    return click.command(shell, help=about)(print_script)


for name in _KINDS:
    completion_commands.add_command(_command(name))
