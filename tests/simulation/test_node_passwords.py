"""K3s stores a password before a node exists. That of a machine which never became a node is deleted, exactly once."""

import pytest
from msgspec.structs import replace

from holdfast.cluster.seen import ACTION_TAG
from holdfast.cluster.spot.notice import Replacement, SpotKind
from holdfast.cluster.sweeping.passwords import deleted, left_passwords
from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import MachineState
from holdfast.ports.readings import Unknown
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.ec2 import RECLAIMED
from holdfast.simulator.world.k3s import Workload
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.harness import Stage
from tests.simulation.spot_case import SpotCase


def unjoined(stage: Stage) -> list[InstanceId]:
    """The machines of a scale-up whose agents start and whose nodes never register."""
    stage.world.joins = False
    stage.world.k3s.run(Workload("web", 35))
    stage.tick_until(lambda: stage.state.up is not None)
    assert stage.state.up is not None
    return list(stage.state.up.instances)


def leaked(stage: Stage) -> set[str]:
    """Secrets without a machine: what a look at the world finds, and not at our books."""
    alive = {machine.id for machine in stage.alive}
    names = {name.removesuffix(".node-password.k3s") for _, name in stage.world.k3s.secrets}
    return names - alive


def test_a_machine_that_never_became_a_node_leaves_no_secret() -> None:
    stage = Stage()
    machines = unjoined(stage)
    stage.tick()
    assert len(stage.world.k3s.secrets) == len(stage.alive) == 4
    stage.tick_until(lambda: stage.state.up is None)
    stage.world.joins = True
    for _ in range(3):
        stage.tick()
    assert leaked(stage) == set()
    assert set(stage.state.passwords_deleted) == set(machines)


def test_each_secret_is_deleted_once_and_the_memory_ends_with_ec2s() -> None:
    stage = Stage()
    unjoined(stage)
    stage.world.k3s.run(Workload("web", 0))
    gate = CallGate(lambda _call, _point: None)
    stage.gate = gate
    stage.tick_until(lambda: stage.state.up is None)
    for _ in range(30):
        stage.tick()
    calls = [call for call in gate.calls if call.method == "delete_secret"]
    assert len(calls) == 2
    stage.clock.sleep(4000)
    seen = stage.cluster().look()[0]
    assert deleted(seen, ()).update == deleted(replace(seen, machines=()), ()).update, "forgotten with EC2's list"


def test_the_secret_stays_until_the_machine_can_no_longer_start_its_agent() -> None:
    """While it shuts down, systemd may start the agent again, and K3s stores the secret again."""
    stage = Stage()
    machines = unjoined(stage)
    stage.clock.sleep(60)
    for machine in machines:
        stage.world.ec2.break_down(machine, RECLAIMED)
    seen = stage.cluster().look()[0]
    assert {machine.state for machine in seen.machines if machine.id in machines} == {MachineState.SHUTTING_DOWN}
    assert left_passwords(seen) == ()
    for machine in machines:
        stage.world.k3s.start_agent(machine)
    stage.world.joins = True
    for _ in range(4):
        stage.tick()
    assert leaked(stage) == set()


@pytest.mark.parametrize("point", list(CallPoint))
@pytest.mark.parametrize("method", ["delete_secret", "node", "update"])
def test_a_death_at_any_call_leaks_no_secret(method: str, point: CallPoint) -> None:
    stage = Stage()
    unjoined(stage)
    stage.tick_until(lambda: stage.state.up is None)
    stage.world.joins = True
    left = 2

    def dies(call: PortCall, at: CallPoint) -> None:
        nonlocal left
        if (call.method, at) == (method, point) and left:
            left -= 1
            raise Killed

    stage.gate = CallGate(dies)
    for _ in range(8):
        stage.tick()
    assert left == 0
    assert leaked(stage) == set()


def test_a_replacement_that_never_joined_leaves_no_secret() -> None:
    case = SpotCase()
    case.stage.world.joins = False
    case.receive_notice(SpotKind.INTERRUPTION)
    case.stage.tick()
    assert case.notice.slot is not None
    launched = str(case.notice.slot.instance)
    case.stage.tick_until(lambda: case.notice.replacement is Replacement.GIVEN_UP)
    for _ in range(3):
        case.stage.tick()
    assert launched not in leaked(case.stage)


def test_machines_with_a_node_and_those_of_others_are_left_alone() -> None:
    stage = Stage()
    (machine, *_) = unjoined(stage)
    stage.clock.sleep(60)
    stage.world.ec2.break_down(machine)
    stage.clock.sleep(120)
    seen = stage.cluster().look()[0]
    assert left_passwords(seen) == (machine,)
    assert left_passwords(replace(seen, kube=Unknown("away"))) == ()
    others = tuple(replace(each, tags={}) for each in seen.machines)
    assert ACTION_TAG not in others[0].tags
    assert left_passwords(replace(seen, machines=others)) == ()
    stage.world.k3s.join(machine, machine, "10.0.0.9", {})
    assert left_passwords(stage.cluster().look()[0]) == ()


def joined(stage: Stage) -> InstanceId:
    """A machine of a scale-up that is in service."""
    stage.world.k3s.run(Workload("web", 25))
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    return stage.world.ec2.launches[-1][1]


def test_a_node_that_is_removed_with_its_secret_costs_no_second_deletion() -> None:
    stage = Stage()
    machine = joined(stage)
    gate = CallGate(lambda _call, _point: None)
    stage.gate = gate
    stage.world.ec2.break_down(machine)
    for _ in range(6):
        stage.tick()
    assert stage.world.k3s.node(machine) is None
    assert leaked(stage) == set()
    assert len([call for call in gate.calls if call.method == "delete_secret"]) == 1


def test_a_worker_that_ends_after_its_node_was_deleted_by_hand_leaves_no_secret() -> None:
    stage = Stage()
    machine = joined(stage)
    node = stage.world.k3s.node(machine)
    assert node is not None
    stage.world.ec2.break_down(machine)
    stage.world.k3s.delete_node(node)
    for _ in range(4):
        stage.tick()
    assert leaked(stage) == set()
