"""Killed at every call of every scenario, with all checkers on; then twice in a row."""

from collections.abc import Callable, Iterator

import pytest

from holdfast.entrypoints.simulation import HoldfastProgram
from holdfast.simulator.crashes import WAYS, Death, calls_of, deaths_of, first_deaths, outcome_with, second_deaths
from holdfast.simulator.faults import Fault, Kind, ScriptedFaults
from holdfast.simulator.run import Run
from holdfast.simulator.scenarios import SCENARIOS

PROGRAM = HoldfastProgram()
# One of each kind of action, and GitHub's jobs; `make test-real` takes all.
OFTEN = ("scale-up", "scale-down", "spot", "plain-job", "interrupted-job", "lost-webhook")


def broken(name: str, deaths: Iterator[tuple[Death, ...]]) -> tuple[int, list[str]]:
    """How many runs there were, and those that broke something."""
    setup = SCENARIOS[name]()
    count, found = 0, []
    for several in deaths:
        outcome = outcome_with(PROGRAM, setup, *several)
        count += 1
        words = ", then ".join(map(str, several))
        found += [f"{name}: {words}: {outcome.violations[0][0]}"] if outcome.violations else []
    return count, found


def pairs(name: str) -> Iterator[tuple[Death, ...]]:
    setup = SCENARIOS[name]()
    for first in first_deaths(calls_of(PROGRAM, setup)):
        for second in second_deaths(PROGRAM, setup, first):
            yield first, second


@pytest.mark.timeout(1800)  # a minute of CPU
@pytest.mark.parametrize("name", OFTEN)
def test_dying_at_any_call_breaks_nothing(name: str, record_property: Callable[[str, object], None]) -> None:
    calls = calls_of(PROGRAM, SCENARIOS[name]())
    count, found = broken(name, ((death,) for death in deaths_of(calls)))
    record_property("points", count)
    assert found == []
    assert count == len(calls) * len(WAYS) > 100, "every call, each way"


@pytest.mark.prove
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in OFTEN])
def test_dying_at_any_call_of_the_other_scenarios_breaks_nothing(name: str) -> None:
    calls = calls_of(PROGRAM, SCENARIOS[name]())
    count, found = broken(name, ((death,) for death in deaths_of(calls)))
    assert found == []
    assert count == len(calls) * len(WAYS)


@pytest.mark.prove
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OFTEN)
def test_two_deaths_in_a_row_break_nothing(name: str) -> None:
    count, found = broken(name, pairs(name))
    assert found == []
    assert count > 400


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
