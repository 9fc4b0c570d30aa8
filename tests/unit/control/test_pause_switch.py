"""Pause and resume by several people at once: each sees the actual state, and none ends a pause they have not seen."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.adapters.memory import memory_store
from holdfast.cli.main import cli
from holdfast.cluster.tick_summary import cluster_log
from holdfast.control.pause import (
    Pause,
    PauseAnswer,
    PauseStatus,
    PauseSwitch,
    end_pause,
    pause_key,
    read_pause,
    set_pause,
)
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.ids import ClusterId
from holdfast.ports.store import Condition, Item, Key, Store, Update, Written
from holdfast.ports.store.schema import Table
from holdfast.ports.store.tables import STATE
from tests.clocks import StillClock

CLUSTER = ClusterId("cluster")


class Beside:
    """A store in which another person acts once, just before a write; or in which the response to a write is lost."""

    def __init__(self, store: Store, meanwhile: Callable[[], object] | None = None) -> None:
        self._store = store
        self._meanwhile = meanwhile

    def get(self, table: Table, key: Key) -> Any:
        return self._store.get(table, key)

    def put(self, table: Table, item: Item) -> None:
        self._store.put(table, item)

    def update(self, table: Table, key: Key, update: Update, condition: Condition) -> Written:
        if self._meanwhile is not None:
            self._meanwhile()
            return self._store.update(table, key, update, condition)
        self._store.update(table, key, update, condition)
        # As the DynamoDB adapter does: the first response was lost, and it retried.
        return self._store.update(table, key, update, condition)


@dataclass
class Case:
    clock: StillClock
    store: Store

    def switches(self, store: Any = None, cluster: ClusterId = CLUSTER) -> PauseSwitch:
        return PauseSwitch(store or self.store, self.clock, cluster)

    @property
    def pause(self) -> Pause | None:
        return read_pause(self.store, CLUSTER)


def shown_pause(answer: PauseAnswer) -> PauseStatus:
    assert answer.paused is not None
    return answer.paused


@pytest.fixture
def case() -> Case:
    clock = StillClock()
    return Case(clock, memory_store(clock))


def test_the_first_pause_stays_and_is_shown_to_the_second_person(case: Case) -> None:
    first = case.switches().pause("ann", "an upgrade")
    assert (first.step, first.done, first.message) == ("paused", True, "paused the cluster")
    case.clock.sleep(90)
    second = case.switches().pause("bob", "lunch")
    assert (second.step, second.done) == ("already paused", False)
    since = shown_pause(first).since.replace(".000Z", "Z")
    message = f"the cluster is already paused since {since} by ann: an upgrade; nothing was changed"
    assert second.message == message
    assert second.paused == first.paused
    assert case.pause is not None
    assert (case.pause.by, case.pause.reason) == ("ann", "an upgrade")


def test_who_paused_and_who_resumed_is_in_the_log(case: Case) -> None:
    begin = case.clock.now()
    case.switches().pause("ann", "an upgrade")
    case.clock.sleep(90)
    case.switches().pause("bob", "lunch")  # already paused: nothing happened
    case.switches().resume("cy")
    since = begin.iso_seconds()
    assert [
        (entry.kind, entry.stopped) for entry in cluster_log(case.store, CLUSTER).entries(begin, case.clock.now())
    ] == [
        ("paused", "by ann: an upgrade"),
        ("resumed", f"by cy; it was paused since {since} by ann: an upgrade"),
    ]
    assert cluster_log(case.store, CLUSTER).last_tick(case.clock.now()) is None, "neither entry is a tick"


def test_a_log_that_cannot_be_written_does_not_undo_a_pause(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    class NoLog(Beside):
        def put(self, table: Table, item: Item) -> None:
            raise StoreUnavailable("the store is away")

        def update(self, table: Table, key: Key, update: Update, condition: Condition) -> Written:
            return case.store.update(table, key, update, condition)

    assert case.switches(NoLog(case.store)).pause("ann", "").done
    assert case.pause is not None
    assert "could not write this to the decision log: the store is away" in caplog.text


def test_a_cluster_that_is_not_paused_is_not_resumed(case: Case) -> None:
    found = case.switches().resume("ann")
    assert (found.step, found.done) == ("not paused", False)
    assert found.message == "the cluster is not paused; nothing was changed"
    assert case.store.get(STATE, pause_key(CLUSTER)) is None


def test_resuming_shows_the_pause_that_it_ended(case: Case) -> None:
    paused = case.switches(cluster=ClusterId("blue")).pause("ann", "")
    assert paused.message == "paused cluster blue"
    found = case.switches(cluster=ClusterId("blue")).resume("bob")
    since = shown_pause(paused).since.replace(".000Z", "Z")
    assert found.message == f"resumed cluster blue, which was paused since {since} by ann"
    assert (found.done, found.paused) == (True, None)
    assert case.switches(cluster=ClusterId("blue")).pause("ann", "again").done


def test_of_two_concurrent_pauses_one_wins_and_is_shown_to_the_other(case: Case) -> None:
    beside = Beside(case.store, lambda: case.switches().pause("ann", "first"))
    found = case.switches(beside).pause("bob", "second")
    assert (found.step, shown_pause(found).reason) == ("already paused", "first")


def test_of_two_concurrent_resumes_one_wins_and_the_other_changes_nothing(case: Case) -> None:
    case.switches().pause("ann", "")
    beside = Beside(case.store, lambda: case.switches().resume("ann"))
    found = case.switches(beside).resume("bob")
    assert (found.step, found.done) == ("not paused", False)


def test_a_pause_that_was_set_meanwhile_is_not_ended(case: Case) -> None:
    """Bob read Ann's pause. Before he wrote, she resumed and Cy paused for a reason that Bob does not know."""
    case.switches().pause("ann", "an upgrade")

    def meanwhile() -> None:
        case.switches().resume("ann")
        case.clock.sleep(1)
        case.switches().pause("cy", "the disk is full")

    found = case.switches(Beside(case.store, meanwhile)).resume("bob")
    assert (found.step, found.done) == ("paused again", False)
    assert "has meanwhile been paused since" in found.message
    assert case.pause is not None
    assert case.pause.reason == "the disk is full"


