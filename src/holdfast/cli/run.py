"""`holdfast run`: everything on one port. `holdfast serve`: the same without the loops."""

import click

from holdfast.cli.options import with_settings
from holdfast.kernel.settings import Settings


@click.command("run")
@with_settings("--host", "--port", "--data")
def run_command(settings: Settings) -> None:
    """Run Holdfast until it is told to stop.

    It ticks, takes in EC2's events and GitHub's webhooks (/webhooks/github), and serves the console at /, the API
    at /api, health checks at /healthz and /readyz, and metrics at /metrics.

    With SQLite it makes its directory and its tables by itself. With DynamoDB it only says what is missing:
    'holdfast tables create' makes them.
    """
    from holdfast.entrypoints.server import serve

    serve(settings, say=click.echo)


@click.command("serve", short_help="Serve webhooks, API and pages, without ticking.")
@with_settings("--host", "--port", "--data")
def serve_command(settings: Settings) -> None:
    """Serve webhooks, API and pages, and leave the ticks to another process.

    Several of these may run beside one 'holdfast run', on DynamoDB.
    """
    from holdfast.entrypoints.server import serve

    serve(settings, say=click.echo, loops=False)
