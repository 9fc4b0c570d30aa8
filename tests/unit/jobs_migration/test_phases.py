"""The phase: stored once for all instances, moved one step at a time."""

import logging
import threading
from itertools import product
from threading import Event
from typing import Any

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.jobs.migration.phases import (
    KEY,
    PHASE_CACHE_SECONDS,
    InvalidMove,
    Phase,
    PhaseWatch,
    StoredPhase,
    begin,
    check_one_step,
    move,
    stored_phase,
)
from holdfast.kernel.errors import NeedsOperator, Retryable, StoreUnavailable
from holdfast.ports.store import Store
from holdfast.ports.store.tables import STATE
from tests.clocks import StillClock
from tests.support.migration_world import NOW, Faulty, World

STEPS = {("off", "dual_write"), ("dual_write", "dual_read"), ("dual_read", "dynamodb_only")}
BACK = {(to, start) for start, to in STEPS}


@pytest.fixture
def store() -> Any:
    return Faulty(memory_store(StillClock(NOW)))


@pytest.mark.parametrize(("start", "to"), list(product(Phase, Phase)))
def test_only_a_single_step_is_allowed(start: Phase, to: Phase) -> None:
    """All sixteen; a refusal says why, and which phase comes first."""
    if (start, to) in STEPS | BACK:
        check_one_step(start, to)
        return
    with pytest.raises(InvalidMove) as refused:
        check_one_step(start, to)
    assert "already" in str(refused.value) if start is to else "first move to" in str(refused.value)


def test_forward_and_back_again(store: Store) -> None:
    way = ["dual_write", "dual_read", "dynamodb_only", "dual_read", "dual_write", "off"]
    for phase in way:
        move(store, stored_phase(store), Phase(phase), NOW, "test")
        assert stored_phase(store).phase == phase
    found = stored_phase(store)
    assert [step["to"] for step in found.moves] == way
    assert found.seq == len(way)


def test_two_concurrent_moves_make_one_step(store: Store) -> None:
    seen = stored_phase(store)
    move(store, seen, Phase.DUAL_WRITE, NOW, "one")
    with pytest.raises(Retryable, match="just moved by someone else"):
        move(store, seen, Phase.DUAL_WRITE, NOW, "two")
    assert stored_phase(store).moves[-1]["by"] == "one"


def test_a_move_whose_response_was_lost_is_recognised_as_done(store: Store) -> None:
    """As with a store that retries a lost call."""

    class Repeats(Faulty):
        def put(self, *given: Any) -> None:
            self._store.put(*given)
            self._store.put(*given)

    moved = move(Repeats(store), stored_phase(store), Phase.DUAL_WRITE, NOW, "test")
    assert stored_phase(store) == moved


def test_the_start_of_dual_write_is_kept_through_later_moves(store: Store) -> None:
    for number, phase in enumerate(["dual_write", "dual_read", "dual_write", "off", "dual_write"]):
        move(store, stored_phase(store), Phase(phase), NOW.plus(number), "test")
    assert stored_phase(store).both_since == NOW.plus(4)


@pytest.mark.parametrize("wanted", [Phase.OFF, Phase.DUAL_WRITE])
def test_the_setting_starts_the_migration(store: Store, wanted: Phase) -> None:
    assert begin(store, wanted, NOW, "test").phase is wanted
    assert stored_phase(store).phase is wanted


@pytest.mark.parametrize("wanted", [Phase.DUAL_READ, Phase.DYNAMODB_ONLY])
def test_a_migration_does_not_begin_in_a_later_phase(store: Store, wanted: Phase) -> None:
    with pytest.raises(
        NeedsOperator, match=f"JOBS_MIGRATION={wanted} cannot be the first phase: .* first move to dual_write"
    ):
        begin(store, wanted, NOW, "test")
    assert stored_phase(store).since is None


def test_a_start_with_another_setting_follows_the_stored_phase(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """An instance that restarts after a step back must neither undo it nor stay down."""
    begin(store, Phase.DUAL_WRITE, NOW, "one")
    with caplog.at_level(logging.WARNING):
        assert begin(store, Phase.DYNAMODB_ONLY, NOW, "two").phase is Phase.DUAL_WRITE
    assert "JOBS_MIGRATION=dynamodb_only is ignored: the stored phase is dual_write" in caplog.text


def test_instances_follow_a_move_within_seconds() -> None:
    world = World()
    watch = PhaseWatch(world.store, world.clock, StoredPhase())
    assert watch.now().phase is Phase.OFF
    move(world.store, stored_phase(world.store), Phase.DUAL_WRITE, NOW, "test")
    assert watch.now().phase is Phase.OFF
    world.clock.advance(PHASE_CACHE_SECONDS)
    assert watch.now().phase is Phase.DUAL_WRITE


def test_an_instance_that_cannot_read_the_phase_keeps_the_last_one() -> None:
    world = World()
    watch = PhaseWatch(world.store, world.clock, StoredPhase(Phase.DUAL_WRITE))
    world.store.fails = lambda _: True
    assert watch.now().phase is Phase.DUAL_WRITE
    with pytest.raises(StoreUnavailable):
        stored_phase(world.store)


def test_a_late_response_counts() -> None:
    """A store may take longer than a webhook can wait, every time."""
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    answers = Event()
    world.store.meet = lambda *_: answers.wait()
    watch = PhaseWatch(world.store, world.clock, StoredPhase(), timeout_seconds=0.01)
    assert watch.now().phase is Phase.OFF
    answers.set()
    for thread in threading.enumerate():
        if thread.name == "phase":
            thread.join()
    world.store.fails = lambda _: True  # it is not read again
    assert watch.now().phase is Phase.DUAL_WRITE


def test_an_unknown_phase_of_a_later_version_is_an_error(store: Store) -> None:
    store.put(STATE, {"pk": KEY.partition, "phase": "triple_write", "sinceMs": 1, "seq": 1})
    with pytest.raises(NeedsOperator, match="'triple_write', which this version does not support"):
        stored_phase(store)
