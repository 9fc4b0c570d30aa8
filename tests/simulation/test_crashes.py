"""Killed at any call, or with its response lost: the next tick continues, and nothing differs in the end.

Each scenario runs once undisturbed. Then, from just before each of its ticks, it runs again and again: once for
each moment at which a process could die there, and once for each response that could be lost. A process that dies
between two effects leaves the same world wherever it was, so it is killed before each effect, and after the last one.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import RLock

import pytest

from holdfast.kernel.errors import StoreUnavailable
from holdfast.ports.kube import KubeUnavailable
from holdfast.ports.machines import MachineError
from holdfast.simulator.proof.processes import Killed
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.harness import Stage
from tests.simulation.scenarios import SCENARIOS, Scenario

EFFECTS = frozenset(
    {"update", "put", "transact", "launch", "terminate", "mark_accepted", "change_node", "evict", "delete_node"}
    | {"delete_secret"}
)
LOST: dict[str, Callable[[], Exception]] = {
    "store": lambda: StoreUnavailable("no answer"),
    "machines": lambda: MachineError("RequestTimeout", "no answer"),
    "kube": lambda: KubeUnavailable("no answer"),
}


@dataclass(frozen=True)
class Look:
    """The world just before a tick, and the calls that the tick makes."""

    before: Stage
    calls: list[PortCall]


def fork(stage: Stage) -> Stage:
    """An independent copy of the world."""
    lock = stage.store._rows._lock  # type: ignore[attr-defined]
    return copy.deepcopy(stage, {id(lock): RLock()})


def looks(scenario: Scenario) -> Iterator[Look]:
    """Every tick of an undisturbed run; of several in a row that make the same calls, the first."""
    stage = scenario.begin()
    last: list[tuple[str, str]] = []
    for _ in range(120):
        if scenario.is_over(stage):
            check(stage, scenario)
            return
        before, gate = fork(stage), CallGate(lambda _call, _moment: None)
        stage.tick(seconds=scenario.seconds, gate=gate)
        called = [(call.port, call.method) for call in gate.calls]
        if called != last:
            yield Look(before, gate.calls)
        last = called
    raise AssertionError(f"after 120 ticks: {stage.item}")


def moments(calls: list[PortCall], how: str) -> Iterator[tuple[PortCall, CallPoint]]:
    if how == "answer lost":
        yield from ((call, CallPoint.AFTER) for call in calls if call.port in LOST)
        return
    effects = [call for call in calls if call.method in EFFECTS]
    yield from ((call, CallPoint.BEFORE) for call in effects)
    yield from ((call, CallPoint.AFTER) for call in effects[-1:])


def disturbed(victim: PortCall, moment: CallPoint, how: str) -> CallGate:
    """A gate at which one call goes wrong."""

    def hook(call: PortCall, now: CallPoint) -> None:
        if (call.number, now) == (victim.number, moment):
            raise LOST[call.port]() if how == "answer lost" else Killed

    return CallGate(hook)


def check(stage: Stage, scenario: Scenario) -> None:
    """What must be true of the world in the end; by then, leftovers of a dead process have been removed."""
    for _ in range(40):
        if not list(wrongs(stage, scenario)):
            break
        stage.tick()
    for _ in range(3):
        stage.tick()
    assert not list(wrongs(stage, scenario)), f"{list(wrongs(stage, scenario))}: {stage.item}"


def wrongs(stage: Stage, scenario: Scenario) -> Iterator[str]:
    alive = {machine.id for machine in stage.alive}
    nodes = {node.name: node for node in stage.world.k3s.nodes()}
    if len(alive) != scenario.workers:
        yield f"{len(alive)} machines, expected {scenario.workers}"
    for name in alive - {name for name, node in nodes.items() if node.is_ready and not node.taints}:
        yield f"{name} is not in service"
    yield from (f"{name} is cordoned" for name, node in nodes.items() if node.is_unschedulable and name in alive)
    yield from (f"{name} is a node without a machine" for name in nodes.keys() - alive)
    yield from (f"notice of {name}" for name in stage.open_notices)
    if stage.state.is_acting or stage.state.is_flagged:
        yield "an action is under way"


@pytest.mark.parametrize("how", ["killed", "answer lost"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_disturbed_call_changes_nothing_in_the_end(name: str, how: str) -> None:
    scenario = SCENARIOS[name]
    tried = 0
    for look in looks(scenario):
        for victim, moment in moments(look.calls, how):
            stage = fork(look.before)
            stage.tick(seconds=scenario.seconds, gate=disturbed(victim, moment, how))
            tried += 1
            try:
                stage.tick_until(lambda stage=stage: scenario.is_over(stage), seconds=scenario.seconds, most=150)  # type: ignore[misc]
                check(stage, scenario)
            except AssertionError as error:
                raise AssertionError(f"{how} {moment} call {victim}: {error}") from error
    assert tried >= 5
