"""The core alone: what a Lambda function installs is enough to run, and contains nothing of console or tests."""

import subprocess
from pathlib import Path

import pytest

from tools.cache import one_at_a_time
from tools.environment import LOCKS, ROOT, Uv, base_python

WORK = """
import sys
from pathlib import Path
from holdfast.entrypoints.wiring.stores import open_store
from holdfast.kernel.settings import load_settings
from holdfast.ports.store import Key, attr
from holdfast.ports.store.tables import STATE

store = open_store(load_settings({"HOLDFAST_STORE": f"sqlite:{sys.argv[1]}"}))
store.update(STATE, Key("cluster"), attr("fence").plus(1), attr("fence").is_absent())
print(store.get(STATE, Key("cluster")))
store.close()

import boto3
boto3.client("dynamodb", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b").close()
for name in ("starlette", "uvicorn", "jinja2", "rich", "prometheus_client", "apsw", "pytest", "hypothesis"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    print("not part of the core:", name)
"""


@pytest.mark.real
@pytest.mark.slow
def test_the_core_installs_and_works_without_the_extras(tmp_path: Path) -> None:
    """An environment from requirements/core.lock opens a store and writes to it; nothing else is in there."""
    with one_at_a_time("set-up"):
        uv = Uv.ready(base_python())
    uv.run("venv", "--no-python-downloads", "--python", base_python(), tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    uv.run("pip", "sync", "--python", python, *uv.flags, "--require-hashes", LOCKS / "core.lock")
    done = subprocess.run(
        [python, "-c", WORK, tmp_path / "core.db"],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == "{'pk': 'cluster', 'fence': 1}\n"
