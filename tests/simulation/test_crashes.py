"""Killed at any call: before it, after it, or with its answer lost; the next tick carries on.

Each scenario is run once undisturbed, and then once for each of its port calls and each way to go wrong there.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from holdfast.cluster.policy import Policy
from holdfast.kernel.errors import StoreUnavailable
from holdfast.ports.kube import KubeUnavailable
from holdfast.ports.machines import MachineError, Market
from holdfast.simulator.gate import Gate, Killed, Moment, PortCall
from holdfast.simulator.k3s import Workload
from tests.simulation.harness import Stage

LOST: dict[str, Callable[[], Exception]] = {
    "store": lambda: StoreUnavailable("no answer"),
    "machines": lambda: MachineError("RequestTimeout", "no answer"),
    "kube": lambda: KubeUnavailable("no answer"),
}


@dataclass(frozen=True)
class Scenario:
    """How it begins, and when it is over."""

    begin: Callable[[], Stage]
    is_over: Callable[[Stage], bool]
    workers: int


def scale_up() -> Stage:
    stage = Stage()
    stage.world.k3s.run(Workload("web", 35))
    return stage


def partial_launch() -> Stage:
    stage = scale_up()
    for subnet in stage.world.subnets[1:]:
        for market in Market:
            stage.world.ec2.run_out("t3.medium", subnet.zone, market)
    return stage


def join_timeout() -> Stage:
    stage = scale_up()
    stage.world.joins = False
    stage.clock.after(900, lambda: setattr(stage.world, "joins", True))
    return stage


def scale_down() -> Stage:
    stage = Stage(workers=5, policy=Policy(max_batch_down=2))
    stage.world.k3s.run(Workload("web", 6))
    return stage


def drain_blocked() -> Stage:
    stage = Stage(workers=4)
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    stage.clock.after(1500, lambda: stage.world.k3s.run(Workload("db", 4)))
    return stage


def has_scaled(stage: Stage) -> bool:
    return stage.state.last_scale.epoch_ms > 0 and not stage.state.is_acting


SCENARIOS = {
    "scale up": Scenario(scale_up, has_scaled, 4),
    "partial launch": Scenario(partial_launch, has_scaled, 4),
    "join timeout": Scenario(join_timeout, has_scaled, 4),
    "scale down": Scenario(scale_down, has_scaled, 3),
    "drain blocked": Scenario(drain_blocked, has_scaled, 3),
}


def calls_of(scenario: Scenario) -> list[PortCall]:
    """The port calls of an undisturbed run, over all its ticks."""
    stage = scenario.begin()
    stage.gate = Gate(lambda _call, _moment: None)
    stage.tick_until(lambda: scenario.is_over(stage))
    check(stage, scenario)
    return stage.gate.calls


def check(stage: Stage, scenario: Scenario) -> None:
    """What must be true in the end, by the world's own account."""
    for _ in range(25):
        stage.tick()  # what a dead process left behind is collected
    assert len(stage.alive) == scenario.workers
    open_nodes = [node for node in stage.world.k3s.nodes() if not node.is_unschedulable and not node.taints]
    assert {machine.id for machine in stage.alive} <= {node.name for node in open_nodes}
    cordoned = [node.name for node in stage.world.k3s.nodes() if node.is_unschedulable]
    assert not set(cordoned) & {machine.id for machine in stage.alive}
    assert not stage.state.is_acting
    assert not stage.state.is_flagged


@pytest.mark.parametrize("how", ["killed before", "killed after", "answer lost"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_disturbed_call_changes_nothing_in_the_end(name: str, how: str) -> None:
    scenario = SCENARIOS[name]
    for call in calls_of(scenario):
        if how == "answer lost" and call.port not in LOST:
            continue
        stage = scenario.begin()
        stage.gate = disturbed(call, how)
        try:
            stage.tick_until(lambda stage=stage: scenario.is_over(stage), most=120)  # type: ignore[misc]
            check(stage, scenario)
        except AssertionError as error:
            raise AssertionError(f"{how} at call {call}: {error}") from error


def disturbed(victim: PortCall, how: str) -> Gate:
    """A gate at which one call goes wrong; whoever is killed there is followed by a new process."""

    def hook(call: PortCall, moment: Moment) -> None:
        if call.number != victim.number:
            return
        if how == "killed before" and moment is Moment.BEFORE:
            raise Killed
        if moment is Moment.AFTER and how == "killed after":
            raise Killed
        if moment is Moment.AFTER and how == "answer lost":
            raise LOST[call.port]()

    return Gate(hook)
