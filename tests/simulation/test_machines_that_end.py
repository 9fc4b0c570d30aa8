"""Machines that end before they join: nothing waits for them, and log, status and notifications say why they ended."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.adapters.sqlite import sqlite_store
from holdfast.adapters.system_clock import SystemClock
from holdfast.cli.main import cli
from holdfast.cluster.notifications import announcements_of
from holdfast.cluster.plan import TickResult
from holdfast.cluster.policy import Policy
from holdfast.cluster.spot.notice import Replacement, SpotKind
from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import MachineState, StateReason
from holdfast.ports.store.tables import TABLES
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.ec2 import NO_DISK_KEY, RECLAIMED
from holdfast.simulator.world.k3s import Workload
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.harness import Stage
from tests.simulation.spot_case import SpotCase

KEY = "Client.InternalError: Client error on launch; most likely EC2 could not use the KMS key of its disks"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    start = SystemClock().now().plus(-3000)
    stage = Stage(start=start, open_store=lambda clock: sqlite_store(tmp_path / "holdfast.db", clock, tables=TABLES))
    stage.world.k3s.run(Workload("web", 35))
    yield stage
    stage.store.close()


def launched(stage: Stage) -> list[InstanceId]:
    """The machines of a scale-up, right after their launch."""
    stage.tick_until(lambda: stage.state.up is not None)
    assert stage.state.up is not None
    return list(stage.state.up.instances)


def reason_of(ticked: TickResult, kind: str) -> str:
    return next(step.because for step in ticked.done if step.kind == kind)


def test_machines_that_die_of_their_disks_key_end_the_action_at_once_and_name_the_key(
    stage: Stage, tmp_path: Path
) -> None:
    machines = launched(stage)
    stage.world.timeline.sleep(5)
    for machine in machines:
        stage.world.ec2.break_down(machine, NO_DISK_KEY)
    ticked = stage.tick()
    assert ticked is not None
    assert stage.state.up is None, "it does not wait for JOIN_TIMEOUT_SEC"
    because = reason_of(ticked, "fail_scale_up")
    assert because.startswith(f"2 of 2 machines did not join: {machines[0]}, {machines[1]}: it ended: {KEY}")
    told = [found.notification for found in announcements_of(ticked)]
    assert [(found.title, found.is_urgent) for found in told] == [("A scale-up failed", True)]
    assert KEY in told[0].text
    shown = {name: run(tmp_path, name, "--json") for name in ("status", "explain")}
    assert KEY in shown["status"]["lastFailure"]["why"]
    assert KEY in shown["explain"]["items"][-1]["steps"][-1]["because"]


def run(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    environment = {"HOLDFAST_STORE": f"sqlite:{tmp_path / 'holdfast.db'}", "LOG_LEVEL": "error"}
    shown = CliRunner().invoke(cli, list(arguments), env=environment, catch_exceptions=False).stdout
    answer: dict[str, Any] = json.loads(shown)
    return answer


def test_one_that_died_is_not_waited_for_once_the_other_has_joined(stage: Stage) -> None:
    dead, other = launched(stage)
    stage.world.timeline.sleep(5)
    stage.world.ec2.break_down(dead, RECLAIMED)
    ticks = stage.tick_until(lambda: stage.state.up is None, most=4)
    because = reason_of(ticks[-1], "fail_scale_up")
    assert because == f"1 of 2 machines did not join: {dead}: it ended: {RECLAIMED.code}: {RECLAIMED.message}"
    assert other in {machine.id for machine in stage.alive}


def test_a_machine_that_stopped_itself_is_terminated_without_waiting(stage: Stage) -> None:
    """With the template's default, a machine that shuts itself down is stopped, and its disk is still paid for."""
    machines = launched(stage)
    stage.world.timeline.sleep(5)
    reason = StateReason("Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
    for machine in machines:
        stage.world.ec2.stop(machine, reason)
    ticked = stage.tick()
    assert ticked is not None
    assert {machine.state for machine in stage.world.ec2.found(machines)} <= {
        MachineState.SHUTTING_DOWN,
        MachineState.TERMINATED,
    }
    assert "it ended: Client.InstanceInitiatedShutdown" in reason_of(ticked, "terminate_unjoined")


def test_what_holdfast_terminated_itself_is_not_called_the_deed_of_a_person(stage: Stage) -> None:
    """EC2 gives the same reason for both. The process dies after the last termination; the next one ends the action."""
    stage.world.joins = False
    machines = launched(stage)

    def dies(call: PortCall, point: CallPoint) -> None:
        if (call.method, point) == ("terminate", CallPoint.AFTER) and not set(machines) & alive(stage):
            raise Killed

    stage.gate = CallGate(dies)
    stage.tick_until(lambda: not set(machines) & alive(stage))
    ticks = stage.tick_until(lambda: stage.state.up is None)
    assert reason_of(ticks[-1], "fail_scale_up") == "2 of 2 machines did not join"


def alive(stage: Stage) -> set[InstanceId]:
    return {machine.id for machine in stage.alive}


def test_a_machine_without_a_node_says_so_when_it_is_terminated(stage: Stage) -> None:
    stage.world.joins = False
    launched(stage)
    ticks = stage.tick_until(lambda: stage.state.up is None)
    assert "it is running, but has no node" in reason_of(ticks[-1], "terminate_unjoined")


def test_a_replacement_that_dies_at_birth_says_why() -> None:
    case = SpotCase()
    case.receive_notice(SpotKind.INTERRUPTION)
    case.stage.tick()
    assert case.notice.slot is not None
    assert case.notice.slot.instance is not None
    case.stage.world.timeline.sleep(5)
    case.stage.world.ec2.break_down(case.notice.slot.instance, NO_DISK_KEY)
    ticked = case.stage.tick()
    assert ticked is not None
    assert KEY in reason_of(ticked, "give_up_replacement")
    assert case.notice.replacement is Replacement.GIVEN_UP


def test_a_node_is_not_accepted_before_the_cloud_controller_has_initialised_it(stage: Stage) -> None:
    stage.world.initialises = False
    machines = launched(stage)
    for _ in range(4):
        stage.tick()
    nodes = [stage.world.k3s.node(machine) for machine in machines]
    assert all(node is not None and node.is_ready for node in nodes)
    assert stage.state.up is not None, "Ready, but no pod can run there yet"
    for node in nodes:
        assert node is not None
        stage.world.k3s.remove_taint(node.name, "node.cloudprovider.kubernetes.io/uninitialized")
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0, most=2)


def test_a_node_that_is_never_initialised_is_terminated_in_the_end_and_its_taint_is_named() -> None:
    stage = Stage(policy=Policy(join_timeout_seconds=300))
    stage.world.k3s.run(Workload("web", 35))
    stage.world.initialises = False
    machines = launched(stage)
    ticks = stage.tick_until(lambda: stage.state.up is None)
    because = reason_of(ticks[-1], "terminate_unjoined")
    assert "Ready, but still has the taint node.cloudprovider.kubernetes.io/uninitialized" in because
    assert not {machine.id for machine in stage.alive} & set(machines)


def test_a_replacement_waits_for_its_start_up_taints_too() -> None:
    case = SpotCase()
    case.stage.world.initialises = False
    case.receive_notice(SpotKind.INTERRUPTION)
    for _ in range(4):
        case.stage.tick()
    assert case.notice.replacement is Replacement.LAUNCHED
