"""The output of commands that pages show. A block that this writes stands below a comment such as

    <!-- output of: holdfast status | after 3 ticks | first 9 lines -->
    <!-- output of: holdfast runners try gpu | with docs/examples/runners.toml | exit code 1 -->

The command runs in a simulated world that is that many ticks old, with that file as its holdfast.toml; `make help` runs
as it is.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
LONGEST_LINE: Final = 116

_BLOCK: Final = re.compile(r"(?P<marker><!-- output of: (?P<request>[^\n]+?) -->\n+)```text\n.*?```", re.DOTALL)
_REQUEST: Final = re.compile(
    r"(?P<command>holdfast [^|]+?|make help)"
    r"(?: \| with (?P<config>[\w/.-]+))?(?: \| after (?P<ticks>\d+) ticks?)?(?: \| exit code (?P<code>\d+))?"
    r"(?: \| first (?P<first>\d+) lines)?"
)


class PinnedCommand(NamedTuple):
    """A command, how old its world is, which file holds its settings, and how it ends."""

    command: str
    ticks: int = 0
    config: str = ""
    exit_code: int = 0


class ShownOutput(NamedTuple):
    """One block: a command, and which of its lines are shown."""

    run: PinnedCommand
    first: int | None

    def cut(self, output: str) -> str:
        """The lines that are shown; a long one ends in an ellipsis, and so does a list that has more of them."""
        lines = [_short(line.rstrip()) for line in output.rstrip().splitlines()]
        kept = lines[: self.first]
        if len(kept) < len(lines):
            kept.append("…")
        return "".join(f"{line}\n" for line in kept)


def requests_in(page: str) -> list[ShownOutput]:
    return [_parsed(found["request"]) for found in _BLOCK.finditer(page)]


def with_output(page: str, outputs: dict[ShownOutput, str]) -> str:
    """The page, with each marked block as its command prints it."""

    def block(found: re.Match[str]) -> str:
        return f"{found['marker']}```text\n{outputs[_parsed(found['request'])]}```"

    return _BLOCK.sub(block, page)


def outputs_of(requests: Sequence[ShownOutput]) -> dict[ShownOutput, str]:
    """Run each command once."""
    commands = sorted({request.run for request in requests})
    pinned = [command for command in commands if command.command != "make help"]
    printed = dict(zip(pinned, _run_pinned(pinned), strict=True)) if pinned else {}
    if len(pinned) < len(commands):
        printed[PinnedCommand("make help")] = _run(["make", "--no-print-directory", "help"])
    return {request: request.cut(printed[request.run]) for request in requests}


def _parsed(request: str) -> ShownOutput:
    found = _REQUEST.fullmatch(request)
    if found is None:
        raise SystemExit(
            f"docs: 'output of: {request}': expected COMMAND | with FILE | after N ticks | exit code N | first N lines"
        )
    run = PinnedCommand(found["command"], int(found["ticks"] or 0), found["config"] or "", int(found["code"] or 0))
    return ShownOutput(run, int(found["first"]) if found["first"] else None)


def _run_pinned(commands: list[PinnedCommand]) -> list[str]:
    printed: list[str] = json.loads(_run([sys.executable, "-m", "tools.pinned_commands"], json.dumps(commands)))
    return printed


def _run(arguments: list[str], text: str = "") -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment["PYTHONHASHSEED"] = "0"
    return subprocess.run(
        arguments, input=text, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout


def _short(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1].rstrip()}…"
