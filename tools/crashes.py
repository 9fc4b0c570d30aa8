"""Dying at every call: a scenario is run once undisturbed, and then again for each of its calls and each way to die.

Then two deaths in a row: the process after the first dies too, at each of its own calls.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.simulator.proof.faults import Fault, FaultKind, ScriptedFaults
from holdfast.simulator.proof.run import Outcome, Program, Run
from holdfast.simulator.proof.swarm import Setup

WAYS: Final = (FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER, FaultKind.LOST)
EFFECTS: Final = frozenset(
    {
        *("update", "transact", "put", "delete"),
        *("launch", "mark_accepted", "terminate", "change_node", "evict", "delete_node", "delete_secret"),
        *("redeliver", "rerun_failed_jobs"),
    }
)
Call = tuple[str, int, str, str]  # process, number of the call, port, method


@dataclass(frozen=True, slots=True)
class Death:
    """Something goes wrong at one call."""

    call: Call
    way: FaultKind

    def __str__(self) -> str:
        process, number, port, method = self.call
        return f"{self.way} at {process}, call {number}: {port}.{method}"


def calls_of(program: Program, setup: Setup) -> list[Call]:
    """The calls of an undisturbed run, up to the end of the last process that changed anything but the log."""
    calls = Run(program, setup, ScriptedFaults({}), recorded=True).outcome().calls
    changing = [process for process, _, _, method in calls if method in EFFECTS and method != "put"]
    last = max(position for position, call in enumerate(calls) if call[0] == changing[-1])
    return calls[: last + 1]


def deaths_of(calls: list[Call]) -> Iterator[Death]:
    """Each call, each way. A call that changes nothing can lose its answer as well."""
    for call in calls:
        for way in WAYS:
            yield Death(call, way)


def outcome_with(program: Program, setup: Setup, *deaths: Death, recorded: bool = False) -> Outcome:
    script = {(death.call[0], death.call[1]): Fault(death.way) for death in deaths}
    return Run(program, setup, ScriptedFaults(script), recorded=recorded).outcome()


def distinct_deaths(calls: list[Call]) -> Iterator[Death]:
    """Each process dies before its first effect, and after each one: what it only reads in between changes nothing.

    So to die anywhere else is the same as one of these.
    """
    met: set[str] = set()
    for call in calls:
        if call[3] in EFFECTS:
            if call[0] not in met:
                yield Death(call, FaultKind.KILL_BEFORE)
            met.add(call[0])
            yield Death(call, FaultKind.KILL_AFTER)


def pairs_of_deaths(program: Program, setup: Setup) -> Iterator[tuple[Death, Death]]:
    """Two deaths in a row: one process dies, and then whichever comes after it, at each of its own calls."""
    for first in distinct_deaths(calls_of(program, setup)):
        calls = outcome_with(program, setup, first, recorded=True).calls
        names = list(dict.fromkeys(call[0] for call in calls))
        following = names[names.index(first.call[0]) + 1 :][:1]
        for second in distinct_deaths([call for call in calls if call[0] in following]):
            yield first, second
