"""Backfill of the tables from S3: objects per second, CPU per object, and how both grow with the number of jobs.

Each job has three objects of 2.2 KB. The process generates the bucket as it is read, at almost no cost, and the
tables are in a SQLite file on this disk. So the CPU is that of reading webhooks and writing three tables, without the
clients of S3 and DynamoDB. The reference is the tracker receiving the same webhooks live, with the same number of
threads. A store that keeps nothing shows the cost of the backfill itself. A second backfill finds everything stored
and only reads, and so does a comparison. Each contender runs in its own process for each size, to measure its own
peak memory.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

from bench.contenders.backfill_sides import FORGETFUL, SIDES, STATUSES
from bench.harness.figures import Figure, ratio_at_most
from bench.harness.run import Run

# Jobs → rounds.
SIZES: Final = {1_000: 3, 4_000: 2, 16_000: 1}
QUICK_SIZES: Final = {20: 1, 40: 1}

# Several threads share one interpreter, and each job is looked for before it is written.
LIVE_GOAL: Final = ratio_at_most(2)
LINEAR_GOAL: Final = ratio_at_most(1.3)
FLAT_GOAL: Final = ratio_at_most(1.1)


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians over the rounds, for one object; peak memory of all rounds."""

    per_second: float
    cpu_us: float
    peak_mb: float


Costs = dict[str, Cost]


def measure(run: Run) -> list[Figure]:
    sizes = QUICK_SIZES if run.quick else SIZES
    return figures(
        {jobs: {side: _measured(run, side, jobs, rounds) for side in SIDES} for jobs, rounds in sizes.items()}
    )


def figures(measured: dict[int, Costs]) -> list[Figure]:
    """The figures, from the cost of each contender by number of jobs."""
    return [*_costs(measured), *_growth(measured)]


def _costs(measured: dict[int, Costs]) -> Iterator[Figure]:
    for jobs, costs in measured.items():
        live = costs["live"]
        for side, cost in costs.items():
            if side != "live":
                what = f"{jobs:,} jobs, {side}"
                goal = LIVE_GOAL if side == "backfill" else None
                yield Figure(f"{what}: CPU of an object, beside a live webhook", cost.cpu_us, "µs", live.cpu_us, goal)
                yield Figure(f"{what}: objects a second, beside live webhooks", cost.per_second, "/s", live.per_second)


def _growth(measured: dict[int, Costs]) -> Iterator[Figure]:
    for (fewer, before), (more, after) in pairwise(measured.items()):
        for side in SIDES:
            what = f"{side} of {more:,} jobs, beside {fewer:,}"
            yield Figure(f"{what}: CPU of an object", after[side].cpu_us, "µs", before[side].cpu_us, LINEAR_GOAL)
            goal = FLAT_GOAL if side == FORGETFUL else None  # elsewhere, SQLite's cache fills up
            yield Figure(f"{what}: peak of memory", after[side].peak_mb, "MB", before[side].peak_mb, goal)


def _measured(run: Run, side: str, jobs: int, rounds: int) -> Cost:
    costs = []
    for number in range(rounds):
        run.progress.step(f"{jobs:,} jobs: {side}, round {number + 1} of {rounds}")
        directory = run.directory / f"{side}-{jobs}-{number}"
        directory.mkdir()
        costs.append(_once(side, jobs, directory))
    return Cost(
        median(cost.per_second for cost in costs),
        median(cost.cpu_us for cost in costs),
        max(cost.peak_mb for cost in costs),
    )


def _once(side: str, jobs: int, directory: Path) -> Cost:
    command = [sys.executable, "-m", "bench.contenders.backfill_sides", side, str(jobs), str(directory)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    said = json.loads(done.stdout)
    objects = jobs * len(STATUSES)
    return Cost(objects / said["seconds"], said["cpu_seconds"] / objects * 1e6, said["peak_mb"])
