"""Seeds: each its own cluster, load, settings and faults; six hours, all checkers on."""

import pytest

from holdfast.entrypoints.simulation.program import RunRequest, outcome_of
from holdfast.simulator.proof.swarm import Faultiness


def broken(first: int, count: int, faults: Faultiness = Faultiness.WILD) -> list[str]:
    """The command for each seed that breaks an invariant, and what broke."""
    found = []
    for seed in range(first, first + count):
        question = RunRequest(seed, faults)
        outcome = outcome_of(question)
        found += [f"{outcome.violations[0][0]}: {question.command()}"] if outcome.violations else []
    return found


@pytest.mark.parametrize("first", range(1, 51, 10))
def test_ten_seeds_with_wild_faults_violate_nothing(first: int) -> None:
    assert broken(first, 10) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(51, 1001, 50))
def test_fifty_more_seeds_with_wild_faults_violate_nothing(first: int) -> None:
    assert broken(first, 50) == []


@pytest.mark.parametrize("faults", [Faultiness.NONE, Faultiness.MILD])
def test_a_quieter_world_violates_nothing(faults: Faultiness) -> None:
    assert broken(1, 5, faults) == []
