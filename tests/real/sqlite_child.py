"""A process that writes until it is killed: `python -m tests.real.sqlite_child PATH DRIVER`.

Each of its threads counts up, one transaction for each number, and prints each number once it is acknowledged. A
transaction moves the thread's own item (and its index entry), counts in a second item, and adds a line to a log.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Final

from holdfast.adapters.sqlite import ApswDriver, StandardDriver, sqlite_store
from holdfast.adapters.system_clock import SystemClock
from holdfast.kernel.errors import HoldfastError
from holdfast.ports.store import Index, Key, PutItem, Store, Table, UpdateItem, attr

WRITERS: Final = tuple(f"w{number}" for number in range(4))
STATES: Final = Table(
    name="states",
    setting="STATES_TABLE",
    purpose="where each writer is",
    partition="pk",
    indexes=(Index("by-phase", "phase", "at"),),
)
COUNTS: Final = Table(name="counts", setting="COUNTS_TABLE", purpose="the same once more", partition="pk")
LOG: Final = Table(name="log", setting="LOG_TABLE", purpose="all that was done", partition="pk", sort="sk")
TABLES: Final = (STATES, COUNTS, LOG)
DRIVERS: Final = {"sqlite3": StandardDriver, "apsw": ApswDriver}


def phase(writer: str, number: int) -> str:
    return f"{writer}-phase-{number % 3}"


def count_up(store: Store, writer: str, number: int) -> None:
    """From number - 1 to number: all of it, or nothing."""
    state = (
        attr("number").set_to(number)
        + attr("phase").set_to(phase(writer, number))
        + attr("at").set_to(f"{number:08}")
        + attr("text").set_to("x" * (number * 37 % 900))
    )
    before = attr("number").is_absent() if number == 1 else attr("number").equals(number - 1)
    store.transact(
        [
            UpdateItem(STATES, Key(writer), state, before),
            UpdateItem(COUNTS, Key(writer), attr("number").plus(1)),
            PutItem(LOG, {"pk": writer, "sk": f"{number:08}", "text": "y" * 100}, attr("pk").is_absent()),
        ]
    )


def write_for_ever(store: Store, writer: str) -> None:
    found = store.get(STATES, Key(writer))
    number = found["number"] if found else 0
    try:
        while True:
            number += 1
            count_up(store, writer, number)
            # One system call for a line, so that it is printed completely or not at all.
            os.write(1, f"{writer} {number}\n".encode())
    except HoldfastError as error:
        os.write(2, f"{writer} {number}: {error}\n".encode())


def main(path: Path, driver: str) -> None:
    store = sqlite_store(path, SystemClock(), tables=TABLES, driver=DRIVERS[driver]())
    for writer in WRITERS:
        threading.Thread(target=write_for_ever, args=(store, writer)).start()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
