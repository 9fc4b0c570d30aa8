"""Every command: what --json prints, how it ends, and what it says to a typing mistake."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner, Result

from holdfast.adapters.sqlite import sqlite_store
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.main import cli
from holdfast.kernel import errors
from holdfast.kernel.errors import HoldfastError
from holdfast.ports.store.tables import TABLES
from tests.clocks import StillClock
from tests.payloads import JOB_ID, RUN_ID
from tests.unit.job_world import NOW, JobWorld, in_the_afternoon
from tests.unit.jobs.test_price_list import listed, product
from tests.unit.test_cli_terminal import on_terminal

PAGE: Final = Path(__file__).parents[2] / "docs" / "terminal.md"
DEPLOYMENT: Final = 1_600_000_001
# They run until they are stopped: there is nothing to show, and their log is JSON by LOG_FORMAT.
ENDLESS: Final = {"run", "serve"}
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
    "runs show": str(RUN_ID),
    "deployments show": str(DEPLOYMENT),
    "cost": "",
    "prices show": "",
    "prices refresh": "list.json --dry-run",
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
# There is no bucket here to migrate from: they say so, and print nothing.
REFUSED: Final = {f"migrate {name}" for name in ("status", "backfill", "compare", "advance", "back", "cleanup")}


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No settings but a test's own, and a clock that stands still in the afternoon."""
    in_the_afternoon(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def filled(directory: Path) -> Path:
    """A store with a run, a job, and one that waits for its deployment."""
    (directory / ".holdfast").mkdir()
    clock = StillClock(NOW)
    with closing(sqlite_store(directory / ".holdfast" / "holdfast.db", clock, tables=TABLES)) as store:
        world = JobWorld(store, clock)
        world.run()
        world.job(JOB_ID, "queued", "in_progress", "completed", conclusion="failure")
        world.job(2, "queued", "waiting", after=60, deployment=DEPLOYMENT)
    (directory / "list.json").write_text(listed(product()))
    return directory


def holdfast(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=environment, prog_name="holdfast")


def leaves(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        words = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from leaves(command, words)
        else:
            yield words, command


# --json


def test_every_command_is_looked_at_here() -> None:
    assert {path for path, _ in leaves(cli)} == set(ARGUMENTS) | REFUSED | ENDLESS


@pytest.mark.parametrize("path", sorted(ARGUMENTS))
def test_json_is_one_object_and_nothing_else(filled: Path, path: str) -> None:
    result = holdfast(*path.split(), *ARGUMENTS[path].split(), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    assert found
    if "items" in found:
        assert "cursor" in found


@pytest.mark.parametrize("path", sorted(REFUSED))
def test_an_error_leaves_stdout_empty(filled: Path, path: str) -> None:
    result = holdfast(*path.split(), "--json")
    assert result.exit_code in (ExitCode.FAILED, ExitCode.USAGE)
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)


@pytest.mark.parametrize("path", sorted(ARGUMENTS))
def test_for_people_there_are_words_and_no_json(filled: Path, path: str) -> None:
    result = holdfast(*path.split(), *ARGUMENTS[path].split())
    assert (result.exit_code, bool(result.stdout.strip())) == (0, True)
    assert not result.stdout.startswith("{")


# Typing mistakes


@pytest.mark.parametrize(
    ("arguments", "guess"),
    [
        (("statsu",), "Did you mean 'status'?"),
        (("docter",), "Did you mean 'doctor'?"),
        (("jobs", "lst"), "Did you mean 'list'?"),
        (("status", "--wacth"), "Did you mean '--watch'?"),
        (("jobs", "list", "--staus", "queued"), "Did you mean '--status'?"),
        (("simulate", "--scenario", "scale_up"), "did you mean 'scale-up'?"),
        (("simulate", "--scenario", "spot-strom"), "did you mean 'spot-storm'?"),
        (("simulate", "--scenario", "\x1b[2J"), "'holdfast simulate --scenario list' shows all"),
    ],
)
def test_a_typing_mistake_gets_a_guess(arguments: tuple[str, ...], guess: str) -> None:
    result = holdfast(*arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (ExitCode.USAGE, "", 1)
    assert guess in result.stderr
    assert result.stderr.strip().isprintable()


def test_a_setting_with_a_typing_mistake_gets_a_guess(directory: Path) -> None:
    (directory / "holdfast.toml").write_text("MAX_WORKER = 5\n")
    result = holdfast("status", HOLDFAST_STOER="x")
    assert result.exit_code == ExitCode.USAGE
    assert "HOLDFAST_STOER is not a setting; did you mean HOLDFAST_STORE?" in result.stderr
    assert "MAX_WORKER is not a setting; did you mean MAX_WORKERS?" in result.stderr


# Exit codes


def codes_in(page: str) -> dict[int, str]:
    section = page.partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    return {int(code): words for code, words in re.findall(r"^\| ([0-9]+) \| (.+) \|$", section, re.MULTILINE)}


def test_the_page_has_every_exit_code_and_no_other() -> None:
    assert set(codes_in(PAGE.read_text(encoding="utf-8"))) == set(ExitCode)


def kinds(kind: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from kinds(below)


def test_every_error_ends_with_a_code_of_the_page() -> None:
    assert {kind.exit_code for kind in kinds(HoldfastError)} == {ExitCode.FAILED, ExitCode.USAGE}
    assert {kind for kind in kinds(HoldfastError) if kind.exit_code == ExitCode.USAGE} == {errors.BadSetting}


@pytest.mark.parametrize(
    ("arguments", "environment", "code"),
    [
        (("--version",), {}, ExitCode.DONE),
        (("settings", "--help"), {}, ExitCode.DONE),
        (("doctor",), {}, ExitCode.DONE),
        (("tables", "check"), {}, ExitCode.FAILED),
        (("status",), {}, ExitCode.FAILED),
        (("doctor",), {"MAX_WORKERS": "ten"}, ExitCode.FAILED),
        (("jobs", "show", "x"), {}, ExitCode.FAILED),
        (("settings",), {"MAX_WORKERS": "ten"}, ExitCode.USAGE),
        (("settings", "--nothing"), {}, ExitCode.USAGE),
        (("nothing",), {}, ExitCode.USAGE),
        ((), {}, ExitCode.USAGE),
        (("jobs",), {}, ExitCode.USAGE),
    ],
)
def test_a_command_ends_with_the_code_that_the_page_gives_it(
    arguments: tuple[str, ...], environment: dict[str, str], code: ExitCode
) -> None:
    assert holdfast(*arguments, **environment).exit_code == code


def test_ctrl_c_ends_a_command_that_works_with_130() -> None:
    with on_terminal("simulate", "--seeds", "100000") as shown:
        shown.until("seeds/s")
        shown.process.send_signal(signal.SIGINT)
        assert shown.end() == ExitCode.INTERRUPTED
    assert "Traceback" not in shown.text
