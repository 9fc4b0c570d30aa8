"""Webhooks stored durably over HTTP: CPU of the server process for each, and latency with 16 in flight.

The deliveries are 7 to 14 KB: of a hundred, 30 queued, 30 in_progress, 30 completed, 3 waiting, 5 workflow_run, and 2
duplicates. On SQLite, the reference for `holdfast serve` is the minimum that does the same work: uvicorn, one HMAC,
msgspec, and the same rows by bare SQL in shared transactions; at the end, the stored items of both are compared one by
one. On DynamoDB Local, the reference is Holdfast with boto3 as its client. CPU is user and system time of the server
process only, without the sender and DynamoDB.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from bench.contenders.dynamodb import client_of
from bench.contenders.ingest_sides import IN_FLIGHT, Side, bare, ours
from bench.harness.figures import Figure, Goal, ratio_at_most
from bench.harness.measuring import Contender, Sample, in_turns
from bench.harness.run import Run
from holdfast.adapters.dynamodb.boto3_transport import Boto3Transport
from holdfast.adapters.dynamodb.calls import DynamoCalls
from holdfast.adapters.dynamodb.tables import DynamoTables
from holdfast.adapters.system_clock import SystemClock
from holdfast.ports.store import Item
from holdfast.ports.store.admin import CreateTable
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, RUNS, TABLES
from tests.servers import dynamodb_local

# Rounds, and blocks of a hundred deliveries in each. The system counts CPU in hundredths of a second.
SQLITE: Final = (9, 20)
DYNAMODB: Final = (7, 5)
QUICK: Final = (1, 1)

# Attributes that are each side's own: its clock, its name, its marks.
_OWN: Final = frozenset(
    {"SK", "dl", "gates", "queued_ms", "received_at", "received_by", "rk", "ttl", "updated_at", "waiting_ms"}
)

SQLITE_CPU_GOAL: Final = ratio_at_most(1.8)
DYNAMODB_CPU_GOAL: Final = ratio_at_most(1 / 3)


def measure(run: Run) -> list[Figure]:
    return [*sqlite_figures(run), *dynamodb_figures(run)]


def sqlite_figures(run: Run) -> Iterator[Figure]:
    rounds, blocks = QUICK if run.quick else SQLITE
    run.progress.step("SQLite: starting both servers")
    file = run.directory / "ours" / "holdfast.db"
    with ExitStack() as opened:
        floor = Side(bare(run.directory / "bare"), blocks)
        opened.callback(floor.server.stop)
        served = Side(ours(run.directory / "ours", f"sqlite:{file}"), blocks)
        opened.callback(served.server.stop)
        samples = _in_turns(run, "SQLite", {"ours": served, "bare": floor}, rounds)
    _check_rows(file, run.directory / "bare" / "bare.db")
    yield from _figures("SQLite", "a bare server", samples, (served, floor), SQLITE_CPU_GOAL)


def dynamodb_figures(run: Run) -> Iterator[Figure]:
    rounds, blocks = QUICK if run.quick else DYNAMODB
    run.progress.step("DynamoDB: starting DynamoDB Local")
    try:
        server = dynamodb_local.start(run.directory)
    except dynamodb_local.Unavailable as reason:
        run.note(f"DynamoDB is left out: {reason}")
        return
    with ExitStack() as opened:
        opened.callback(server.stop)
        sides = {}
        for name in ("lean", "boto3"):
            settings = _dynamodb_settings(server.url, name)
            sides[name] = Side(ours(run.directory / name, "dynamodb:", DYNAMODB_CLIENT=name, **settings), blocks)
            opened.callback(sides[name].server.stop)
        samples = _in_turns(run, "DynamoDB", {"ours": sides["lean"], "bare": sides["boto3"]}, rounds)
    yield from _figures("DynamoDB", "boto3", samples, (sides["lean"], sides["boto3"]), DYNAMODB_CPU_GOAL)


def _dynamodb_settings(url: str, name: str) -> dict[str, str]:
    """A separate database for each contender, by its access key, with all tables."""
    tables = DynamoTables(DynamoCalls(Boto3Transport(client_of(url, name)), SystemClock()))
    for table in TABLES:
        tables.carry_out(CreateTable(table))
    return {
        "AWS_ENDPOINT_URL_DYNAMODB": url,
        "AWS_ACCESS_KEY_ID": name,
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "PATH": os.environ.get("PATH", ""),
    }


def _in_turns(run: Run, subject: str, sides: dict[str, Side], rounds: int) -> dict[str, list[Sample]]:
    contenders: dict[str, Contender] = {name: side.round for name, side in sides.items()}
    return in_turns(run.progress, subject, contenders, rounds)


def _figures(
    name: str, reference: str, samples: dict[str, list[Sample]], sides: tuple[Side, Side], goal: Goal
) -> Iterator[Figure]:
    cpu_us, floor_us = (median(sample.cpu_us for sample in samples[side]) for side in ("ours", "bare"))
    rate, floor_rate = (median(sample.per_second for sample in samples[side]) for side in ("ours", "bare"))
    yield Figure(f"{name}: CPU per delivery, beside {reference}", cpu_us, "µs", floor_us, goal)
    yield Figure(f"{name}: deliveries with {IN_FLIGHT} in flight, beside {reference}", rate, "/s", floor_rate)
    for percent in (50, 99):
        took, floor_took = (quantiles(side.latencies_ms, n=100)[percent - 1] for side in sides)
        yield Figure(f"{name}: p{percent} with {IN_FLIGHT} in flight, beside {reference}", took, "ms", floor_took)


def _check_rows(*files: Path) -> None:
    """Check that both have done the same work."""
    ours, bare = (_items(file) for file in files)
    for table, items in ours.items():
        if len(items) != len(bare[table]):
            raise RuntimeError(
                f"the two sides did different work: {table} has {len(items)} and {len(bare[table])} items"
            )
        for item, other in zip(items, bare[table], strict=True):
            if item != other:
                raise RuntimeError(f"the two sides did different work: {table} has {item}, and {other}")


def _order(item: Item) -> tuple[str, str, bool, bool]:
    """By key and delivery; a run's own item comes after its jobs, and those with a gate after the others."""
    return item["PK"], item.get("delivery", ""), "status" in item, "gates" in item


def _items(file: Path) -> dict[str, list[Item]]:
    """What is stored of jobs, in one order. Of what tells one process, or one way to count time, from another: that it
    is there."""
    connection = sqlite3.connect(file)
    try:
        found = {}
        for table in (JOBS, JOB_EVENTS, RUNS, DEPLOYMENTS):
            rows = connection.execute(f"SELECT item FROM {table.name}").fetchall()  # noqa: S608
            items = [{name: "" if name in _OWN else v for name, v in json.loads(text).items()} for (text,) in rows]
            found[table.name] = sorted(items, key=_order)
        return found
    finally:
        connection.close()
