"""DynamoDB Local: Amazon's own DynamoDB in one Java process, fetched once with Maven into the user's cache.

`python -m tests.servers.dynamodb_local` fetches it and says so; the Makefile does that before the tests, whose output
is captured. Each test worker starts its own server: a second of CPU, and nothing is shared.

Without -sharedDb, each pair of access key and region is a separate database.
"""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path

from tests.servers import maven, processes
from tests.servers.maven import Unavailable

__all__ = ["Unavailable", "fetch", "find_java", "start"]

_WHAT = "DynamoDB Local"
_POM = Path(__file__).with_name("dynamodb-local") / "pom.xml"
_MAIN_CLASS = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"

# Options for a short life: half the CPU until the first response, compared with Java's defaults on two cores.
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")

# The systems for which sqlite4java has a native library, by its names.
_NATIVE_LIBRARIES = {
    ("Linux", "x86_64"): "libsqlite4java-linux-amd64-*.so",
    ("Darwin", "x86_64"): "libsqlite4java-osx-*.dylib",
}


def start(log_dir: Path) -> processes.RunningServer:
    """An empty server, ready to answer. Raises `Unavailable` if this machine cannot run it."""
    java = find_java()
    library = fetch()
    return processes.start("dynamodb-local", lambda port: _command(java, library, port), log_dir)


def find_java() -> str:
    return maven.find_java(_WHAT)


def fetch() -> Path:
    """The directory with DynamoDB Local and its native library, fetched if need be."""
    pattern = _NATIVE_LIBRARIES.get((platform.system(), platform.machine()))
    if pattern is None:
        raise Unavailable(f"DynamoDB Local has no native library for {platform.system()} on {platform.machine()}.")
    directory = maven.fetched(_WHAT, f"dynamodb-local-{_pinned_version()}", _POM)
    if not any(directory.glob(pattern)):
        raise Unavailable(f"DynamoDB Local lacks its native library {pattern}; remove {directory} and try again.")
    return directory


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
