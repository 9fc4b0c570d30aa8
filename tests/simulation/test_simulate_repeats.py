"""One seed decides everything: the same seed gives the same trace, byte for byte."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from holdfast.entrypoints.simulation.program import HoldfastProgram, RunRequest, outcome_of
from holdfast.simulator.proof.run import Run
from holdfast.simulator.proof.scenarios import SCENARIOS
from holdfast.simulator.proof.shrink import shrunk
from holdfast.simulator.world.chance import drawn

TRACKERS = re.compile(r"^\S+  (world +(the clock of )?)?(hook|fleet|sweep)")

_TELL = """
from holdfast.entrypoints.simulation.program import RunRequest, outcome_of
print(*outcome_of(RunRequest({})).story.lines(), sep="\\n")
"""


def trace_of(seed: int, hash_seed: str) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _TELL.format(seed)]
    return subprocess.run(command, env=environment, capture_output=True, check=True).stdout


@pytest.mark.parametrize("seed", [3, 17])
def test_two_processes_print_the_same_trace_whatever_their_hash_seeds(seed: int) -> None:
    first, second = trace_of(seed, "1"), trace_of(seed, "4242")
    assert first.count(b"\n") > 300
    assert b"workflow_jobs" in first
    assert first == second


def test_the_cluster_of_a_seed_does_not_depend_on_its_github() -> None:
    """So a seed stands for the same cluster, whatever changes in the simulated GitHub."""
    setup = RunRequest(3).setup()
    whole, alone = (Run(HoldfastProgram(), each).outcome() for each in (setup, replace(setup, github=None)))
    assert whole.tracked.jobs > 5
    assert alone.tracked.jobs == 0
    cluster_lines = [line for line in whole.story.lines() if not TRACKERS.search(line)]
    assert cluster_lines == list(alone.story.lines())


def test_two_seeds_print_different_traces() -> None:
    assert outcome_of(RunRequest(3)).story.digest() != outcome_of(RunRequest(4)).story.digest()


def test_a_run_with_selected_faults_has_no_others() -> None:
    whole = outcome_of(RunRequest(3))
    some = whole.fault_names[::7]
    assert set(outcome_of(RunRequest(3), some).fault_names) <= set(some)


def test_a_fault_depends_on_its_name_alone() -> None:
    """So leaving out one fault does not change another."""
    assert drawn(7, 1, 2) == drawn(7, 1, 2)
    assert len({drawn(7, 1, number) for number in range(1000)}) == 1000
    assert 0.45 < sum(drawn(5, number) for number in range(2000)) / 2000 < 0.55


def test_shrinking_finds_the_faults_that_are_needed() -> None:
    names = [f"fault-{number}" for number in range(60)]
    needed = {"fault-7", "fault-41"}
    assert set(shrunk(names, lambda kept: needed <= set(kept))) == needed


def test_shrinking_ends_when_its_attempts_are_used_up() -> None:
    names = [f"fault-{number}" for number in range(60)]
    assert len(shrunk(names, lambda kept: len(kept) >= 50, most=3)) >= 50


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_does_something_and_violates_nothing(name: str) -> None:
    outcome = outcome_of(RunRequest(scenario=name, faults=RunRequest().faults.NONE))
    assert [str(violation) for violation, _ in outcome.violations] == []
    assert outcome.plot_events.actions or outcome.plot_events.notices or outcome.tracked.webhooks >= 5
