"""The `holdfast` command. It must start quickly, so each command imports what it needs when it runs."""

import click

from holdfast.cli.cluster import explain_command, kill_command, pause_command, resume_command, tick_command
from holdfast.cli.completion import completion_commands
from holdfast.cli.cost import cost_command
from holdfast.cli.doctor import doctor_command
from holdfast.cli.exit_codes import RootGroup
from holdfast.cli.jobs import deployments_commands, jobs_commands, runs_commands
from holdfast.cli.migrate import migrate_commands
from holdfast.cli.prices import prices_commands
from holdfast.cli.run import run_command, serve_command
from holdfast.cli.runners import runners_commands
from holdfast.cli.settings import settings_command
from holdfast.cli.simulate import simulate_command
from holdfast.cli.status import status_command
from holdfast.cli.tables import tables_commands


def _show_version(context: click.Context, _option: click.Parameter, requested: bool) -> None:  # noqa: FBT001  click's call
    if not requested or context.resilient_parsing:
        return
    _print_version()
    context.exit()


def _print_version() -> None:
    from holdfast.entrypoints.process_setup import installed_version

    click.echo(f"holdfast {installed_version()}")


@click.command("version")
def version_command() -> None:
    """Show the version, as --version does."""
    _print_version()


@click.command("help", short_help="Show the help of a command.")
@click.argument("words", metavar="[COMMAND]", nargs=-1)
@click.pass_context
def help_command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, as its --help does; without a command, list all of them."""
    shown = context.find_root()
    for word in words:
        group = shown.command
        # With the words so far, a group resolves the next one, and suggests a close name for a wrong one.
        if not isinstance(group, click.Group):
            raise click.UsageError(f"'{shown.command_path}' has no commands.")
        name, command, _ = group.resolve_command(shown, [word])
        if command is None:
            raise click.UsageError(f"No such command {word!r}.")
        shown = click.Context(command, info_name=name, parent=shown)
    click.echo(shown.get_help())


@click.group("holdfast", cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def cli() -> None:
    """Autoscale EC2 workers for a K3s cluster, and track GitHub Actions jobs."""


for command in (
    run_command,
    serve_command,
    tick_command,
    status_command,
    explain_command,
    pause_command,
    resume_command,
    kill_command,
    jobs_commands,
    runs_commands,
    deployments_commands,
    runners_commands,
    cost_command,
    prices_commands,
    doctor_command,
    settings_command,
    simulate_command,
    tables_commands,
    migrate_commands,
    completion_commands,
    help_command,
    version_command,
):
    cli.add_command(command)


def main() -> None:
    cli(prog_name="holdfast")


if __name__ == "__main__":
    main()
