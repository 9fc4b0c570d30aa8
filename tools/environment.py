"""Make .venv what a lock file says, from bare Python with pip.

uv does the work: it needs no ensurepip, which many systems leave out, and it is quick. pip brings it once, checked
against requirements/uv.txt, into the user's cache. A stamp in .venv says what it was made from; it is taken away before
a change and put back after, so a set-up that was killed half-way leaves none and the next one starts over. Nothing to
do is silent.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.cache import cache_directory, directory_made_whole, one_at_a_time
from tools.pip_settings import PipError, read_pip_settings, uv_environment, uv_flags
from tools.progress import step

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "holdfast-setup.json"
LOCKS = ROOT / "requirements"
SETS = ("run", "dev")  # the second holds all of the first


class SetupError(Exception):
    """Set-up cannot continue; the message is for the user."""


@dataclass(frozen=True)
class Stamp:
    """What .venv was made from.

    Its scripts hold their own path and the project is linked from `root`: a copy of .venv elsewhere must be rebuilt.
    """

    which: str
    content: str
    root: str
    python: str


@dataclass(frozen=True)
class Plan:
    """What to do to .venv: nothing, update it, or rebuild it."""

    which: str
    sync: bool
    rebuild: bool


def main(arguments: list[str]) -> int:
    """Exit code 0 when .venv is as it should be, 1 with one line when it cannot be, 2 for a wrong call."""
    if len(arguments) != 1 or arguments[0] not in SETS:
        print("usage: python3 tools/setup.py run|dev", file=sys.stderr)
        return 2
    try:
        ensure(arguments[0])
    except (SetupError, OSError) as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nset-up: stopped; the next one starts over", file=sys.stderr)
        return 130
    return 0


def ensure(wanted: str) -> None:
    """Bring .venv to the set `wanted`, or to more."""
    if not plan(wanted, read_stamp(STAMP), current_stamps(), venv_runs=venv_runs()).sync:
        return
    with one_at_a_time("set-up"):
        # Check again: the process that held the lock may have done it.
        todo = plan(wanted, read_stamp(STAMP), current_stamps(), venv_runs=venv_runs())
        if todo.sync:
            carry_out(todo)


def plan(wanted: str, found: Stamp | None, current: Mapping[str, Stamp], *, venv_runs: bool) -> Plan:
    """Compare what is there with what should be.

    An environment with the development set keeps it: `run` after `dev` would otherwise take the tools away, and the
    next test bring them back.
    """
    which = "dev" if found and found.which == "dev" else wanted
    target = current[which]
    rebuild = not venv_runs or found is None or (found.root, found.python) != (target.root, target.python)
    return Plan(which, sync=rebuild or found != target, rebuild=rebuild)


def carry_out(todo: Plan) -> None:
    python = base_python()
    started = time.monotonic()
    uv = Uv.ready(python)
    if todo.rebuild:
        with step(f"making .venv with Python {platform.python_version()}"):
            remove(VENV)
            uv.run("venv", "--no-python-downloads", "--python", python, VENV)
    STAMP.unlink(missing_ok=True)
    into = ("--python", VENV / "bin" / "python")
    lock = LOCKS / f"{todo.which}.lock"
    with step(f"installing {count_of_packages(lock)} packages from requirements/{lock.name}"):
        # Bytecode now, once: with PYTHONDONTWRITEBYTECODE set, as in many containers, each start would compile again.
        uv.run("pip", "sync", *into, *uv.flags, "--require-hashes", "--compile-bytecode", lock)
    with step("linking Holdfast itself"):
        # Its build tool came with the lock file, hash-checked; isolation would fetch one unchecked.
        uv.run("pip", "install", *into, "--offline", "--no-deps", "--no-build-isolation", "--editable", ROOT)
    write_stamp(STAMP, current_stamps()[todo.which])
    print(f"set-up: done in {time.monotonic() - started:.1f} s", flush=True)


@dataclass(frozen=True)
class Uv:
    """The uv of requirements/uv.txt, with pip's settings."""

    program: Path
    environment: dict[str, str]
    flags: list[str]

    @classmethod
    def ready(cls, python: Path) -> Uv:
        """Find it in the user's cache, or fetch it. Call while holding the lock."""
        try:
            settings = read_pip_settings(python)
        except PipError as error:
            remedy = "install pip (on Debian: apt-get install python3-pip) and try again"
            raise SetupError(f"{error}; {remedy}") from error
        home = cache_directory() / f"uv-{locked_version('uv', LOCKS / 'uv.txt')}"
        if not (home / "bin" / "uv").exists():
            _fetch_uv(python, home)
        return cls(home / "bin" / "uv", uv_environment(settings, os.environ), uv_flags(settings))

    def run(self, *arguments: str | Path, stdin: str = "") -> None:
        call("uv", [self.program, "--quiet", *arguments], self.environment, stdin=stdin)


def _fetch_uv(python: Path, home: Path) -> None:
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    pinned = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", LOCKS / "uv.txt")
    # Both settings are for a person's own installs, and would refuse this one.
    environment = {**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    with step(f"fetching {home.name}"), directory_made_whole(home) as unfinished:
        call("pip", [python, "-m", "pip", "install", *quiet, *pinned, "--target", unfinished], environment)


def call(name: str, command: list[str | Path], environment: Mapping[str, str], *, stdin: str = "") -> None:
    """Run a quiet program; if it fails, its output is the error."""
    # close_fds: the lock of `one_at_a_time` goes along, so a child that outlives a killed set-up is waited for.
    done = subprocess.run(
        command, env=environment, cwd=ROOT, input=stdin, capture_output=True, text=True, check=False, close_fds=False
    )
    if done.returncode:
        said = (done.stderr + done.stdout).strip()
        raise SetupError(f"{name} failed with exit code {done.returncode}:\n{said}")


def remove(path: Path) -> None:
    """Whatever it is: a killed set-up may have left a directory that uv would not recognise as its own."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def base_python() -> Path:
    """The Python to build on. Not the one of .venv, though it may run this: it has no pip, and may be replaced."""
    if sys.prefix == sys.base_prefix:
        return Path(sys.executable)
    return Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


def venv_runs() -> bool:
    """Whether .venv has its Python; the link dangles when that was uninstalled."""
    return (VENV / "bin" / "python").exists()


def current_stamps() -> dict[str, Stamp]:
    return {which: _current_stamp(which) for which in SETS}


def _current_stamp(which: str) -> Stamp:
    content = hashlib.sha256()
    for path in (LOCKS / f"{which}.lock", ROOT / "pyproject.toml"):
        content.update(hashlib.sha256(path.read_bytes()).digest())
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return Stamp(which, content.hexdigest(), str(ROOT), python)


def read_stamp(path: Path) -> Stamp | None:
    """The stamp, or None if there is none that can be understood: then .venv is rebuilt."""
    try:
        return Stamp(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None


def write_stamp(path: Path, stamp: Stamp) -> None:
    path.write_text(json.dumps(asdict(stamp), indent=2) + "\n", encoding="utf-8")


def locked_version(package: str, lock: Path) -> str:
    for line in lock.read_text(encoding="utf-8").splitlines():
        name, equals, rest = line.partition("==")
        if equals and name == package:
            return rest.split()[0]
    raise SetupError(f"{lock.name} names no version of {package}; make it anew with make lock")


def count_of_packages(lock: Path) -> int:
    return sum(not line.startswith((" ", "#")) for line in lock.read_text(encoding="utf-8").splitlines() if line)
