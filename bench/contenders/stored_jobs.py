"""Stores with many jobs in them, made quickly: the tracker stores a hundred finished ones, and their rows are copied.

A few jobs are under way, however many are stored: those that have ended pile up, those that have not do not.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any, Final

from holdfast.adapters.system_clock import SystemClock
from holdfast.cluster.tick import tick
from holdfast.entrypoints.wiring.stores import open_store
from holdfast.entrypoints.wiring.world import TICK_SECONDS, open_world
from holdfast.jobs.intake.tracker import Tracker
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import Settings
from holdfast.ports.store.tables import JOBS
from tests.payloads import delivery, job_payload

PATTERNS: Final = 100
UNDER_WAY: Final = 20
REPOSITORIES: Final = 5
_FIRST_JOB: Final = 70_000_000_000
_STEPS: Final = {"queued": 0, "in_progress": 40, "completed": 300}
_APART_SECONDS: Final = 6  # a million jobs in ten weeks: the first has not expired

Row = tuple[Any, ...]


def tick_for(settings: Settings, minutes: int) -> None:
    """Let the simulated cluster run for that long, a tick a minute: data for the timeline."""
    with (
        open_world(settings, changed=None, writable=True) as world,
        closing(open_store(settings, world.clock)) as store,
    ):
        if world.simulated is None:
            raise RuntimeError("this is for the simulated world")
        cluster = world.cluster(settings, store)
        for _ in range(minutes):
            world.simulated.pass_time(TICK_SECONDS)
            tick(cluster, "bench")


def store_jobs(settings: Settings, count: int) -> None:
    """As many jobs as that, the newest of them created a moment ago."""
    file = settings.holdfast_store.path
    if file is None:
        raise RuntimeError("rows are copied in a SQLite file")
    newest = SystemClock().now()
    with closing(open_store(settings)) as store:
        tracker = Tracker(store, SystemClock(), "bench")
        for number in range(min(count, PATTERNS)):
            _send_events(
                tracker, number, newest, "completed" if number >= UNDER_WAY else ("queued", "in_progress")[number % 2]
            )
    with closing(sqlite3.connect(file)) as connection:
        _copy(connection, count - PATTERNS, newest)
        [(found,)] = connection.execute(f"SELECT count(*) FROM {JOBS.name}").fetchall()  # noqa: S608
    if found != count:
        raise RuntimeError(f"{found} jobs are stored, and not {count}")


def _send_events(tracker: Tracker, number: int, newest: Instant, until: str) -> None:
    created = _created(number, newest)
    for action, seconds in _STEPS.items():
        at = created.plus(seconds)
        payload = job_payload(action, at=at, job_id=_FIRST_JOB + number, started=created.plus(40))
        payload["workflow_job"]["created_at"] = created.iso_seconds()
        payload["repository"]["full_name"] = repository(number)
        tracker.receive(delivery("workflow_job", payload, at, number))
        if action == until:
            return


def repository(number: int) -> str:
    return f"acme-corporation/service-{number % REPOSITORIES}"


def _created(number: int, newest: Instant) -> Instant:
    return newest.plus(-600 - number * _APART_SECONDS)


def _copy(connection: sqlite3.Connection, copies: int, newest: Instant) -> None:
    patterns = connection.execute(
        f"SELECT * FROM {JOBS.name} WHERE \"key:GSI1-PK\" LIKE '%#completed' ORDER BY pk"  # noqa: S608
    ).fetchall()
    marks = ", ".join("?" * len(patterns[0])) if patterns else ""
    with connection:
        connection.executemany(
            f"INSERT INTO {JOBS.name} VALUES ({marks})",  # noqa: S608
            islice(_copies(patterns, newest), max(0, copies)),
        )


def _copies(patterns: list[Row], newest: Instant) -> Iterator[Row]:
    """Older and older ones, each with an id and a time of its own."""
    number = PATTERNS
    while True:
        for offset, row in enumerate(patterns, UNDER_WAY):
            was = (str(_FIRST_JOB + offset), _created(offset, newest).iso_seconds())
            now = (str(_FIRST_JOB + number), _created(number, newest).iso_seconds())
            yield tuple(_with(value, was, now) for value in row)
            number += 1


def _with(value: Any, was: tuple[str, str], now: tuple[str, str]) -> Any:
    return value.replace(was[0], now[0]).replace(was[1], now[1]) if isinstance(value, str) else value
