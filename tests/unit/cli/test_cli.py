"""The command line: what it prints, where, and with which exit code."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import cli
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.settings import SETTINGS
from tests.servers.processes import RunningServer
from tests.support.commands import leaves


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and only the settings of the test."""
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("HOLDFAST_") or name in {row.name for row in SETTINGS}:
            monkeypatch.delenv(name)
    return tmp_path


def holdfast(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=environment, prog_name="holdfast")


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A real process, where click's runner is not enough."""
    command = [sys.executable, "-m", "holdfast.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


# The root


def test_it_prints_its_version() -> None:
    """With its name, so that a bug report can be copied from it."""
    result = holdfast("--version")
    assert (result.exit_code, result.stdout.split()[0]) == (0, "holdfast")


def test_without_arguments_it_shows_its_commands() -> None:
    """A user who types only the name wants to know the commands."""
    result = holdfast()
    assert result.exit_code == 2
    assert all(name in result.stderr for name in ("run", "settings", "tables"))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("setings",), "holdfast: No such command 'setings'. Did you mean 'settings'?\n"),
        (("tables", "chekc"), "holdfast: No such command 'chekc'. Did you mean 'check'?\n"),
        (("runs", "list"), "holdfast: No such command 'list'. 'holdfast runs' has: show.\n"),
        (("zzzzz",), "holdfast: No such command 'zzzzz'.\n"),
        (
            ("simulate", "--seeds", "many"),
            "holdfast: Invalid value for '--seeds': 'many' is not a whole number.\n",
        ),
        (
            ("status", "--watch", "--interval", "soon"),
            "holdfast: Invalid value for '--interval': 'soon' is not a number.\n",
        ),
        (("run", "--prt", "1"), "holdfast: No such option '--prt'. Did you mean '--port'?\n"),
        (("settings", "x\x1b[2J"), "holdfast: Got unexpected extra argument (x\\x1b[2J)\n"),
    ],
)
def test_a_usage_error_is_one_line_with_a_suggestion(arguments: tuple[str, ...], line: str) -> None:
    """On stderr, with exit code 2."""
    result = holdfast(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line)


def test_help_loads_nothing_that_only_commands_need() -> None:
    """Help must not wait for boto3 and a web server to load."""
    heavy = ("boto3", "starlette", "uvicorn", "rich", "jinja2", "prometheus_client", "asyncio", "sqlite3")
    code = f"import sys, holdfast.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"[]"


# Errors


@pytest.fixture
def failing() -> Any:
    """A command that fails with the given error, for the duration of the test."""
    raised: list[BaseException] = []

    @cli.command("fail", hidden=True)
    def fail() -> None:
        raise raised[0]

    yield raised
    del cli.commands["fail"]


def test_a_holdfast_error_is_one_line(failing: list[BaseException]) -> None:
    """Whatever foreign text it contains: it cannot start a second line."""
    failing.append(StoreUnavailable("disk full\nholdfast: all is well\x1b[2J"))
    result = holdfast("fail")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "holdfast: disk full\\nholdfast: all is well\\x1b[2J\n"


def test_an_unexpected_error_keeps_its_traceback(failing: list[BaseException]) -> None:
    """It is a bug of ours, and the traceback helps to fix it."""
    failing.append(ZeroDivisionError("bug"))
    assert isinstance(holdfast("fail").exception, ZeroDivisionError)


def test_ctrl_c_is_quiet(failing: list[BaseException]) -> None:
    """Exit code 130, as shells expect, and no output."""
    failing.append(KeyboardInterrupt())
    result = holdfast("fail")
    assert (result.exit_code, result.output.strip()) == (130, "")


def test_wrong_settings_are_one_line_each_before_anything_is_touched(directory: Path) -> None:
    """Exit code 2, and no directory was created."""
    result = holdfast("run", "--port", "x", LOG_LEVEL="loud", HOLDFAST_PROT="1")
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert [line.split()[1] for line in lines] == ["HOLDFAST_PROT", "LOG_LEVEL=loud", "--port"]
    assert all(line.startswith("holdfast: ") for line in lines)
    assert list(directory.iterdir()) == []


