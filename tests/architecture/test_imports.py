"""The folders are layers: imports point inward, and a cold start loads only what it needs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {"PYTHONPATH": str(directory / "src"), "PATH": ""}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def test_imports_point_inward() -> None:
    """The contracts are in pyproject.toml: kernel imports no other folder, ports import kernel, and so on outward."""
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("kernel/ids.py", "import holdfast.ports.clock"),
        ("ports/clock.py", "import holdfast.adapters.memory"),
        ("ports/clock.py", "import sqlite3"),
        ("adapters/memory.py", "import holdfast.entrypoints.wiring.stores"),
        ("entrypoints/wiring/stores.py", "import holdfast.cli.main"),
    ],
)
def test_an_import_that_points_outward_is_noticed(tmp_path: Path, room: str, line: str) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    file = tmp_path / "src" / "holdfast" / room
    file.write_text(f"{file.read_text()}\n{line}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout))


# What a Lambda function would pay for on every cold start and never use.
UNUSED_ON_LAMBDA = {"holdfast.console", "holdfast.simulator", "holdfast.cli", "click", "starlette", "uvicorn", "jinja2"}


def test_a_cold_import_for_lambda_loads_no_console_no_simulator_and_no_command_line() -> None:
    loaded = modules_after("import holdfast.entrypoints.wiring.stores")
    assert loaded & (UNUSED_ON_LAMBDA | {"rich", "prometheus_client"}) == set()
    assert "boto3" not in loaded, "boto3 is loaded only when DynamoDB is opened"


def test_opening_dynamodb_for_lambda_loads_no_console_and_no_sqlite() -> None:
    settings = "{'HOLDFAST_STORE': 'dynamodb:', 'AWS_DEFAULT_REGION': 'eu-west-1'}"
    loaded = modules_after(
        "import os; os.environ['AWS_DEFAULT_REGION'] = 'eu-west-1'\n"
        "from holdfast.entrypoints.wiring.stores import open_store\n"
        "from holdfast.kernel.settings import load_settings\n"
        f"open_store(load_settings({settings})).close()"
    )
    assert loaded & (UNUSED_ON_LAMBDA | {"sqlite3", "apsw"}) == set()
    assert "boto3" in loaded
