"""Killed at every call of every scenario, with all checkers on; then twice in a row."""

from collections.abc import Iterable

import pytest

from holdfast.entrypoints.simulation import HoldfastProgram
from holdfast.simulator.crashes import (
    EFFECTS,
    WAYS,
    Death,
    calls_of,
    deaths_of,
    distinct_deaths,
    outcome_with,
    pairs_of_deaths,
)
from holdfast.simulator.faults import Fault, Kind, ScriptedFaults
from holdfast.simulator.run import Run
from holdfast.simulator.scenarios import SCENARIOS
from holdfast.simulator.swarm import Setup

PROGRAM = HoldfastProgram()


def broken(name: str, deaths: Iterable[tuple[Death, ...]]) -> tuple[int, list[str]]:
    """How many runs there were, and those that broke something."""
    setup = SCENARIOS[name]()
    count, found = 0, []
    for several in deaths:
        outcome = outcome_with(PROGRAM, setup, *several)
        count += 1
        words = ", then ".join(map(str, several))
        found += [f"{name}: {words}: {outcome.violations[0][0]}"] if outcome.violations else []
    return count, found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SCENARIOS)
def test_dying_or_getting_no_answer_at_any_call_breaks_nothing(name: str) -> None:
    """Each call gets no answer; each process dies at each point that differs."""
    calls = calls_of(PROGRAM, SCENARIOS[name]())
    lost = [Death(call, Kind.LOST) for call in calls]
    deaths = list(distinct_deaths(calls))
    count, found = broken(name, ((death,) for death in (*lost, *deaths)))
    assert found == []
    assert count == len(calls) + len(deaths) > 60


@pytest.mark.parametrize("name", ["scale-up", "plain-job"])
def test_dying_between_two_effects_is_the_same_wherever_it_is(name: str) -> None:
    """So that the deaths that differ stand for all others: before each call of a process, up to its next effect."""
    setup = SCENARIOS[name]()
    process, last = "", Death(("", 0, "", ""), Kind.KILL_BEFORE)
    compared = 0
    for call in calls_of(PROGRAM, setup):
        if call[0] != process:
            process, last = call[0], Death(call, Kind.KILL_BEFORE)
        assert told(setup, Death(call, Kind.KILL_BEFORE)) == told(setup, last)
        compared += 1
        if call[3] in EFFECTS:
            last = Death(call, Kind.KILL_AFTER)
    assert compared > 50


def told(setup: Setup, death: Death) -> list[str]:
    """What happened, but for the death itself."""
    lines = outcome_with(PROGRAM, setup, death).story.lines()
    return [line for line in lines if " ! kill-" not in line and "was killed" not in line]


@pytest.mark.prove
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_way_to_die_at_each_call_breaks_nothing(name: str) -> None:
    calls = calls_of(PROGRAM, SCENARIOS[name]())
    count, found = broken(name, ((death,) for death in deaths_of(calls)))
    assert found == []
    assert count == len(calls) * len(WAYS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_deaths_in_a_row_break_nothing(name: str) -> None:
    count, found = broken(name, pairs_of_deaths(PROGRAM, SCENARIOS[name]()))
    assert found == []
    assert count > 80


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_sleeping_at_any_call_while_others_take_over_breaks_nothing(is_after: bool) -> None:
    """A sweep later somebody else has dealt with the run. That its retry was refused to the late one must not count."""
    setup = SCENARIOS["interrupted-job"]()
    found = []
    for process, number, port, method in calls_of(PROGRAM, setup):
        faults = ScriptedFaults({(process, number): Fault(Kind.PAUSE, 340, is_after)})
        outcome = Run(PROGRAM, setup, faults).outcome()
        words = f"{process}, call {number}: {port}.{method}"
        found += [f"{words}: {outcome.violations[0][0]}"] if outcome.violations else []
    assert found == []