def test_help_and_version_are_also_commands() -> None:
    assert holdfast("version").stdout == holdfast("--version").stdout
    for shown, asked in (
        (("--help",), ("-h",)),
        (("--help",), ("help",)),
        (("jobs", "list", "--help"), ("help", "jobs", "list")),
        (("jobs", "list", "--help"), ("jobs", "list", "-h")),
    ):
        assert (holdfast(*asked).exit_code, holdfast(*asked).stdout) == (0, holdfast(*shown).stdout)
    assert holdfast("help", "stauts").stderr == "holdfast: No such command 'stauts'. Did you mean 'status'?\n"
    assert holdfast("help", "run", "fast").stderr == "holdfast: 'holdfast run' has no commands.\n"
    assert holdfast("help", "run", "fast").exit_code == 2


def test_a_variable_that_resembles_a_setting_is_a_warning_without_its_value() -> None:
    result = holdfast("settings", MAX_WORKER="5-secret")
    assert result.exit_code == 0
    assert (
        "environment variable MAX_WORKER is not a setting, and is ignored; did you mean MAX_WORKERS?" in result.stderr
    )
    assert "5-secret" not in result.stderr
    assert "MAX_WORKER " not in holdfast("settings", MAX_WORKERS="5").stderr
    assert "is not a setting" not in holdfast("doctor", MAX_WORKER="5").stderr, "it is among the findings"


def test_data_may_be_the_sqlite_file_itself(directory: Path) -> None:
    """Short for HOLDFAST_STORE and HOLDFAST_DATA. An existing directory stays one, whatever its name."""
    (directory / "folder.db").mkdir()
    (directory / "plain").touch()
    for given, store, folder in (
        ("here/jobs.db", "sqlite:here/jobs.db", "here"),
        ("jobs.sqlite3", "sqlite:jobs.sqlite3", "."),
        ("plain", "sqlite:plain", "."),
        ("folder.db", "sqlite:folder.db/holdfast.db", "folder.db"),
        ("here", "sqlite:here/holdfast.db", "here"),
    ):
        rows = {row["name"]: row for row in json.loads(holdfast("settings", "--json", "--data", given).stdout)["items"]}
        assert (rows["HOLDFAST_STORE"]["value"], rows["HOLDFAST_DATA"]["value"]) == (store, folder)
        assert rows["HOLDFAST_DATA"]["source"] == "--data"
    made = holdfast("tables", "create", "--data", "new/jobs.db")
    assert (made.exit_code, (directory / "new" / "jobs.db").is_file()) == (0, True)


# holdfast settings


def test_settings_as_json_is_one_object_and_nothing_else(directory: Path) -> None:
    """Every setting, with its source; numbers are numbers."""
    (directory / "holdfast.toml").write_text('STATE_TABLE = "mine"\n')
    done = process("settings", "--json", "--port", "0", env={**os.environ, "LOG_LEVEL": "debug"})
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert set(answer) == {"items", "cursor"}
    items = {item["name"]: item for item in answer["items"]}
    assert list(items) == [row.name for row in SETTINGS]
    assert items["HOLDFAST_PORT"] == {
        "name": "HOLDFAST_PORT",
        "value": 0,
        "source": "--port",
        "default": 8080,
        "unit": "",
        "help": "The port the web server listens on; 0 picks a free one.",
    }
    assert (items["STATE_TABLE"]["value"], items["STATE_TABLE"]["source"]) == ("mine", "holdfast.toml")
    assert (items["LOG_LEVEL"]["value"], items["LOG_LEVEL"]["source"]) == ("debug", "environment")
    assert items["HOLDFAST_STORE"]["default"] == "sqlite:HOLDFAST_DATA/holdfast.db"


def test_settings_without_json_are_a_line_each_in_a_pipe() -> None:
    """So that grep finds name, value, unit, source and help together."""
    result = holdfast("settings")
    assert result.exit_code == 0
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("DYNAMODB_DEADLINE_SEC"))
    assert line.split(maxsplit=4) == [
        "DYNAMODB_DEADLINE_SEC",
        "8",
        "seconds",
        "default",
        "How long a call to DynamoDB is retried. An attempt in progress may take up to 4 s longer.",
    ]


def test_an_error_with_json_leaves_stdout_empty() -> None:
    """A program reads the exit code, a person the line on stderr."""
    result = holdfast("settings", "--json", HOLDFAST_PORT="ten")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("holdfast: HOLDFAST_PORT=ten is not a whole number")


