"""The simulator: virtual days and port calls per second of CPU, with all checkers.

A seed is six virtual hours of a cluster of up to 10 nodes and 100 pods with one tick a minute: four hours with many
faults, and two in which the world heals. The same is measured for a cluster of 200 nodes and 2,000 pods, with fewer
seeds. CPU is that of this process, prepared like each process of a search. Every seed draws its own cluster, load and
faults, so the figure is the mean over the seeds.
"""

import gc
import logging
import time
from dataclasses import replace
from typing import Final

from bench.harness.figures import Figure, Goal, value_at_least
from bench.harness.run import Run
from holdfast.entrypoints.simulation.program import HoldfastProgram
from holdfast.entrypoints.simulation.search import prepare
from holdfast.simulator.proof.run import Outcome
from holdfast.simulator.proof.run import Run as Simulated
from holdfast.simulator.proof.swarm import Faultiness, drawn_setup

# Nodes at most → seeds.
SEEDS: Final = {10: 40, 200: 2}
QUICK_SEEDS: Final = {10: 1}
DAYS_GOAL: Final[dict[int, Goal]] = {10: value_at_least(1.0)}


def measure(run: Run) -> list[Figure]:
    prepare()
    try:
        return [figure for nodes, seeds in _sizes(run).items() for figure in _figures(run, nodes, seeds)]
    finally:
        gc.unfreeze()
        logging.disable(logging.NOTSET)


def _sizes(run: Run) -> dict[int, int]:
    return QUICK_SEEDS if run.quick else SEEDS


def _figures(run: Run, nodes: int, seeds: int) -> list[Figure]:
    days, calls, started = 0.0, 0, time.process_time()
    for seed in range(1, seeds + 1):
        run.progress.step(f"{nodes} nodes: seed {seed} of {seeds}")
        outcome = _simulated(seed, nodes)
        if outcome.violations:
            run.note(f"seed {seed} with {nodes} nodes: {outcome.violations[0][0]}")
        days += outcome.virtual_days
        calls += outcome.port_calls
    cpu_seconds = time.process_time() - started
    return [
        Figure(f"{nodes} nodes: virtual days per CPU-second", days / cpu_seconds, "days/s", goal=DAYS_GOAL.get(nodes)),
        Figure(f"{nodes} nodes: port calls per CPU-second", calls / cpu_seconds, "calls/s"),
        Figure(f"{nodes} nodes: CPU for a seed of six hours", cpu_seconds / seeds, "s"),
    ]


def _simulated(seed: int, nodes: int) -> Outcome:
    setup = drawn_setup(seed, Faultiness.WILD, most_workers=nodes)
    numbers = replace(setup.numbers, max_workers=nodes)
    return Simulated(HoldfastProgram(), replace(setup, numbers=numbers)).outcome()
