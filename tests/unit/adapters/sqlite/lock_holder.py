"""Another process that opens a SQLite file: `python -m …sqlite.lock_holder TASK PATH DRIVER [VERSION]`.

hold       open it for writing, say so, write on request, until the input ends
read       print the flag's count
migrate    open it with a second migration that kills the process halfway
make       create it, and be killed halfway
"""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.sqlite import ApswDriver, Driver, StandardDriver, Tuning
from holdfast.adapters.sqlite.driver import Connection
from holdfast.adapters.sqlite.file import SqliteFile
from holdfast.adapters.sqlite.opening import WritableFile
from holdfast.adapters.sqlite.schema import MIGRATIONS
from holdfast.adapters.system_clock import SystemClock
from holdfast.kernel.errors import HoldfastError
from holdfast.ports.store import Key, attr
from tests.unit.adapters.sqlite.cases import FLAGS, OpenStore


def driver_named(name: str, version: str = "") -> Driver:
    """Python's own SQLite under any version, so that tests do not depend on which one it is."""
    if name == "apsw":
        return ApswDriver()
    driver = StandardDriver()
    return replace(driver, version=tuple(map(int, version.split(".")))) if version else driver


def second(connection: Connection) -> None:
    """A migration in several steps."""
    connection.execute("CREATE TABLE extra (number INTEGER PRIMARY KEY)")
    for number in range(3):
        connection.execute("INSERT INTO extra VALUES (?)", (number,))


def _killed_halfway(connection: Connection) -> None:
    connection.execute("CREATE TABLE extra (number INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO extra VALUES (0)")
    os.kill(os.getpid(), signal.SIGKILL)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _hold(path: Path, driver: Driver) -> None:
    try:
        opened = OpenStore(path, driver, clock=SystemClock())
    except HoldfastError as error:
        _say(f"{type(error).__name__}: {error}")
        return
    with opened:
        _say("open")
        for _ in sys.stdin:
            opened.store.update(FLAGS, Key("f"), attr("count").plus(1))
            _say("written")


def _read(path: Path, driver: Driver) -> None:
    with OpenStore(path, driver, writable=False) as opened:
        item = opened.store.get(FLAGS, Key("f"))
        _say(str(item["count"] if item else None))


def _migrate(path: Path, driver: Driver) -> None:
    WritableFile(SqliteFile(path, driver, SystemClock(), Tuning()), (*MIGRATIONS, _killed_halfway))


_TASKS: dict[str, Callable[[Path, Driver], None]] = {"hold": _hold, "read": _read, "migrate": _migrate}


if __name__ == "__main__":
    _TASKS[sys.argv[1]](Path(sys.argv[2]), driver_named(*sys.argv[3:]))
