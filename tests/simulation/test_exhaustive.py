"""Two invocations at once over a small world, in every order of their calls up to a number of switches."""

from collections.abc import Iterator

import pytest

from holdfast.entrypoints.simulation.program import HoldfastProgram
from holdfast.simulator.proof.scenarios import JOB_SCENARIOS, SCENARIOS
from tests.simulation.interleavings import outcome_of_turns, schedules

OF_CLUSTER = [name for name in SCENARIOS if name not in JOB_SCENARIOS]
TICKS = range(8)
# At least this many schedules of two switches.
LEAST = {
    "scale-up": 400,
    "partial-launch": 500,
    "no-capacity": 1000,
    "join-timeout": 200,
    "below-minimum": 450,
    "scale-down": 1000,
    "scale-down-in-one-go": 5000,
    "api-away": 400,
    "spot-at-maximum": 700,
    "drain-blocked": 1200,
    "persons-cordon": 1000,
    "critical-pod": 450,
    "spot": 450,
    "spot-storm": 1200,
    "spot-during-drain": 1400,
    "spot-during-scale-up": 1500,
    "interrupted-replacement": 1000,
    "rebalance": 750,
    "hint-preferred": 450,
    "pause": 600,
    "node-anew": 550,
    "nodes-anew": 500,
    "nodes-anew-in-scale-down": 650,
}
SMALL = ("scale-up", "join-timeout", "spot", "critical-pod")  # all orders of three switches take seconds
QUICK = ("scale-up", "join-timeout", "spot")  # all orders of two switches take a moment
QUIET_STEPS = 24  # two ticks that find nothing to do take no more


def busy_ticks(name: str) -> Iterator[tuple[int, list[int]]]:
    """The ticks of a scenario that act, and the number of steps that each of two concurrent ticks takes."""
    for tick in TICKS:
        _, steps = outcome_of_turns(HoldfastProgram(), SCENARIOS[name](), tick, ())
        if sum(steps) > QUIET_STEPS:
            yield tick, steps


def broken(name: str, switches: int, *, settles: bool = False) -> tuple[int, list[str]]:
    """The number of schedules that ran, and those that broke an invariant."""
    count, found = 0, []
    for tick, steps in busy_ticks(name):
        for schedule in schedules(steps, switches):
            outcome, _ = outcome_of_turns(HoldfastProgram(), SCENARIOS[name](), tick, schedule, settles=settles)
            count += 1
            found += [f"{name}, tick {tick}, {schedule}: {outcome.violations[0][0]}"] if outcome.violations else []
    return count, found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in OF_CLUSTER]
)
def test_two_invocations_break_nothing_in_any_order_of_two_switches(name: str) -> None:
    count, found = broken(name, switches=2)
    assert found == []
    assert count >= LEAST[name]


def test_there_are_more_than_ten_thousand_schedules_of_two_switches() -> None:
    """The test of each scenario checks that scenario's share."""
    assert set(LEAST) == set(OF_CLUSTER)
    assert sum(LEAST.values()) > 10_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OF_CLUSTER)
def test_two_invocations_break_nothing_and_all_settles_in_any_order_of_one_switch(name: str) -> None:
    count, found = broken(name, switches=1, settles=True)
    assert found == []
    assert count > 0


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SMALL else pytest.mark.prove) for name in OF_CLUSTER]
)
def test_two_invocations_break_nothing_in_any_order_of_three_switches(name: str) -> None:
    count, found = broken(name, switches=3)
    assert found == []
    assert count >= 1000


def test_schedules_are_all_ways_to_share_the_steps() -> None:
    assert list(schedules((2, 3), 0)) == [()]
    assert list(schedules((2, 3), 1)) == [(1,), (2,)]
    assert list(schedules((2, 2), 2)) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert len(list(schedules((5, 5), 3))) == 5 * (4 + 3 + 2 + 1)
