"""`holdfast run`: everything on one port."""

import click

from holdfast.cli.options import with_settings
from holdfast.kernel.settings import Settings


@click.command("run")
@with_settings("--host", "--port", "--data")
def run_command(settings: Settings) -> None:
    """Run Holdfast until it is told to stop.

    One port serves the status page at /, health checks at /healthz and /readyz, and metrics at /metrics.

    With SQLite it makes its directory and its tables by itself. With DynamoDB it only says what is missing:
    'holdfast tables create' makes them.
    """
    from holdfast.entrypoints.server import serve

    serve(settings, say=click.echo)