def test_only_the_pause_that_was_shown_is_ended(case: Case) -> None:
    """A page that has stood for an hour resumes nothing that it did not show."""
    shown = shown_pause(case.switches().pause("ann", "an upgrade")).since
    case.switches().resume("ann")
    case.clock.sleep(3600)
    later = shown_pause(case.switches().pause("cy", "the disk is full")).since
    assert case.switches().resume("bob", shown).step == "paused again"
    assert case.switches().resume("bob", later).step == "resumed"


def test_after_a_lost_response_our_own_pause_is_recognised(case: Case) -> None:
    paused = case.switches(Beside(case.store)).pause("ann", "an upgrade")
    assert (paused.step, paused.done) == ("paused", True)
    resumed = case.switches(Beside(case.store)).resume("ann")
    assert (resumed.step, resumed.done) == ("resumed", True)


def test_a_dry_run_shows_the_state_and_writes_nothing(case: Case) -> None:
    assert case.switches().would_pause().message == "would pause the cluster"
    assert case.switches().would_resume().step == "not paused"
    assert case.pause is None
    case.switches().pause("ann", "an upgrade")
    assert case.switches().would_pause().step == "already paused"
    would = case.switches().would_resume()
    assert (would.step, would.done) == ("would resume", False)
    assert case.pause is not None


def test_pause_and_resume_print_the_actual_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine where nothing is stored yet; a dry run creates nothing."""
    monkeypatch.chdir(tmp_path)

    def said(*words: str) -> str:
        result = CliRunner().invoke(cli, words)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    assert said("pause", "--dry-run") == "would pause the cluster\n"
    assert said("resume", "--dry-run") == "the cluster is not paused; nothing was changed\n"
    assert list(tmp_path.iterdir()) == []
    assert said("resume") == "the cluster is not paused; nothing was changed\n"
    assert said("pause", "--reason", "an upgrade") == "paused the cluster\n"
    assert ": an upgrade; nothing was changed" in said("pause", "--reason", "lunch")
    assert json.loads(said("pause", "--json"))["paused"]["reason"] == "an upgrade"
    assert said("resume").startswith("resumed the cluster, which was paused since ")
    assert said("resume") == "the cluster is not paused; nothing was changed\n"


def test_ending_an_outdated_pause_shows_the_current_one(case: Case) -> None:
    now = case.clock.now()
    seen = Pause("ann", now, "")
    set_pause(case.store, CLUSTER, Pause("cy", now, "the disk is full"))
    found = end_pause(case.store, CLUSTER, seen, "bob", now)
    assert not found.is_done
    assert found.pause is not None
    assert found.pause.by == "cy"