def test_a_closed_pipe_causes_no_traceback() -> None:
    """`holdfast settings | head -1`, with a pipe that is closed from the start."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "holdfast.cli.main", "settings"]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


# Tables for people


def test_a_terminal_gets_a_table_that_fits() -> None:
    """Foreign values are shown literally: rich's markup in them has no effect."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "holdfast.cli.main", "settings", "--data", "[red]x[/red]"]
    with os.fdopen(controller, "rb", closefd=True) as screen:
        environment = {**os.environ, "COLUMNS": "72", "TERM": "xterm"}
        child = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment)
        os.close(terminal)
        text = b""
        try:
            while chunk := screen.read1():
                text += chunk
        except OSError:
            pass  # how Linux reports that the other side is gone
        assert child.wait(60) == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text.decode()).splitlines()
    assert max(len(line) for line in lines) <= 72
    assert any("[red]x[/red]" in line for line in lines)


# holdfast tables


@pytest.fixture
def dynamodb(dynamodb_server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of an empty DynamoDB: in DynamoDB Local, each access key has its own database."""
    # boto3 keeps the first credentials it saw for as long as the process lives.
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    return {
        "HOLDFAST_STORE": "dynamodb:",
        "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_server.url,
        "AWS_ACCESS_KEY_ID": f"cli{uuid4().hex}",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }


@pytest.fixture(params=["sqlite", pytest.param("dynamodb", marks=pytest.mark.real)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The settings of an empty store."""
    if request.param == "sqlite":
        return {"HOLDFAST_STORE": f"sqlite:{tmp_path}/new/holdfast.db"}
    settings: dict[str, str] = request.getfixturevalue("dynamodb")
    return settings


def items(result: Result) -> list[dict[str, Any]]:
    answer = json.loads(result.stdout)
    assert set(answer) == {"items", "cursor"}
    found: list[dict[str, Any]] = answer["items"]
    return found


def test_missing_tables_are_reported_then_created_then_right(store: dict[str, str]) -> None:
    """Check, create, check: each reports the actual state, also by exit code."""
    missing = holdfast("tables", "check", "--json", **store)
    assert (missing.exit_code, missing.stderr.count("\n")) == (1, 1)
    assert [(item["attribute"], item["found"]) for item in items(missing)] == [("table", "absent")] * 6
    created = holdfast("tables", "create", **store)
    assert created.exit_code == 0
    assert created.stdout.splitlines() == [f"create table {item['table']}: done" for item in items(missing)]
    checked = holdfast("tables", "check", **store)
    assert (checked.exit_code, checked.stderr) == (0, "")
    assert "all 6 tables" in checked.stdout


def test_creating_tables_again_changes_nothing(store: dict[str, str]) -> None:
    """So it can be part of every deployment."""
    assert len(items(holdfast("tables", "create", "--json", **store))) == 6
    again = holdfast("tables", "create", "--json", **store)
    assert (again.exit_code, items(again)) == (0, [])
    assert "nothing to create" in holdfast("tables", "create", **store).stdout


def test_a_dry_run_creates_nothing(store: dict[str, str], directory: Path) -> None:
    """Not even a directory."""
    result = holdfast("tables", "create", "--dry-run", "--json", **store)
    assert result.exit_code == 0
    assert [item["done"] for item in items(result)] == [False] * 6
    assert "would create table" in holdfast("tables", "create", "--dry-run", **store).stdout
    assert holdfast("tables", "check", **store).exit_code == 1
    assert list(directory.iterdir()) == []


def test_describe_shows_every_table_before_and_after(store: dict[str, str]) -> None:
    """Keys, indexes, expiry, and whether it exists."""
    before = holdfast("tables", "describe", **store)
    assert before.stdout.count("no; run: holdfast tables create") == 6
    assert "GSI2: GSI2-PK, created_at; KEYS_ONLY" in before.stdout
    holdfast("tables", "create", **store)
    assert holdfast("tables", "describe", **store).stdout.count("yes, as declared") == 6
    (jobs,) = (item for item in items(holdfast("tables", "describe", "--json", **store)) if "GSI1" in str(item))
    assert {index["name"] for index in jobs["found"]["indexes"]} == {"GSI1", "GSI2", "GSI3"}
    assert (jobs["ttl"], jobs["differences"]) == ("ttl", [])


def test_an_index_with_another_projection_is_rebuilt_after_confirmation(store: dict[str, str]) -> None:
    """Check says which differs, and how to fix it; without a yes nothing changes."""
    holdfast("tables", "create", **store)
    changed = {**store, "JOBS_INDEX_PROJECTION": "status"}
    differ = items(holdfast("tables", "check", "--json", **changed))
    assert {item["attribute"].partition(":")[0] for item in differ} == {"index GSI2", "index GSI3"}
    assert all("holdfast tables rebuild-index GSI" in item["remedy"] for item in differ)
    assert "would rebuild index GSI2" in holdfast("tables", "rebuild-index", "GSI2", "--dry-run", **changed).stdout
    refused = holdfast("tables", "rebuild-index", "GSI2", **changed)
    assert (refused.exit_code, "add --yes" in refused.stderr) == (1, True)
    assert holdfast("tables", "check", **changed).exit_code == 1
    for name in ("GSI2", "GSI3"):
        done = holdfast("tables", "rebuild-index", name, "--yes", **changed)
        assert done.stdout == f"rebuild index {name} of table workflow_jobs: done\n"
    assert holdfast("tables", "check", **changed).exit_code == 0
    nothing = holdfast("tables", "rebuild-index", "GSI2", "--yes", **changed)
    assert (nothing.exit_code, "index GSI2: no table has one" in nothing.stderr) == (1, True)


@pytest.mark.real
def test_a_difference_that_create_cannot_fix_is_left_to_an_operator(dynamodb: dict[str, str]) -> None:
    """Check names it; create fails too, since the tables are not as declared."""
    store = dynamodb | {"STATE_TABLE": "another-name"}
    assert "create table another-name: done" in holdfast("tables", "create", **store).stdout
    store["DYNAMODB_BILLING"] = "provisioned"
    checked = holdfast("tables", "check", **store)
    assert checked.exit_code == 1
    assert "or set DYNAMODB_BILLING=on-demand" in checked.stdout
    created = holdfast("tables", "create", **store)
    assert (created.exit_code, created.stdout) == (1, "")
    assert "run 'holdfast tables check' for details" in created.stderr


def test_a_file_that_is_not_ours_is_one_line(directory: Path) -> None:
    """And is left unchanged."""
    (directory / "notes.txt").write_text("dear diary")
    result = holdfast("tables", "check", HOLDFAST_STORE="sqlite:notes.txt")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "notes.txt is not a SQLite file" in result.stderr
    assert (directory / "notes.txt").read_text() == "dear diary"


# The tree of commands


def test_every_command_that_reads_has_json_and_every_one_that_writes_has_dry_run() -> None:
    """Except `run` and `serve`, which run until they are stopped."""
    options = {path: {name for option in command.params for name in option.opts} for path, command in leaves(cli)}
    jobs = {f"jobs {name}" for name in ("list", "show", "events", "stuck", "stats", "explain")}
    shows = {"settings", "status", "explain", "simulate", "tables check", "tables describe"} | jobs
    shows |= {"runs show", "deployments show", "cost", "migrate status", "migrate compare", "doctor", "prices show"}
    shows |= {f"completion {shell}" for shell in ("bash", "zsh", "fish")}
    shows |= {"runners classes", "runners try"}
    changes = {"tick", "pause", "resume", "kill", "tables create", "tables rebuild-index", "prices refresh"}
    changes |= {"runners refresh", "jobs recount"}
    changes |= {f"migrate {name}" for name in ("backfill", "advance", "back", "cleanup")}
    assert set(options) == {"run", "serve"} | shows | changes
    assert {path for path, names in options.items() if "--json" not in names} == {"run", "serve"}
    assert {path for path, names in options.items() if "--dry-run" in names} == changes


def test_help_fits_eighty_columns() -> None:
    """No sentence is cut off, no line is longer, and no value is named after a Python type."""
    paths = [path for path, _ in leaves(cli)]
    groups = {path.rpartition(" ")[0] for path in paths}
    for path in {*paths, *groups}:
        shown = CliRunner().invoke(cli, [*path.split(), "--help"], prog_name="holdfast", terminal_width=80)
        assert shown.exit_code == 0
        assert "...\n" not in shown.stdout.replace("[ARGS]...", ""), path
        assert max(map(len, shown.stdout.splitlines())) <= 80, path
        assert not re.search(r"INTEGER|FLOAT|RANGE", shown.stdout), path
