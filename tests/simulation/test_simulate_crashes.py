"""Killed at the calls of every scenario, with all checkers on; then twice in a row."""

from collections.abc import Iterable

import pytest

from holdfast.entrypoints.simulation.program import HoldfastProgram
from holdfast.simulator.proof.faults import Fault, FaultKind, ScriptedFaults
from holdfast.simulator.proof.run import Run
from holdfast.simulator.proof.scenarios import SCENARIOS
from holdfast.simulator.proof.swarm import Setup
from tools.crashes import (
    EFFECTS,
    WAYS,
    Death,
    calls_of,
    deaths_of,
    distinct_deaths,
    outcome_with,
    pairs_of_deaths,
)

PROGRAM = HoldfastProgram()
SOME = 25  # of the hundreds of combinations of call and failure in a scenario, spread evenly


def broken(name: str, deaths: Iterable[tuple[Death, ...]]) -> tuple[int, list[str]]:
    """The number of runs, and those that violated an invariant."""
    setup = SCENARIOS[name]()
    count, found = 0, []
    for several in deaths:
        outcome = outcome_with(PROGRAM, setup, *several)
        count += 1
        words = ", then ".join(map(str, several))
        found += [f"{name}: {words}: {outcome.violations[0][0]}"] if outcome.violations else []
    return count, found


def each_that_differs(name: str) -> list[Death]:
    """Each call gets no response; each process dies at each point that makes a difference."""
    calls = calls_of(PROGRAM, SCENARIOS[name]())
    return [*(Death(call, FaultKind.LOST) for call in calls), *distinct_deaths(calls)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_dying_or_getting_no_response_at_some_calls_violates_nothing(name: str) -> None:
    deaths = each_that_differs(name)
    count, found = broken(name, ((death,) for death in deaths[:: len(deaths) // SOME]))
    assert found == []
    assert count >= SOME


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SCENARIOS)
def test_dying_or_getting_no_response_at_any_call_violates_nothing(name: str) -> None:
    deaths = each_that_differs(name)
    count, found = broken(name, ((death,) for death in deaths))
    assert found == []
    assert count == len(deaths) > 60


@pytest.mark.parametrize("name", ["scale-up", "plain-job"])
def test_all_deaths_between_the_same_two_effects_have_the_same_result(name: str) -> None:
    """So the deaths that differ stand for all others: those before each call of a process, up to its next effect."""
    setup = SCENARIOS[name]()
    process, last = "", Death(("", 0, "", ""), FaultKind.KILL_BEFORE)
    compared = 0
    for call in calls_of(PROGRAM, setup):
        if call[0] != process:
            process, last = call[0], Death(call, FaultKind.KILL_BEFORE)
        assert events_without_death(setup, Death(call, FaultKind.KILL_BEFORE)) == events_without_death(setup, last)
        compared += 1
        if call[3] in EFFECTS:
            last = Death(call, FaultKind.KILL_AFTER)
    assert compared > 50


def events_without_death(setup: Setup, death: Death) -> list[str]:
    """What happened, except for the death itself."""
    lines = outcome_with(PROGRAM, setup, death).story.lines()
    return [line for line in lines if " ! kill-" not in line and "was killed" not in line]


@pytest.mark.prove
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_way_to_die_at_each_call_violates_nothing(name: str) -> None:
    calls = calls_of(PROGRAM, SCENARIOS[name]())
    count, found = broken(name, ((death,) for death in deaths_of(calls)))
    assert found == []
    assert count == len(calls) * len(WAYS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_deaths_in_a_row_violate_nothing(name: str) -> None:
    count, found = broken(name, pairs_of_deaths(PROGRAM, SCENARIOS[name]()))
    assert found == []
    assert count > 80


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_sleeping_at_any_call_while_others_take_over_violates_nothing(is_after: bool) -> None:
    """A sweep later, another process has retried the run. The refused retry of the late one must not count."""
    setup = SCENARIOS["interrupted-job"]()
    found = []
    for process, number, port, method in calls_of(PROGRAM, setup):
        faults = ScriptedFaults({(process, number): Fault(FaultKind.PAUSE, 340, is_after)})
        outcome = Run(PROGRAM, setup, faults).outcome()
        words = f"{process}, call {number}: {port}.{method}"
        found += [f"{words}: {outcome.violations[0][0]}"] if outcome.violations else []
    assert found == []
