"""Make the lock files in requirements/: `python3 -m tools.lock [--upgrade]`.

Names, versions and hashes only: where packages come from is the business of the machine that installs them. dev.lock is
resolved first and the others are held to it, so the versions that are tested are the versions that run. lowest.lock has
the oldest versions that pyproject.toml allows, with the same test tools as dev.lock.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.cache import one_at_a_time
from tools.environment import LOCKS, ROOT, SetupError, Uv, base_python, locked_version
from tools.progress import step

_COMPILE = (
    "pip",
    "compile",
    "--universal",
    "--generate-hashes",
    "--python-version=3.11",
    "--no-header",
    "--no-annotate",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-emit-build-options",
)
_PRODUCT = ("pyproject.toml", "--all-extras", "-")
_LIKE_DEV = ("--constraints", "requirements/dev.lock")


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--upgrade"]):
        print("usage: python3 -m tools.lock [--upgrade]", file=sys.stderr)
        return 2
    try:
        with one_at_a_time("set-up"):
            make_all(upgrade=bool(arguments))
    except (SetupError, OSError) as error:
        print(f"lock: {error}", file=sys.stderr)
        return 1
    return 0


def make_all(*, upgrade: bool) -> None:
    uv = Uv.ready(base_python())
    # Set-up links the project with the tools that the lock brought; editables is what hatchling asks for then.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tools = [*project["build-system"]["requires"], "editables"]
    build_tools = "\n".join(tools)
    _make(uv, "dev.lock", *_PRODUCT, "--group=test", "--group=lint", stdin=build_tools, upgrade=upgrade)
    _make(uv, "run.lock", *_PRODUCT, *_LIKE_DEV, stdin=build_tools, upgrade=upgrade)
    _make(uv, "core.lock", "pyproject.toml", *_LIKE_DEV, upgrade=upgrade)
    with TemporaryDirectory() as made:
        pins = Path(made) / "tools.txt"
        pins.write_text("\n".join(_pins([*project["dependency-groups"]["test"], *tools])), encoding="utf-8")
        lowest = ("--group=test", "--resolution=lowest-direct", "--constraints", str(pins))
        _make(uv, "lowest.lock", *_PRODUCT, *lowest, stdin=build_tools, upgrade=upgrade)
    _make(uv, "uv.txt", "-", stdin="uv", upgrade=upgrade)


def _pins(requirements: Iterable[str]) -> Iterator[str]:
    """As dev.lock has them: of our tools the newest, since only the product's own dependencies are tested."""
    for requirement in requirements:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        yield f"{name}=={locked_version(name, LOCKS / 'dev.lock')}"


def _make(uv: Uv, name: str, *arguments: str, upgrade: bool, stdin: str = "") -> None:
    with step(f"requirements/{name}", who="lock"):
        options = [*uv.flags, "--upgrade"] if upgrade else uv.flags
        uv.run(*_COMPILE, *options, *arguments, "--output-file", LOCKS / name, stdin=stdin)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
