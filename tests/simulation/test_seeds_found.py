"""Bugs that the simulator found: each seed that once violated an invariant, and what was wrong.

Each seed runs in full, as it did when it failed.
"""

import pytest

from holdfast.entrypoints.simulation.program import RunRequest, outcome_of
from tests.simulation.found_seeds import FOUND


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_once_violated_an_invariant_violates_none(seed: int) -> None:
    outcome = outcome_of(RunRequest(seed))
    assert [str(violation) for violation, _ in outcome.violations] == [], FOUND[seed]
