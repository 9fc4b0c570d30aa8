"""`holdfast run`: everything on one port. `holdfast serve`: the same without the control loops."""

import click

from holdfast.cli.options import with_settings
from holdfast.kernel.settings import Settings


@click.command("run", short_help="Run control loops, webhooks, API and console.")
@with_settings("--host", "--port", "--data")
def run_command(settings: Settings) -> None:
    """Run everything in one process: control loops, webhooks, API and console.

    Scales the cluster, receives EC2 events and GitHub webhooks (/webhooks/github), and serves the console at /, the API
    at /api, health checks at /healthz and /readyz, and metrics at /metrics. Ctrl-C or SIGTERM stops it.

    On SQLite, the data directory and the tables are created automatically. On DynamoDB, create the tables first with
    'holdfast tables create'.
    """
    from holdfast.entrypoints.server import serve

    serve(settings, announce=click.echo)


@click.command("serve", short_help="Serve webhooks, API and console, without control loops.")
@with_settings("--host", "--port", "--data")
def serve_command(settings: Settings) -> None:
    """Serve webhooks, API and console, and leave the control loops to another process.

    On DynamoDB, any number of these can run beside one 'holdfast run'.
    """
    from holdfast.entrypoints.server import serve

    serve(settings, announce=click.echo, loops=False)
