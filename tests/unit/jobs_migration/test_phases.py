"""The phase: stored once for all, moved a step at a time."""

import logging
import threading
from itertools import product
from threading import Event
from typing import Any

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.jobs.migration.phases import (
    FRESH_SECONDS,
    KEY,
    Phase,
    PhaseWatch,
    StoredPhase,
    WrongJump,
    begin,
    move,
    step_to,
    stored_phase,
)
from holdfast.kernel.errors import NeedsOperator, Retryable, StoreUnavailable
from holdfast.ports.store import Store
from holdfast.ports.store.tables import STATE
from tests.clocks import StillClock
from tests.unit.jobs_migration.worlds import NOW, Faulty, World

STEPS = {("off", "dual_write"), ("dual_write", "dual_read"), ("dual_read", "dynamodb_only")}
BACK = {(to, start) for start, to in STEPS}


@pytest.fixture
def store() -> Any:
    return Faulty(memory_store(StillClock(NOW)))


@pytest.mark.parametrize(("start", "to"), list(product(Phase, Phase)))
def test_only_a_single_step_is_allowed(start: Phase, to: Phase) -> None:
    """All sixteen; a refusal says why, and what comes first."""
    if (start, to) in STEPS | BACK:
        step_to(start, to)
        return
    with pytest.raises(WrongJump) as refused:
        step_to(start, to)
    assert "already" in str(refused.value) if start is to else "comes first" in str(refused.value)


def test_forward_and_back_again(store: Store) -> None:
    way = ["dual_write", "dual_read", "dynamodb_only", "dual_read", "dual_write", "off"]
    for phase in way:
        move(store, stored_phase(store), Phase(phase), NOW, "test")
        assert stored_phase(store).phase == phase
    found = stored_phase(store)
    assert [step["to"] for step in found.moves] == way
    assert found.seq == len(way)


def test_two_who_move_at_once_make_one_step(store: Store) -> None:
    seen = stored_phase(store)
    move(store, seen, Phase.DUAL_WRITE, NOW, "one")
    with pytest.raises(Retryable, match="somebody else moved"):
        move(store, seen, Phase.DUAL_WRITE, NOW, "two")
    assert stored_phase(store).moves[-1]["by"] == "one"


def test_a_move_whose_answer_was_lost_meets_itself(store: Store) -> None:
    """As a store that repeats a lost call makes of it."""

    class Repeats(Faulty):
        def put(self, *given: Any) -> None:
            self._store.put(*given)
            self._store.put(*given)

    moved = move(Repeats(store), stored_phase(store), Phase.DUAL_WRITE, NOW, "test")
    assert stored_phase(store) == moved


def test_when_both_began_to_be_written_outlives_later_moves(store: Store) -> None:
    for number, phase in enumerate(["dual_write", "dual_read", "dual_write", "off", "dual_write"]):
        move(store, stored_phase(store), Phase(phase), NOW.plus(number), "test")
    assert stored_phase(store).both_since == NOW.plus(4)


@pytest.mark.parametrize("wanted", [Phase.OFF, Phase.DUAL_WRITE])
def test_the_setting_begins_the_way(store: Store, wanted: Phase) -> None:
    assert begin(store, wanted, NOW, "test").phase is wanted
    assert stored_phase(store).phase is wanted


@pytest.mark.parametrize("wanted", [Phase.DUAL_READ, Phase.DYNAMODB_ONLY])
def test_the_way_does_not_begin_in_its_middle(store: Store, wanted: Phase) -> None:
    with pytest.raises(NeedsOperator, match=f"JOBS_MIGRATION={wanted} cannot be the beginning: .* dual_write comes"):
        begin(store, wanted, NOW, "test")
    assert stored_phase(store).since is None


def test_a_start_with_another_setting_follows_the_stored_phase(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """An instance that was restarted after a step back must not undo it, nor stay away."""
    begin(store, Phase.DUAL_WRITE, NOW, "one")
    with caplog.at_level(logging.WARNING):
        assert begin(store, Phase.DYNAMODB_ONLY, NOW, "two").phase is Phase.DUAL_WRITE
    assert "JOBS_MIGRATION=dynamodb_only, and the stored phase is dual_write, which counts" in caplog.text


def test_instances_follow_a_move_within_seconds() -> None:
    world = World()
    watch = PhaseWatch(world.store, world.clock, StoredPhase())
    assert watch.now().phase is Phase.OFF
    move(world.store, stored_phase(world.store), Phase.DUAL_WRITE, NOW, "test")
    assert watch.now().phase is Phase.OFF
    world.clock.advance(FRESH_SECONDS)
    assert watch.now().phase is Phase.DUAL_WRITE


def test_an_instance_that_cannot_ask_goes_on_as_it_last_knew() -> None:
    world = World()
    watch = PhaseWatch(world.store, world.clock, StoredPhase(Phase.DUAL_WRITE))
    world.store.fails = lambda _: True
    assert watch.now().phase is Phase.DUAL_WRITE
    with pytest.raises(StoreUnavailable):
        stored_phase(world.store)


def test_an_answer_that_came_late_counts() -> None:
    """A store may take longer than a webhook can wait, every time."""
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    answers = Event()
    world.store.meet = lambda *_: answers.wait()
    watch = PhaseWatch(world.store, world.clock, StoredPhase(), ask_seconds=0.01)
    assert watch.now().phase is Phase.OFF
    answers.set()
    for thread in threading.enumerate():
        if thread.name == "phase":
            thread.join()
    world.store.fails = lambda _: True  # nor is it asked again
    assert watch.now().phase is Phase.DUAL_WRITE


def test_a_phase_of_a_later_version_is_not_guessed_at(store: Store) -> None:
    store.put(STATE, {"pk": KEY.partition, "phase": "triple_write", "sinceMs": 1, "seq": 1})
    with pytest.raises(NeedsOperator, match="'triple_write', which this version does not know"):
        stored_phase(store)
