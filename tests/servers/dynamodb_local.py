"""DynamoDB Local: Amazon's own DynamoDB in one Java process, fetched once with Maven into the user's cache.

`python -m tests.servers.dynamodb_local` fetches it and says so; the Makefile does that before the tests, whose output
is captured. Each test worker starts a server of its own: a second of CPU, and nothing is shared.

Without -sharedDb, each pair of access key and region is a database of its own.
"""

from __future__ import annotations

import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers import processes
from tools.cache import cache_directory, directory_made_whole, one_at_a_time
from tools.progress import step

_POM = Path(__file__).with_name("dynamodb-local") / "pom.xml"
_MAIN_CLASS = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
_OLDEST_JAVA = 17

# Made for a short life: half the CPU until the first answer, compared with Java's defaults on two cores.
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")

# What sqlite4java calls the systems it has a native library for.
_NATIVE_LIBRARIES = {
    ("Linux", "x86_64"): "libsqlite4java-linux-amd64-*.so",
    ("Darwin", "x86_64"): "libsqlite4java-osx-*.dylib",
}


class Unavailable(Exception):
    """DynamoDB Local cannot run here; the message is one sentence that says why."""


def start(log_dir: Path) -> processes.RunningServer:
    """An empty server, ready to answer. Raises `Unavailable` if this machine cannot run it."""
    java = find_java()
    library = fetch()
    return processes.start("dynamodb-local", lambda port: _command(java, library, port), log_dir)


def find_java() -> str:
    """Java by JAVA_HOME or on PATH, of an age that can run it."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise Unavailable(f"DynamoDB Local needs Java {_OLDEST_JAVA} or newer, and there is no java on this machine.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r' version "(\d+)', said)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        found = version[1] if version else "unknown"
        raise Unavailable(f"DynamoDB Local needs Java {_OLDEST_JAVA} or newer, and {java} is of version {found}.")
    return java


def fetch() -> Path:
    """The directory with DynamoDB Local and its native library, fetched if need be."""
    pattern = _NATIVE_LIBRARIES.get((platform.system(), platform.machine()))
    if pattern is None:
        raise Unavailable(f"DynamoDB Local has no native library for {platform.system()} on {platform.machine()}.")
    name = f"dynamodb-local-{_pinned_version()}"
    directory = cache_directory() / name
    if not directory.exists():
        with one_at_a_time(name):
            if not directory.exists():  # whoever held the lock may have fetched it
                _fetch_with_maven(directory)
    if not any(directory.glob(pattern)):
        raise Unavailable(f"DynamoDB Local lacks its native library {pattern}; remove {directory} and try again.")
    return directory


def _fetch_with_maven(directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("DynamoDB Local is fetched with Maven, and there is no mvn on this machine.")
    # -C: a file whose checksum is wrong is an error, not a warning.
    fetching = [maven, "-B", "-q", "-C", "-f", str(_POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    with step(f"fetching {directory.name} with Maven", who="tests"), directory_made_whole(directory) as unfinished:
        done = subprocess.run(
            [*fetching, f"-DoutputDirectory={unfinished}"],
            env=_with_home_for_java(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"DynamoDB Local could not be fetched: {_first_error(done.stdout + done.stderr)}")


def _with_home_for_java() -> dict[str, str]:
    """Java takes the home directory from the list of users, not from HOME. Where they differ, HOME is meant."""
    environment = dict(os.environ)
    try:
        listed = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        listed = None  # a user id without an entry, as containers have them
    if (home := environment.get("HOME")) and home != listed:
        # Of Java's variables this one understands quotes, and a home directory may have a space.
        options = environment.get("JDK_JAVA_OPTIONS", "")
        environment["JDK_JAVA_OPTIONS"] = f'{options} -Duser.home="{home}"'.strip()
    return environment


def _first_error(output: str) -> str:
    errors = (line.removeprefix("[ERROR] ") for line in output.splitlines() if line.startswith("[ERROR] "))
    return next(errors, "Maven said nothing")


def _pinned_version() -> str:
    version = re.search(r"<artifactId>DynamoDBLocal</artifactId>\s*<version>(.*?)</version>", _POM.read_text("utf-8"))
    if version is None:
        raise LookupError(f"{_POM} names no version of DynamoDBLocal")
    return version[1]


def _command(java: str, library: Path, port: int) -> list[str]:
    options = [*_JVM_OPTIONS, f"-Djava.library.path={library}", "-cp", f"{library}/*"]
    return [java, *options, _MAIN_CLASS, "-inMemory", "-disableTelemetry", "-port", str(port)]


def main() -> None:
    try:
        find_java()
        fetch()
    except Unavailable as reason:
        sys.exit(f"tests: {reason}")


if __name__ == "__main__":
    main()
