"""Durable conditional updates: how many per second, and the CPU of each.

The update is that of a tick taking its lease: read an item of about 600 bytes, check two attributes, change two, and
return when it is on the disk. On SQLite, 1, 16 and 64 threads do this at once; the reference is bare `sqlite3` on one
thread with a transaction for each update. On DynamoDB Local, 1 and 16 threads do it through boto3 and through the
lean client; the reference is bare boto3 sending the same requests. CPU is that of this process, user and system. Many
writers gain by sharing the wait for the disk: the faster the disk, the smaller the gain. The smallest possible group
commit, bare `sqlite3` with a queue and a leader, shows how much there is to gain.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Final

from bench.contenders.disk import Disk
from bench.contenders.dynamodb import BareBoto3, OurDynamo, client_of
from bench.contenders.leases import Leases, Size
from bench.contenders.sqlite import BareGroups, BareSqlite, OurSqlite
from bench.harness.figures import Figure, Goal, ratio_at_least, ratio_at_most, value_at_least
from bench.harness.measuring import Contender, Sample, in_turns
from bench.harness.run import Run
from holdfast.adapters.sqlite import Driver, StandardDriver, best_driver
from tests.servers import dynamodb_local

SQLITE: Final = Size(items=1024, updates_each={1: 192, 16: 64, 64: 64}, rounds=41)
DYNAMODB: Final = Size(items=64, updates_each={1: 64, 16: 8}, rounds=41)
QUICK_SQLITE: Final = Size(items=64, updates_each={1: 8, 16: 2, 64: 2}, rounds=1)
QUICK_DYNAMODB: Final = Size(items=16, updates_each={1: 4, 16: 1}, rounds=1)

SQLITE_CPU_GOALS: Final = {1: ratio_at_most(2.5), 64: ratio_at_most(1.5)}
MANY_WRITERS_GOAL: Final = ratio_at_least(4)
PER_COMMIT_GOALS: Final = {64: value_at_least(16)}
DYNAMODB_CPU_GOALS: Final = {
    "DynamoDB by boto3": ratio_at_most(1.15),
    "DynamoDB by the lean client": ratio_at_most(0.33),
}


def measure(run: Run) -> list[Figure]:
    return [*sqlite_figures(run), *dynamodb_figures(run)]


# SQLite


class CountedSqlite:
    """Our SQLite through one driver, and the commits that its updates shared."""

    def __init__(self, run: Run, driver: Driver, size: Size) -> None:
        self.driver = driver
        self.side = OurSqlite(run.directory / f"{driver.name}.db", driver)
        self.leases = Leases(self.side, size)

    def taken_by(self, writers: int) -> Sample:
        before = self.side.rows.commits
        sample = self.leases.taken_by(writers)
        return replace(sample, commits=self.side.rows.commits - before)


def sqlite_figures(run: Run) -> Iterator[Figure]:
    size = QUICK_SQLITE if run.quick else SQLITE
    default = best_driver()
    drivers: list[Driver] = [default] if default.name == StandardDriver().name else [default, StandardDriver()]
    with ExitStack() as opened:
        run.progress.step("SQLite: putting the items")
        bare = opened.enter_context(closing(BareSqlite(run.directory / "bare.db")))
        ours = [CountedSqlite(run, driver, size) for driver in drivers]
        for each in ours:
            opened.enter_context(closing(each.side))
        groups = opened.enter_context(closing(BareGroups(run.directory / "groups.db")))
        leases, grouped = Leases(bare, size), Leases(groups, size)
        disk = opened.enter_context(closing(Disk(run.directory / "bare.file", size)))
        contenders: dict[str, Contender] = {
            "the disk": disk.waited_for,
            "bare sqlite3": partial(leases.taken_by, 1),
            "bare groups of 1": partial(grouped.taken_by, 1),
            "bare groups": partial(grouped.taken_by, max(size.updates_each)),
        }
        for each in ours:
            contenders |= {_name(each, writers): partial(each.taken_by, writers) for writers in size.updates_each}
        samples = in_turns(run.progress, "SQLite", contenders, size.rounds)
        for checked in (leases, grouped, *(each.leases for each in ours)):
            checked.check()
    wait_us = median(1e6 / sample.per_second for sample in samples["the disk"])
    yield Figure("the disk: writing 4 KB and waiting until they are on it", wait_us, "µs")
    (least, _), (most, _) = _medians(samples["bare groups of 1"]), _medians(samples["bare groups"])
    yield Figure(
        f"the least that shares a commit, {_writers(max(size.updates_each))}: beside 1 writer", most, "/s", least
    )
    for each in ours:
        of_driver = {writers: samples[_name(each, writers)] for writers in size.updates_each}
        yield from _figures_of(each, of_driver, samples["bare sqlite3"], is_default=each.driver is default)


def _figures_of(
    ours: CountedSqlite, samples: dict[int, list[Sample]], bare: list[Sample], *, is_default: bool
) -> Iterator[Figure]:
    """The figures by the number of writers. The goals are those of the default driver."""

    def goal(wanted: Goal | None) -> Goal | None:
        return wanted if is_default else None

    bare_rate, bare_cpu_us = _medians(bare)
    alone_rate, _ = _medians(samples[1])
    for writers, measured in samples.items():
        name = _name(ours, writers)
        rate, cpu_us = _medians(measured)
        per_commit = median(sample.operations / sample.commits for sample in measured)
        cpu_goal, commit_goal = goal(SQLITE_CPU_GOALS.get(writers)), goal(PER_COMMIT_GOALS.get(writers))
        yield Figure(f"{name}: updates, beside bare sqlite3", rate, "/s", bare_rate)
        if writers == max(samples):
            yield Figure(f"{name}: updates, beside 1 writer", rate, "/s", alone_rate, goal(MANY_WRITERS_GOAL))
        yield Figure(f"{name}: CPU per update, beside bare sqlite3", cpu_us, "µs", bare_cpu_us, cpu_goal)
        yield Figure(f"{name}: updates per commit", per_commit, "updates", goal=commit_goal)


def _name(ours: CountedSqlite, writers: int) -> str:
    return f"SQLite by {ours.driver.name}, {_writers(writers)}"


# DynamoDB


def dynamodb_figures(run: Run) -> Iterator[Figure]:
    size = QUICK_DYNAMODB if run.quick else DYNAMODB
    run.progress.step("DynamoDB: starting DynamoDB Local")
    try:
        server = dynamodb_local.start(run.directory)
    except dynamodb_local.Unavailable as reason:
        run.note(f"DynamoDB is left out: {reason}")
        return
    with ExitStack() as opened:
        opened.callback(server.stop)
        client = client_of(server.url)
        ours = opened.enter_context(closing(OurDynamo.over(client)))
        lean = opened.enter_context(closing(OurDynamo.lean(server.url)))
        sides = {
            "DynamoDB by boto3": Leases(ours, size),
            "DynamoDB by the lean client": Leases(lean, size),
            "bare boto3": Leases(BareBoto3(client), size),
        }
        contenders = {
            f"{name}, {_writers(writers)}": partial(leases.taken_by, writers)
            for writers in size.updates_each
            for name, leases in sides.items()
        }
        samples = in_turns(run.progress, "DynamoDB", contenders, size.rounds)
        for leases in sides.values():
            leases.check()
    for writers in size.updates_each:
        bare_rate, bare_cpu_us = _medians(samples[f"bare boto3, {_writers(writers)}"])
        for side, goal in DYNAMODB_CPU_GOALS.items():
            name = f"{side}, {_writers(writers)}"
            rate, cpu_us = _medians(samples[name])
            yield Figure(f"{name}: updates, beside bare boto3", rate, "/s", bare_rate)
            yield Figure(f"{name}: CPU per update, beside bare boto3", cpu_us, "µs", bare_cpu_us, goal)


def _writers(number: int) -> str:
    return "1 writer" if number == 1 else f"{number} writers"


def _medians(samples: list[Sample]) -> tuple[float, float]:
    """Operations per second, and CPU µs of one."""
    return median(sample.per_second for sample in samples), median(sample.cpu_us for sample in samples)
