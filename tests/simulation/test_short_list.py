"""EC2's list omits machines that exist, while Kubernetes does not answer: nothing is bought in their place."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.spot.notice import Replacement, SpotKind, notice_key, read_notice, store_notice
from holdfast.kernel.errors import Retryable
from holdfast.ports.machines import Machine
from holdfast.ports.store import Key
from holdfast.ports.store.tables import STATE
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.k3s import Workload
from tests.call_gate import CallGate, CallPoint, Hook, PortCall
from tests.simulation.harness import TAGS, Stage
from tests.simulation.hooks import Instead

Shown = Callable[[int, Machine], bool]


class ShortList:
    """EC2, whose list of all machines omits some. Those that are asked for by their ids are omitted as well."""

    def __init__(self, stage: Stage, shows: Shown) -> None:
        self._known = [machine.id for machine in stage.alive]
        self._shows = shows
        real = stage.machines

        def tagged(tags: Mapping[str, str]) -> list[Machine]:
            return self.shortened(real.tagged(tags))

        def found(machines: Any) -> list[Machine]:
            return self.shortened(real.found(machines))

        stage.machines = Instead(real, tagged=tagged, found=found)

    def shortened(self, machines: list[Machine]) -> list[Machine]:
        """New machines are listed; of the others only some."""
        numbers = {name: number for number, name in enumerate(self._known)}
        return [machine for machine in machines if self._shows(numbers.get(machine.id, -1), machine)]


SHORT: dict[str, Shown] = {
    "nothing is listed": lambda _number, _machine: False,
    "only new ones are listed": lambda number, _machine: number < 0,
    "two of them and new ones are listed": lambda number, _machine: number < 2,
    "every second one is listed": lambda number, _machine: number % 2 == 1,
}


def at_maximum(workers: int = 10, **policy: Any) -> Stage:
    """Ten workers of ten, and pods that would need more."""
    settings = {"max_workers": 10, "max_batch_up": 4, **policy}
    stage = Stage(workers=workers, policy=Policy(**settings))
    stage.world.k3s.run(Workload("web", 200))
    stage.tick()
    return stage


def alive(stage: Stage) -> int:
    return len(stage.alive)


def without_kubernetes(hook: Hook = lambda _call, _point: None) -> CallGate:
    """The ports of a process that does not reach Kubernetes, while Prometheus answers."""

    def away(call: PortCall, point: CallPoint) -> None:
        hook(call, point)
        if call.port == "kube":
            raise Retryable("the API server does not answer")

    return CallGate(away)


@pytest.mark.parametrize("shows", SHORT.values(), ids=SHORT)
@pytest.mark.parametrize("min_workers", [2, 10])
def test_the_maximum_holds_although_ec2_omits_machines(shows: Shown, min_workers: int) -> None:
    stage = at_maximum(min_workers=min_workers)
    ShortList(stage, shows)
    stage.gate = without_kubernetes()
    for _ in range(30):
        stage.tick()
        assert alive(stage) <= 10
    assert stage.item["workerCount"] == 10, "the stored number does not fall while the nodes are unknown"


@pytest.mark.parametrize("shows", SHORT.values(), ids=SHORT)
def test_nothing_is_bought_for_the_minimum_either(shows: Shown) -> None:
    stage = Stage(workers=6, policy=Policy(min_workers=6))
    stage.tick()
    ShortList(stage, shows)
    stage.gate = without_kubernetes()
    for _ in range(10):
        stage.tick()
    assert alive(stage) == 6


@pytest.mark.parametrize("shows", SHORT.values(), ids=SHORT)
def test_a_list_that_is_short_before_kubernetes_falls_silent_is_not_stored_as_the_number(shows: Shown) -> None:
    """The nodes are counted then, and so is one that has just become NotReady."""
    stage = at_maximum()
    ShortList(stage, shows)
    victim = stage.world.k3s.node(stage.alive[0].id)
    assert victim is not None
    stage.world.k3s.put(replace(victim, is_ready=False, ready_changed=stage.clock.now()))
    stage.tick()
    assert stage.item["workerCount"] == 10
    stage.gate = without_kubernetes()
    for _ in range(20):
        stage.tick()
    assert alive(stage) == 10


@pytest.mark.parametrize("shows", SHORT.values(), ids=SHORT)
@pytest.mark.parametrize("point", list(CallPoint))
def test_what_a_dead_process_launched_is_counted(shows: Shown, point: CallPoint) -> None:
    """Eight of ten; a process launches for two slots, and dies at any call. Then a machine gets a hint."""
    for number in range(60):
        stage = Stage(workers=7, policy=Policy(max_workers=10, rebalance=Rebalance.REPLACE))
        spot = stage.world.add_worker("eu-west-1a", TAGS, "spot")
        stage.world.k3s.run(Workload("web", 200))
        stage.tick_until(lambda stage=stage: stage.state.timers.pending_since is not None)  # type: ignore[misc]
        stage.gate = without_kubernetes()
        ShortList(stage, shows)
        gate = without_kubernetes(killing_at(number, point))
        stage.tick(seconds=stage.policy.pending_up_seconds, gate=gate)
        store_notice(stage.store, stage.name, spot.id, SpotKind.REBALANCE, stage.clock.now())
        for _ in range(4):
            stage.tick(seconds=100)
            assert alive(stage) <= 10, f"killed {point} call {number}"
        if not gate.is_dead:
            return
    raise AssertionError("the tick never ended")


def killing_at(number: int, point: CallPoint) -> Hook:
    def hook(call: PortCall, now: CallPoint) -> None:
        if call.number == number and now is point:
            raise Killed

    return hook


def replacement_of(stage: Stage, machine: Machine) -> Replacement:
    item = stage.store.get(STATE, notice_key(machine.id))
    assert item is not None
    return read_notice(item).replacement


def test_a_replacement_at_the_maximum_waits_for_kubernetes_and_is_not_given_up() -> None:
    stage = Stage(workers=9, policy=Policy(min_workers=10, max_workers=10))
    spot = stage.world.add_worker("eu-west-1a", TAGS, "spot")
    stage.tick()
    stage.gate = without_kubernetes()
    store_notice(stage.store, stage.name, spot.id, SpotKind.INTERRUPTION, stage.clock.now())
    stage.world.ec2.interrupt(spot.id)
    for _ in range(4):
        stage.tick()
    assert replacement_of(stage, spot) is Replacement.OPEN
    stage.gate = None
    stage.tick_until(lambda: not stage.open_notices)
    assert replacement_of(stage, spot) is Replacement.ACCEPTED
    assert alive(stage) == 10


def test_below_the_maximum_a_scale_up_and_a_replacement_begin_without_kubernetes() -> None:
    """As long as even the stored number leaves room."""
    stage = Stage(workers=4)
    spot = stage.world.add_worker("eu-west-1a", TAGS, "spot")
    stage.world.k3s.run(Workload("web", 80))
    stage.tick()
    stage.gate = without_kubernetes()
    ShortList(stage, SHORT["two of them and new ones are listed"])
    store_notice(stage.store, stage.name, spot.id, SpotKind.INTERRUPTION, stage.clock.now())
    stage.tick_until(lambda: stage.state.up is not None)
    assert replacement_of(stage, spot) is Replacement.LAUNCHED
    assert alive(stage) == 5 + 2 + 1


@pytest.mark.parametrize("point", list(CallPoint))
def test_a_replacement_whose_process_died_is_counted_beside_a_scale_up(point: CallPoint) -> None:
    """Nine stay and one leaves; its replacement is launched and listed, but not in the stored number yet."""
    for number in range(60):
        stage = Stage(workers=9, policy=Policy(max_workers=10))
        spot = stage.world.add_worker("eu-west-1a", TAGS, "spot")
        stage.world.k3s.run(Workload("web", 300))
        stage.store.put(STATE, {"pk": f"{stage.name}#pause", "paused": True})
        store_notice(stage.store, stage.name, spot.id, SpotKind.INTERRUPTION, stage.clock.now())
        stage.world.ec2.interrupt(spot.id)
        stage.tick(seconds=150)
        assert stage.item["workerCount"] == 9
        stage.store.delete(STATE, Key(f"{stage.name}#pause"))
        gate = CallGate(killing_at(number, point))
        stage.tick(seconds=20, gate=gate)
        ShortList(stage, SHORT["two of them and new ones are listed"])
        stage.gate = without_kubernetes()
        for _ in range(4):
            stage.tick(seconds=100)
            assert alive(stage) <= 10, f"killed {point} call {number}"
        if not gate.is_dead:
            assert replacement_of(stage, spot) is Replacement.LAUNCHED
            return
    raise AssertionError("the tick never ended")


def test_a_quiet_look_stays_quiet_while_kubernetes_is_unknown() -> None:
    """The number is not stored again and again."""
    stage = Stage(workers=4)
    stage.world.k3s.run(Workload("web", 20))
    stage.tick()
    stage.gate = without_kubernetes()
    ShortList(stage, SHORT["nothing is listed"])
    stage.tick()
    fence = stage.state.fence
    stage.tick()
    stage.tick()
    assert stage.state.fence == fence
    seen, plan = stage.cluster().look()
    assert plan.is_quiet(replace(seen, state=stage.state))
