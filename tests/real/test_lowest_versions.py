"""The oldest versions that pyproject.toml allows: requirements/lowest.lock installs, and the tests pass with it."""

import subprocess
from pathlib import Path

import pytest

from tools.cache import one_at_a_time
from tools.environment import LOCKS, ROOT, Uv, base_python

# The rooms that use a dependency directly. The others see it through these.
FOLDERS = ("tests/unit/adapters", "tests/unit/cli", "tests/unit/console", "tests/unit/entrypoints")


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_oldest_versions_that_are_allowed_pass_the_tests(tmp_path: Path) -> None:
    with one_at_a_time("set-up"):
        uv = Uv.ready(base_python())
    uv.run("venv", "--no-python-downloads", "--python", base_python(), tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    uv.run("pip", "sync", "--python", python, *uv.flags, "--require-hashes", LOCKS / "lowest.lock")
    uv.run("pip", "install", "--python", python, "--offline", "--no-deps", "--no-build-isolation", "--editable", ROOT)
    command: list[str | Path] = [python, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *FOLDERS]
    done = subprocess.run(
        [*command, "-m", "not slow and not real and not prove"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:]
