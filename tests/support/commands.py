"""Every command, and the arguments with which it has something to show."""

from collections.abc import Iterator
from typing import Final

import click

from tests.payloads import JOB_ID, RUN_ID

DEPLOYMENT: Final = 1_600_000_001
# They run until they are stopped: there is nothing to show, and their log is JSON by LOG_FORMAT.
ENDLESS: Final = {"run", "serve"}
ABOUT: Final = {"help", "version"}  # as --help and --version, which are text for people
# What is typed after each command, so that it has something to show.
ARGUMENTS: Final = {
    "tick": "--dry-run",
    "status": "",
    "explain": "",
    "pause": "--dry-run",
    "resume": "--dry-run",
    "jobs list": "",
    "jobs show": str(JOB_ID),
    "jobs events": str(JOB_ID),
    "jobs explain": str(JOB_ID),
    "jobs stuck": "",
    "jobs stats": "",
    "jobs recount": "--dry-run",
    "runs show": str(RUN_ID),
    "deployments show": str(DEPLOYMENT),
    "cost": "",
    "prices show": "",
    "prices refresh": "list.json --dry-run",
    "runners classes": "",
    "runners try": "ubuntu-latest",
    "runners refresh": "types.json --dry-run",
    "doctor": "",
    "settings": "",
    "simulate": "--scenario list",
    "tables create": "--dry-run",
    "tables check": "",
    "tables describe": "",
    "completion bash": "",
    "completion zsh": "",
    "completion fish": "",
}
# There is no bucket here to migrate from, and no daemon to kill: they say so, and print nothing.
REFUSED: Final = {
    "kill",
    "tables rebuild-index",
    *(f"migrate {name}" for name in ("status", "backfill", "compare", "advance", "back", "cleanup")),
}


def leaves(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        words = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from leaves(command, words)
        elif words not in ABOUT:
            yield words, command
