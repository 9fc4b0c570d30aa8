"""Write the reference pages, and the output of commands in the others: `python -m tools.docs`. With `--check`, only
report whether they are current.

Needs Holdfast itself, so it runs in .venv.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from holdfast.cli.main import cli
from holdfast.console.schema.documents import SCHEMAS, document
from holdfast.kernel.settings import SETTINGS, Setting
from holdfast.kernel.settings.runners import IMAGE_KEYS, PROFILE_KEYS
from holdfast.kernel.settings.tables import REQUIRED, TableKey
from tools.kill_rates_page import with_rates
from tools.shown_output import outputs_of, requests_in, with_output

DOCS = Path(__file__).parent.parent / "docs"

_GENERATED = "<!-- Written by `python -m tools.docs`. Change the declarations, not this page. -->"

_SETTINGS_START = f"""\
{_GENERATED}

# Settings

A setting is an environment variable, or an entry of the same name in a file `holdfast.toml` in the working directory:

```toml
HOLDFAST_PORT = 8080
STATE_TABLE = "k3s-autoscaler-state"
```

The strongest source wins: a command-line flag where there is one, the environment, the file, the default.
`holdfast settings` shows every value and its source. A wrong value, or a name that is not listed here (in the file, or
in a variable that begins with `HOLDFAST_`), is reported before anything is touched, with exit code 2. Paths are
relative to the working directory.
"""

_TABLES = """
## Runners

Which machines jobs can ask for is in tables of `holdfast.toml`, and not in the environment: `[runners.images.NAME]`,
`[runners.profiles.NAME]`, and `[runners.bounds]` with the keys of a profile. [runners.md](runners.md) explains them.
"""

_SETTINGS_END = """
## Settings of AWS

Region, credentials and endpoints are boto3's own settings and not Holdfast's: `AWS_DEFAULT_REGION`,
`AWS_PROFILE`, `AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL_DYNAMODB` and so on, as boto3's documentation lists them. They
are read from the environment and from AWS's own files, never from `holdfast.toml`. One thing is added: `AWS_REGION`
names the region if `AWS_DEFAULT_REGION` is not set. `holdfast doctor` shows the region and where it comes from.
"""

_CLI_START = f"""\
{_GENERATED}

# Commands

An error is one line on stderr. Exit codes: 0 done, 1 failed, 2 wrong usage or a wrong setting, 130 interrupted.
With `--json`, stdout holds one JSON object and nothing else; lists are `{{"items": […], "cursor": …}}`.
"""


def settings_page() -> str:
    groups: dict[str, list[Setting]] = {}
    for row in SETTINGS:
        groups.setdefault(row.group, []).append(row)
    pages = [_settings_group(name, rows) for name, rows in groups.items()]
    tables = [_table("an image", IMAGE_KEYS), _table("a profile, and of `[runners.bounds]`", PROFILE_KEYS)]
    return "".join([_SETTINGS_START, *pages, _TABLES, *tables, _SETTINGS_END])


def _settings_group(name: str, rows: list[Setting]) -> str:
    lines = [
        f"\n## {name}\n",
        "| name | default | unit | expected | example | what it is |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        about = row.help_text
        if row.flag:
            about += f" Flag: `{row.flag} {row.flag_value}`."
        if row.secret:
            about += " Secret: never shown."
        default = f"`{row.default_words}`" if row.default_words else ""
        cells = [f"`{row.name}`", default, row.unit, row.kind.expected, f"`{row.example}`", about]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _table(what: str, keys: Sequence[TableKey]) -> str:
    lines = [f"\n| key of {what} | needed | expected | example | what it is |", "| --- | --- | --- | --- | --- |"]
    for key in keys:
        needed = "yes" if key.default is REQUIRED else ""
        cells = [f"`{key.name}`", needed, key.kind.expected, f"`{key.example}`", key.help_text]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    return _CLI_START + "".join(_command_section(path, command) for path, command in commands(cli, "holdfast"))


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command with the words that call it, groups before their members."""
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from commands(command.commands[name], f"{path} {name}")


def _command_section(path: str, command: click.Command) -> str:
    # A fixed width: the page must not depend on the terminal that it was written in.
    # And the root's names of the help option: a command keeps those of its first context.
    names = ["-h", "--help"]
    context = click.Context(command, info_name=path, terminal_width=100, max_content_width=100, help_option_names=names)
    return f"\n## {path}\n\n```text\n{command.get_help(context)}\n```\n"


def pages() -> dict[Path, str]:
    schemas = {DOCS / "schema" / f"{name}.json": f"{json.dumps(document(name), indent=2)}\n" for name in SCHEMAS}
    mutants = DOCS / "mutants.md"  # only its kill rates: which checker finds a planted mistake must be tried
    generated = {DOCS / "settings.md": settings_page(), DOCS / "cli.md": cli_page(), **schemas, **pages_with_output()}
    return {**generated, **({mutants: with_rates(mutants.read_text(encoding="utf-8"))} if mutants.exists() else {})}


def pages_with_output() -> dict[Path, str]:
    """The pages that show what commands print."""
    texts = {path: path.read_text(encoding="utf-8") for path in [*DOCS.parent.glob("*.md"), *DOCS.glob("*.md")]}
    requests = {path: found for path, text in texts.items() if (found := requests_in(text))}
    outputs = outputs_of([request for found in requests.values() for request in found])
    return {path: with_output(texts[path], outputs) for path in requests}


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("docs: expected no argument, or --check", file=sys.stderr)
        return 2
    written = pages()
    stale = [path for path, text in written.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        name = path.relative_to(DOCS.parent)
        if arguments:
            print(f"docs: {name} is not current; run: python -m tools.docs", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(written[path], encoding="utf-8")
            print(f"docs: wrote {name}")
    return 1 if stale and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
