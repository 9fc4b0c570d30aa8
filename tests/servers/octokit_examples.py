"""Payloads that other developers collected: npm's @octokit/webhooks-examples, fetched once into the user's cache.

`python -m tests.servers.octokit_examples` fetches them and says so. The package has no code that is run: it is
unpacked, never installed, and its checksum is pinned here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

from tools.cache import cache_directory, directory_made_whole, one_at_a_time
from tools.progress import step

_PACKAGE: Final = "@octokit/webhooks-examples"
_VERSION: Final = "7.6.1"
_SHA512: Final = "De6U3XB6O3DtCa7bKgCMzTHdeopqqZ6SNivMYJnK65ierKL1AnNIA0tkRYCRS7lwGT792d+Ps1WbfHlso6MynQ=="
_ARCHIVE: Final = "package.tgz"
_FETCH_SECONDS: Final = 300


class Unavailable(Exception):
    """The examples are not available here; the message is one sentence that says why."""


def examples() -> list[tuple[str, str, dict[str, Any]]]:
    """Every example of GitHub's events, and of each GitHub Enterprise Server's: where from, event, payload."""
    with tarfile.open(fetch()) as packed:
        names = sorted(name for name in packed.getnames() if name.endswith("/index.json"))
        files = {name: json.loads(_read(packed, name)) for name in names}
    return [
        (name.split("/")[1], event["name"], payload)
        for name, events in files.items()
        for event in events
        for payload in event["examples"]
    ]


def fetch() -> Path:
    """The package as npm packed it, fetched if needed, with its checksum verified."""
    name = f"octokit-webhooks-examples-{_VERSION}"
    archive = cache_directory() / name / _ARCHIVE
    if not archive.exists():
        with one_at_a_time(name):
            if not archive.exists():  # the process that held the lock may have fetched it
                _fetch_with_npm(archive)
    if _checksum(archive) != _SHA512:
        raise Unavailable(f"{_PACKAGE} is not the one that was pinned; remove {archive.parent} and try again.")
    return archive


def _fetch_with_npm(archive: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable(f"{_PACKAGE} is fetched with npm, and there is no npm on this machine.")
    with step(f"fetching {archive.parent.name} with npm", who="tests"), directory_made_whole(archive.parent) as made:
        command = [npm, "pack", f"{_PACKAGE}@{_VERSION}", "--silent", "--ignore-scripts", "--pack-destination"]
        try:
            done = subprocess.run(
                [*command, str(made)],
                cwd=made,  # not in the project, whose files npm would look at
                env={**os.environ, "npm_config_update_notifier": "false"},
                capture_output=True,
                text=True,
                check=False,
                timeout=_FETCH_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{_PACKAGE} could not be fetched: npm took over {_FETCH_SECONDS} s.") from error
        packed = list(made.glob("*.tgz"))
        if done.returncode or len(packed) != 1:
            raise Unavailable(f"{_PACKAGE} could not be fetched: {_last_line(done.stderr)}")
        if _checksum(packed[0]) != _SHA512:
            raise Unavailable(f"{_PACKAGE} {_VERSION} is not the one that was pinned: its checksum is another.")
        packed[0].rename(made / _ARCHIVE)


def _read(packed: tarfile.TarFile, name: str) -> bytes:
    found = packed.extractfile(name)
    if found is None:
        raise Unavailable(f"{_PACKAGE}: {name} is no file.")
    return found.read()


def _checksum(archive: Path) -> str:
    """As npm writes it."""
    return base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode("ascii")


def _last_line(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "npm said nothing")


def main() -> None:
    try:
        fetch()
    except Unavailable as reason:
        sys.exit(f"tests: {reason}")


if __name__ == "__main__":
    main()
