"""An acknowledged write survives a power cut, whichever of the unfinished writes reached the disk.

Every write and every sync of our own writer is recorded below SQLite. From the record, the files are put together as
a power cut at one moment may have left them, and opened again.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.adapters.sqlite import ApswDriver, StandardDriver, Tuning
from holdfast.ports.store import Key, Query, UpdateItem, attr
from tests.unit.adapters.sqlite.cases import DRIVERS, FLAGS, THINGS, OpenStore
from tests.unit.adapters.sqlite.disk import Acknowledged, Event, RecordingDisk, State, Sync, moments

_WRITERS = 4


def record(directory: Path, synchronous: str, writes: int) -> tuple[dict[str, bytes], list[Event]]:
    """The files before, and what happened to them while some threads wrote."""
    path = directory / "holdfast.db"
    with OpenStore(path, StandardDriver()):
        pass
    before = {path.name: path.read_bytes()}
    disk = RecordingDisk()
    # Check-points come often, so that many moments lie within one.
    tuning = Tuning(synchronous=synchronous, checkpoint_pages=12)
    with OpenStore(path, ApswDriver(disk.name), tuning=tuning) as opened:

        def write(who: str) -> None:
            for number in range(1, writes + 1):
                update = attr("count").set_to(number) + attr("at").set_to(f"{number:04}") + attr("kind").set_to(who)
                text = attr("text").set_to("x" * (number * 97 % 1500))
                opened.store.transact(
                    [
                        UpdateItem(THINGS, Key(who, "s"), update + text),
                        UpdateItem(FLAGS, Key(who), attr("count").plus(1)),
                    ]
                )
                disk.events.append(Acknowledged(who, number))

        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(write, [f"w{number}" for number in range(_WRITERS)]))
        events = list(disk.events)
    disk.unregister()
    return before, events


def lost_in(files: dict[str, bytes], state: State, directory: Path, number: int) -> list[str]:
    """Acknowledged writes that are missing. Anything that is half there fails at once."""
    directory.mkdir()
    for name, data in files.items():
        (directory / name).write_bytes(data)
    lost = []
    with OpenStore(directory / "holdfast.db", DRIVERS[number % len(DRIVERS)]) as opened:
        assert opened.sql("PRAGMA integrity_check") == [("ok",)]
        for who in (f"w{number}" for number in range(_WRITERS)):
            item, flag = opened.store.get(THINGS, Key(who, "s")), opened.store.get(FLAGS, Key(who))
            found = item["count"] if item else 0
            assert (flag["count"] if flag else 0) == found, f"{who}: two items of one transaction differ"
            assert [i["count"] for i in opened.store.query(Query(THINGS, who, index="by-kind")).items] == (
                [found] if found else []
            ), f"{who}: the index differs from its item"
            if found < state.acknowledged.get(who, 0):
                lost.append(f"{who}: {state.acknowledged[who]} was acknowledged, {found} is there")
    return lost


def losses(tmp_path: Path, synchronous: str, *, writes: int, cuts: int, seed: int) -> list[str]:
    """What is lost in that many power cuts at random moments, mostly those just after an acknowledgement."""
    source = random.Random(seed)
    directory = tmp_path / "recorded"
    directory.mkdir()
    before, events = record(directory, synchronous, writes)
    assert sum(isinstance(event, Sync) and not event.file.endswith("-wal") for event in events) > 1, "no check-point"
    weights = [5 if isinstance(event, Acknowledged) else 1 for event in events]
    chosen = set(source.choices(range(len(events)), weights, k=cuts))
    found = []
    for number, state in enumerate(moments(events, before)):
        if number in chosen:
            image = state.after_a_power_cut(source)
            lost = lost_in(image, state, tmp_path / f"cut-{number}", number)
            found += [f"seed {seed}, event {number}: {text}" for text in lost]
    return found


def test_a_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """At many moments, with any of the unfinished writes on the disk: all of it is there, and the file is intact."""
    assert losses(tmp_path, "FULL", writes=40, cuts=120, seed=random.Random().randrange(10**6)) == []


@pytest.mark.slow
def test_many_power_cuts_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """The same, at thousands of moments."""
    assert losses(tmp_path, "FULL", writes=300, cuts=3000, seed=random.Random().randrange(10**6)) == []


def test_these_power_cuts_do_find_unsynced_writes(tmp_path: Path) -> None:
    """With SQLite's weaker setting, which does not wait for the disk at each commit, acknowledged writes are lost."""
    assert losses(tmp_path, "NORMAL", writes=40, cuts=60, seed=1) != []
