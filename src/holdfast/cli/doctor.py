"""`holdfast doctor`: check everything that Holdfast needs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.options import as_json, with_settings
from holdfast.cli.terminal.colours import Style
from holdfast.cli.terminal.layout import Paint, wrapped
from holdfast.cli.terminal.output import print_json, stdout_paint, terminal_width

if TYPE_CHECKING:
    from holdfast.entrypoints.doctor import Finding
    from holdfast.kernel.errors import BadSetting
    from holdfast.kernel.settings import Settings

_STYLES: Final = {
    "ok": Style.GOOD,
    "warning": Style.WARNING,
    "failed": Style.BAD,
    "not asked": Style.FAINT,
}
_OUTCOME: Final = max(map(len, _STYLES))


@click.command("doctor", short_help="Check that Holdfast has everything it needs.")
@as_json
@click.option(
    "--time-limit",
    type=click.FloatRange(0.1, 600),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for each check; a check that takes longer fails.",
)
@with_settings("--data", even_invalid=True)
@click.pass_context
def doctor_command(
    context: click.Context, settings: Settings | BadSetting, *, as_json: bool, time_limit: float
) -> None:
    """Check that Holdfast has everything it needs, and show how to fix what is wrong.

    Checks the settings, the store and its tables, missing AWS permissions, subnets and launch template, SSM and SQS,
    Kubernetes and its permissions, Prometheus data, the GitHub App and its webhooks, and the clock. Nothing is changed:
    requests to EC2 are dry runs. The exit code is 1 if a check failed; warnings do not change it.
    """
    from holdfast.adapters.system_clock import SystemClock
    from holdfast.entrypoints.doctor import FindingOutcome, diagnose, report_json, summary

    found = []
    for finding in diagnose(settings, os.environ, SystemClock(), time_limit):
        found.append(finding)
        if not as_json:
            _print(finding)
    counts = summary(found)
    if as_json:
        print_json(report_json(settings, found))
    else:
        click.echo(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    context.exit(ExitCode.FAILED if counts[FindingOutcome.FAILED] else ExitCode.DONE)


def _print(finding: Finding) -> None:
    for line in finding_lines(finding, terminal_width(), stdout_paint()):
        click.echo(line)


def finding_lines(finding: Finding, width: int | None, paint: Paint) -> list[str]:
    """The finding, and its fix below; without a terminal, both on one line."""
    style = _STYLES[finding.outcome]
    start = f"{paint(finding.outcome, style)}{' ' * (_OUTCOME - len(finding.outcome))}  "
    if width is None:
        fix = f"; fix: {finding.fix}" if finding.fix else ""
        return [f"{start}{finding.check}: {finding.seen}{fix}"]
    indent = " " * (_OUTCOME + 2)
    room = max(width - len(indent), 20)
    first, *rest = wrapped(f"{finding.check}: {finding.seen}", room)
    title = paint(finding.check, Style.TITLE) if first.startswith(finding.check) else ""
    seen = [start + title + (first.removeprefix(finding.check) if title else first), *(indent + line for line in rest)]
    to_do = wrapped(f"→ {finding.fix}", room) if finding.fix else []
    return seen + [indent + line for line in to_do]
