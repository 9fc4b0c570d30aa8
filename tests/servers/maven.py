"""Java, and jars fetched once with Maven into the user's cache. What is missing is reported in one sentence."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

from tools.cache import cache_directory, directory_made_whole, one_at_a_time
from tools.progress import step

_OLDEST_JAVA = 17


class Unavailable(Exception):
    """A program cannot run here; the message is one sentence that says why."""


def find_java(what: str) -> str:
    """Java by JAVA_HOME or on PATH, of an age that can run `what`."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise Unavailable(f"{what} needs Java {_OLDEST_JAVA} or newer, and there is no java on this machine.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r' version "(\d+)', said)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        found = version[1] if version else "unknown"
        raise Unavailable(f"{what} needs Java {_OLDEST_JAVA} or newer, and {java} is of version {found}.")
    return java


def fetched(what: str, name: str, pom: Path) -> Path:
    """The directory of the cache with the jars that the pom names, fetched if need be."""
    directory = cache_directory() / name
    if not directory.exists():
        with one_at_a_time(name):
            if not directory.exists():  # the process that held the lock may have fetched it
                _fetch(what, directory, pom)
    return directory


def _fetch(what: str, directory: Path, pom: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(f"{what} is fetched with Maven, and there is no mvn on this machine.")
    # -C: a file whose checksum is wrong is an error, not a warning.
    fetching = [maven, "-B", "-q", "-C", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    with step(f"fetching {directory.name} with Maven", who="tests"), directory_made_whole(directory) as unfinished:
        done = subprocess.run(
            [*fetching, f"-DoutputDirectory={unfinished}"],
            env=_with_home_for_java(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"{what} could not be fetched: {_first_error(done.stdout + done.stderr)}")


def _with_home_for_java() -> dict[str, str]:
    """Java takes the home directory from the list of users, not from HOME. Where they differ, HOME is meant."""
    environment = dict(os.environ)
    try:
        listed = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        listed = None  # a user id without an entry, as in containers
    if (home := environment.get("HOME")) and home != listed:
        # Of Java's variables this one understands quotes, and a home directory may have a space.
        options = environment.get("JDK_JAVA_OPTIONS", "")
        environment["JDK_JAVA_OPTIONS"] = f'{options} -Duser.home="{home}"'.strip()
    return environment


def _first_error(output: str) -> str:
    errors = (line.removeprefix("[ERROR] ") for line in output.splitlines() if line.startswith("[ERROR] "))
    return next(errors, "Maven said nothing")
