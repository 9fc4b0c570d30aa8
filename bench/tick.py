"""One tick of a large cluster: CPU time and peak memory, for 100, 1,000 and 5,000 nodes with 30 pods each.

The API server sends its lists over TLS in pages of 500 objects, about 6 KB for a pod and 8 KB for a node. The
machines come from the simulated EC2 behind EC2's query protocol, with only the fields that Holdfast reads. Prometheus
answers immediately. All of them run in another process, whose CPU is not counted. A quiet tick is a complete one with
nothing to do; an idle one ends with the plan, and must choose a worker to remove among all of them. The reference is
the cost of the responses alone: urllib3 reads the same pages, msgspec decodes them without a schema, boto3 lists the
machines, and everything is dropped at once, without garbage collection. Each contender runs in its own process for
each size, to measure its own peak memory.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.contenders import cluster_server
from bench.harness.figures import Figure, Goal, ratio_at_most, value_at_most
from bench.harness.measuring import Contender, Sample, in_turns
from bench.harness.run import Run
from tests.servers import processes

# Nodes → rounds.
SIZES: Final = {100: 7, 1000: 3, 5000: 2}
QUICK_SIZES: Final = {10: 1, 20: 1}

FLOOR_GOAL: Final = ratio_at_most(3)
LINEAR_GOAL: Final = ratio_at_most(1.3)
MEMORY_GOALS: Final = {5000: value_at_most(400)}

TICKS: Final = {"quiet": "quiet_tick", "idle": "look_for_leavers"}
BARE: Final = "bare_reading"


def measure(run: Run) -> list[Figure]:
    sizes = QUICK_SIZES if run.quick else SIZES
    measured = {nodes: _measured(run, nodes, rounds) for nodes, rounds in sizes.items()}
    return figures(measured)


def figures(measured: dict[int, "Costs"]) -> list[Figure]:
    """The figures, from the cost of each contender by number of nodes."""
    return [*_costs(measured), *_growth(measured)]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one round: median CPU, and peak memory of all rounds."""

    cpu_seconds: float
    peak_mb: float


Costs = dict[str, Cost]


class Side:
    """A process that runs one round on request."""

    def __init__(self, name: str, directory: Path) -> None:
        command = [sys.executable, "-m", "bench.contenders.cluster_sides", name, str(directory)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.peak_mb = 0.0

    def once(self) -> Sample:
        answer = self._ask()
        self.peak_mb = answer["peak_mb"]
        return Sample(1, answer["seconds"], answer["cpu_seconds"])

    def close(self) -> None:
        with self._process:  # closes its input, which ends it
            pass

    def _ask(self) -> dict[str, Any]:
        requests, responses = self._process.stdin, self._process.stdout
        if requests is None or responses is None:
            raise RuntimeError("the process has no pipes")
        print(file=requests, flush=True)
        line = responses.readline()
        if not line:
            raise RuntimeError("a side ended in the middle of a round; its last words are above")
        return dict(json.loads(line))


def _measured(run: Run, nodes: int, rounds: int) -> Costs:
    """The costs of each side, by its name."""
    directory = run.directory / str(nodes)
    directory.mkdir()
    run.progress.step(f"{nodes:,} nodes: starting")
    program = [sys.executable, "-m", "bench.contenders.cluster_server", str(directory), str(nodes)]
    server = processes.start(
        "cluster", lambda _: program, directory, ready=lambda _: cluster_server.is_ready(directory)
    )
    with ExitStack() as opened:
        opened.callback(server.stop)
        sides = {name: opened.enter_context(closing(Side(name, directory))) for name in (*TICKS.values(), BARE)}
        contenders: dict[str, Contender] = {name: side.once for name, side in sides.items()}
        samples = in_turns(run.progress, f"{nodes:,} nodes", contenders, rounds)
    return {
        name: Cost(median(sample.cpu_seconds for sample in samples[name]), side.peak_mb) for name, side in sides.items()
    }


def _costs(measured: dict[int, Costs]) -> Iterator[Figure]:
    for nodes, costs in measured.items():
        bare = costs[BARE]
        for kind, name in TICKS.items():
            what = f"{nodes:,} nodes, {kind} tick"
            cpu_ms = costs[name].cpu_seconds * 1000
            yield Figure(f"{what}: CPU, beside reading alone", cpu_ms, "ms", bare.cpu_seconds * 1000, FLOOR_GOAL)
            peak, goal = costs[name].peak_mb, MEMORY_GOALS.get(nodes)
            yield Figure(f"{what}: peak of memory, beside reading alone", peak, "MB", bare.peak_mb, goal)


def _growth(measured: dict[int, Costs]) -> Iterator[Figure]:
    """CPU per node of each size compared to the previous size. Fixed costs dominate the smallest."""
    sizes = list(measured)
    for fewer, more in pairwise(sizes):
        goal: Goal | None = LINEAR_GOAL if more == sizes[-1] else None
        for kind, name in TICKS.items():
            what = f"{kind} tick: CPU per node with {more:,} nodes, beside {fewer:,}"
            before, after = (measured[nodes][name].cpu_seconds / nodes * 1e6 for nodes in (fewer, more))
            yield Figure(what, after, "µs", before, goal)
