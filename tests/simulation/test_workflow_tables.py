"""The workflows' tables match what happens: no run stores an undeclared move, and each move is taken somewhere."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final

import pytest
from msgspec.structs import replace

from holdfast.cluster.lease_holder import ClusterLeaseHolder
from holdfast.cluster.scaling import scale_down, scale_up
from holdfast.cluster.spot import workflow as spot
from holdfast.cluster.spot.notice import Replacement, SpotKind, SpotPhase, notice_key
from holdfast.cluster.spot.replacement import give_up_replacement
from holdfast.cluster.state import cluster_ledger, read_state
from holdfast.cluster.steps import CordonInterrupted, GiveUpReplacement, OpenInterrupted
from holdfast.control.lease import acquire
from holdfast.control.workflows import Move
from holdfast.entrypoints.simulation.program import HoldfastProgram
from holdfast.fleet.slots import Slot
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.ports.machines import Market
from holdfast.ports.store import Item
from holdfast.ports.store.tables import STATE
from holdfast.simulator.checkers.base import Checker
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.proof.run import Run
from holdfast.simulator.proof.scenarios import SCENARIOS
from holdfast.simulator.proof.swarm import Faultiness, drawn_setup
from tests.simulation.spot_case import SpotCase

TABLES: Final = {
    "scale-up": scale_up.MOVES,
    "scale-down": scale_down.MOVES,
    "notice": spot.PHASE_MOVES,
    "replacement": spot.REPLACEMENT_MOVES,
}
# Moves that none of the runs below takes, and the test that does.
TAKEN_BY: Final = {
    ("scale-up", None, "VERIFYING"): "test_a_plan_without_an_action_continues_with_the_machines_it_launched",
    (
        "scale-down",
        None,
        "TERMINATING",
    ): "test_a_committed_machine_is_terminated_though_an_older_autoscaler_ended_the_action",
    ("notice", "EXPIRED", "OPENING"): "test_a_machine_that_ec2_did_not_take_is_uncordoned",
    ("notice", "OPENING", "NOTICED"): "test_an_interruption_replaces_a_notice_whose_node_is_being_uncordoned",
    ("replacement", "LAUNCHED", "GIVEN_UP"): "test_a_replacement_that_is_gone_is_given_up",
    ("replacement", "GIVING_UP", "ACCEPTED"): "test_a_replacement_that_came_into_service_after_all_is_kept",
}
Taken = tuple[str, str | None, str | None]


class MoveRecorder(Checker):
    """Counts the moves of every workflow, as they are stored."""

    name = "MoveRecorder"
    says = "counts moves"
    taken: ClassVar[Counter[Taken]] = Counter()

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        before, after = read_state(old or None), read_state(new)
        self._count("scale-up", before.up.phase if before.up else None, after.up.phase if after.up else None)
        self._count("scale-down", before.down.phase if before.down else None, after.down.phase if after.down else None)

    def notice_written(self, by: Process, instance: InstanceId, old: Item, new: Item) -> None:
        self._count("notice", old.get("phase"), new.get("phase"))
        self._count("replacement", _replacement(old), _replacement(new))

    def _count(self, workflow: str, source: str | None, target: str | None) -> None:
        if source != target:
            self.taken[workflow, source and str(source), target and str(target)] += 1


def _replacement(item: Item) -> str:
    return str(item.get("replacement", Replacement.OPEN))


def declared() -> set[Taken]:
    def named(moves: tuple[Move, ...]) -> Iterator[tuple[str | None, str | None]]:
        return ((move.source and str(move.source), move.target and str(move.target)) for move in moves)

    return {(workflow, *move) for workflow, moves in TABLES.items() for move in named(moves)}


def taken_in_scenarios() -> set[Taken]:
    MoveRecorder.taken.clear()
    for setup in SCENARIOS.values():
        Run(HoldfastProgram(), setup(), checkers=[MoveRecorder]).outcome()
    return set(MoveRecorder.taken)


def test_no_table_has_a_move_twice() -> None:
    assert {name: len({move[:2] for move in moves}) for name, moves in TABLES.items()} == {
        name: len(moves) for name, moves in TABLES.items()
    }


def test_scenarios_take_only_moves_that_the_tables_declare() -> None:
    taken = taken_in_scenarios()
    assert taken - declared() == set()
    assert len(taken) > 20


@pytest.mark.slow
def test_every_declared_move_is_taken() -> None:
    """By a scenario, by one of a hundred seeds, or by a dedicated test."""
    taken = taken_in_scenarios()
    for seed in range(1, 101):
        Run(HoldfastProgram(), drawn_setup(seed, Faultiness.WILD), checkers=[MoveRecorder]).outcome()
    taken |= set(MoveRecorder.taken)
    assert taken - declared() == set()
    assert declared() - taken <= TAKEN_BY.keys()


def test_the_tests_that_take_the_rare_moves_exist() -> None:
    names = {
        node.name
        for path in Path(__file__).parent.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert set(TAKEN_BY.values()) - names == set()


# The rare moves


def test_a_machine_that_ec2_did_not_take_is_uncordoned() -> None:
    case = SpotCase()
    case.receive_notice(SpotKind.INTERRUPTION)
    case.carry_out(CordonInterrupted)
    case.overwrite(phase=str(SpotPhase.EXPIRED), replacement=str(Replacement.ACCEPTED))
    case.carry_out(OpenInterrupted)
    assert not case.node.is_unschedulable
    item = case.stage.store.get(STATE, notice_key(case.victim))
    assert item is not None
    assert (item["phase"], item["stays"]) == (SpotPhase.CLOSED, True), "closed from OPENING, because the machine stays"


def test_an_interruption_replaces_a_notice_whose_node_is_being_uncordoned() -> None:
    case = SpotCase()
    case.receive_notice(SpotKind.REBALANCE)
    case.overwrite(phase=str(SpotPhase.OPENING))
    assert case.receive_notice(SpotKind.INTERRUPTION)
    assert (case.phase, case.notice.kind) == (SpotPhase.NOTICED, SpotKind.INTERRUPTION)


def with_replacement(case: SpotCase, instance: InstanceId, replacement: Replacement) -> None:
    """The notice, with a machine that was launched as its replacement; then the step that gives it up."""
    case.receive_notice(SpotKind.INTERRUPTION)
    slot = Slot("subnet-a", "eu-west-1a", Market.SPOT, "t3.medium", instance=instance)
    case.overwrite(replacement=str(replacement), plan=slot.stored())
    cluster = case.stage.cluster()
    seen = cluster.look()[0]
    ledger = cluster_ledger(cluster.writes.store, seen.cluster)
    lease, _ = acquire(ledger, "test", seen.now)
    holder = ClusterLeaseHolder(cluster.writes, ledger, lease, seen, ActionId("test"))
    holder.seen = replace(seen, known_gone=frozenset({InstanceId("i-gone")}))
    give_up_replacement(holder, GiveUpReplacement(instance=case.victim, because="test"))


def test_a_replacement_that_is_gone_is_given_up() -> None:
    case = SpotCase()
    with_replacement(case, InstanceId("i-gone"), Replacement.LAUNCHED)
    assert case.notice.replacement is Replacement.GIVEN_UP


def test_a_replacement_that_came_into_service_after_all_is_kept() -> None:
    case = SpotCase()
    other = next(machine.id for machine in case.stage.alive if machine.id != case.victim)
    with_replacement(case, other, Replacement.GIVING_UP)
    assert case.notice.replacement is Replacement.ACCEPTED
    assert other in {machine.id for machine in case.stage.alive}
