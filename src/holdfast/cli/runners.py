"""`holdfast runners`: what profiles offer, and what becomes of a job's labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.jobs import installation, query
from holdfast.cli.options import as_json, dry_run, with_settings
from holdfast.cli.terminal.output import print_json, print_table, print_words

if TYPE_CHECKING:
    from holdfast.kernel.settings import Settings
    from holdfast.views.runner_classes import ClassView, TriedLabels, WaitingLabels

_NOTHING = "nothing is offered: {file} has neither [runners.profiles] nor [runners.bounds]; see docs/runners.md"


@click.group("runners")
def runners_commands() -> None:
    """Show which machines the labels of jobs ask for. Nothing is launched yet."""


@runners_commands.command("classes")
@click.option("--waiting", is_flag=True, help="Also show what the labels of waiting jobs become: of the oldest 200.")
@installation
@as_json
@with_settings("--data")
def classes_command(settings: Settings, *, waiting: bool, installation_id: str | None, as_json: bool) -> None:
    """Show what each profile offers, and to whom.

    The last row has the bounds for labels that name no profile, if there are any.
    """
    from holdfast.entrypoints.wiring.runners import runner_offer
    from holdfast.views.runner_classes import class_list

    offer, jobs = runner_offer(settings), None
    if waiting:
        jobs = query(settings, lambda tracking, texts: tracking.queue(texts), installation_id=installation_id).items
    found = class_list(offer, jobs)
    if as_json:
        print_json(found)
        return
    if found.items:
        columns = ["PROFILE", "VCPU", "GIB", "MARKET", "IMAGE", "DISK", "MAX", "FOR", "TYPES"]
        print_table(columns, [_class_row(each) for each in found.items])
    else:
        print_words(_NOTHING.format(file=settings.runners.file))
    if found.waiting:
        click.echo()
        print_table(["JOBS", "REPOSITORY", "LABELS", "BECOME"], [_waiting_row(each) for each in found.waiting])


@runners_commands.command("try", short_help="Explain what labels become, without launching.")
@click.argument("labels", metavar="LABELS", nargs=-1, required=True)
@click.option("--repository", metavar="OWNER/NAME", help="Whether jobs of this repository may use it.")
@as_json
@with_settings("--data")
def try_command(settings: Settings, *, labels: tuple[str, ...], repository: str | None, as_json: bool) -> None:
    """Explain what a job with these labels gets; nothing is launched.

    LABELS are separated by commas or spaces, as in runs-on. The exit code is 1 if no machine can serve them, and 0 if
    Holdfast serves them, or if they are for other runners, such as GitHub's own.
    """
    from holdfast.entrypoints.wiring.runners import runner_offer
    from holdfast.views.runner_classes import tried_labels

    tried = tried_labels(runner_offer(settings), split_labels(labels), repository)
    if as_json:
        print_json(tried)
    else:
        print_table(["ATTRIBUTE", "VALUE"], [*_tried_rows(tried)])
    if tried.verdict == "unservable":
        raise click.exceptions.Exit(ExitCode.FAILED)


@runners_commands.command("refresh", short_help="Replace the shipped table of instance types.")
@click.argument("saved", metavar="FILE", type=click.Path(path_type=Path))
@as_json
@dry_run
@with_settings("--data")
def refresh_command(settings: Settings, *, saved: Path, as_json: bool, dry_run: bool) -> None:
    """Replace the shipped table of instance types with EC2's current answer.

    FILE is the output of 'aws ec2 describe-instance-types'. The table is written to the data directory. Running
    processes read it at their next start.
    """
    from holdfast.entrypoints.wiring.runners import refresh_types

    found = refresh_types(settings, saved, write=not dry_run)
    if as_json:
        print_json(found)
        return
    would = "would be written" if dry_run else "written"
    compared = f"{len(found.added)} new, {len(found.gone)} gone since the shipped table"
    print_words(f"{found.types} instance types {would} to {found.file}: {compared}")


def split_labels(arguments: tuple[str, ...]) -> list[str]:
    """Labels from the command line. A compound label may itself have commas: what follows it as key=value is its."""
    from holdfast.runners.compound_label import is_compound

    labels: list[str] = []
    for argument in arguments:
        is_open = False
        for part in map(str.strip, argument.split(",")):
            if is_open and "=" in part and not is_compound(part.lower()):
                labels[-1] += f",{part}"
            elif part:
                labels.append(part)
                is_open = is_compound(part.lower())
    return labels


def _class_row(each: ClassView) -> list[object]:
    from holdfast.runners.explain import types_words

    machine = each.machine
    return [
        each.profile or "holdfast=…",
        machine.vcpus,
        machine.memory_gib,
        machine.market,
        f"{machine.image} ({machine.architecture})",
        machine.disk_gib,
        each.maximum,
        ", ".join(each.repositories) or "all",
        types_words(machine.types, most=2),
    ]


def _waiting_row(each: WaitingLabels) -> list[object]:
    from holdfast.runners.explain import types_words

    becomes = types_words(each.served_by.machine.types) if each.served_by else f"{_verdict(each)}: {each.reason}"
    return [each.jobs, each.repository, ", ".join(each.labels), becomes]


def _verdict(tried: TriedLabels) -> str:
    return tried.verdict.replace("_", " ")


def _tried_rows(tried: TriedLabels) -> Iterator[list[object]]:
    yield ["verdict", _verdict(tried)]
    yield ["labels", ", ".join(tried.labels)]
    if tried.served_by is None:
        yield ["reason", tried.reason]
        if tried.nearest:
            yield ["nearest", ", ".join(tried.nearest)]
        return
    served = tried.served_by
    yield ["profile", served.profile or "[runners.bounds]"]
    yield ["types", ", ".join(served.machine.types)]
    yield ["vCPUs, GiB", f"{served.machine.vcpus}, {served.machine.memory_gib}"]
    yield ["market", served.machine.market]
    yield ["image", f"{served.machine.image} ({served.machine.architecture}, {served.machine.launch_template})"]
    yield ["disk", f"{served.machine.disk_gib} GiB"]
    yield ["maximum", f"{served.maximum} machines of this profile"]
    yield ["registered with", f"the {served.scope}" + (f", group {served.group}" if served.group else "")]
    yield ["for", ", ".join(served.repositories) or "every repository"]
