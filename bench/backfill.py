"""Filling the tables from S3: objects a second, CPU of an object, and how both grow with the number of jobs.

Each job has three objects of 2.2 KB. The bucket is made up within the process as it is read, at next to no cost, and
the tables are in a SQLite file on this disk, so the CPU is that of reading webhooks and of writing three tables; the
clients of S3 and DynamoDB come on top. Beside it stands what the same webhooks cost the tracker when they come live, on
as many threads. With a store that forgets everything, what is left is the backfill's own. A second backfill finds
everything there and only reads, and so does a comparison. Each side is a process of its own for each size, so that its
peak of memory is its own.
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
    """The medians of the rounds, for one object; the most memory of all rounds."""

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
    """From what each side cost with so many jobs."""
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
