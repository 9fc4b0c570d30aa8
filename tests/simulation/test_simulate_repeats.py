"""One seed decides everything: the same seed tells the same story, byte for byte."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from holdfast.entrypoints.simulation import HoldfastProgram, Question, answer
from holdfast.simulator.chance import drawn
from holdfast.simulator.run import Run
from holdfast.simulator.scenarios import SCENARIOS
from holdfast.simulator.shrink import shrunk

TRACKERS = re.compile(r"^\S+  (world +(the clock of )?)?(hook|fleet|sweep)")

_TELL = """
from holdfast.entrypoints.simulation import Question, answer
print(*answer(Question({})).story.lines(), sep="\\n")
"""


def story_of(seed: int, hash_seed: str) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _TELL.format(seed)]
    return subprocess.run(command, env=environment, capture_output=True, check=True).stdout


@pytest.mark.parametrize("seed", [3, 17])
def test_two_processes_tell_the_same_story_whatever_their_hash_seeds(seed: int) -> None:
    first, second = story_of(seed, "1"), story_of(seed, "4242")
    assert first.count(b"\n") > 300
    assert b"workflow_jobs" in first
    assert first == second


def test_the_cluster_of_a_seed_does_not_depend_on_its_github() -> None:
    """So a seed stands for the same cluster, whatever becomes of GitHub's half."""
    setup = Question(3).setup()
    whole, alone = (Run(HoldfastProgram(), each).outcome() for each in (setup, replace(setup, github=None)))
    assert whole.tracked.jobs > 5
    assert alone.tracked.jobs == 0
    told = [line for line in whole.story.lines() if not TRACKERS.search(line)]
    assert told == list(alone.story.lines())


def test_two_seeds_tell_two_stories() -> None:
    assert answer(Question(3)).story.digest() != answer(Question(4)).story.digest()


def test_a_run_with_only_some_of_its_faults_meets_no_others() -> None:
    whole = answer(Question(3))
    some = whole.fault_names[::7]
    assert set(answer(Question(3), some).fault_names) <= set(some)


def test_a_fault_is_drawn_by_its_name_alone() -> None:
    """So leaving out one does not change another."""
    assert drawn(7, 1, 2) == drawn(7, 1, 2)
    assert len({drawn(7, 1, number) for number in range(1000)}) == 1000
    assert 0.45 < sum(drawn(5, number) for number in range(2000)) / 2000 < 0.55


def test_shrinking_finds_the_faults_that_are_needed() -> None:
    names = [f"fault-{number}" for number in range(60)]
    needed = {"fault-7", "fault-41"}
    assert set(shrunk(names, lambda kept: needed <= set(kept))) == needed


def test_shrinking_ends_when_its_tries_are_used_up() -> None:
    names = [f"fault-{number}" for number in range(60)]
    assert len(shrunk(names, lambda kept: len(kept) >= 50, most=3)) >= 50


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_breaks_nothing_and_something_happens_in_it(name: str) -> None:
    outcome = answer(Question(scenario=name, faults=Question().faults.NONE))
    assert [str(violation) for violation, _ in outcome.violations] == []
    assert outcome.marks.actions or outcome.marks.notices or outcome.tracked.webhooks >= 5
