"""Counting: whatever order, repetition, crash or second process, the figures are those of all jobs."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.dynamodb.calls import DynamoCalls
from holdfast.adapters.dynamodb.store import DynamoStore
from holdfast.adapters.dynamodb.tables import DynamoTables
from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import sqlite_store
from holdfast.jobs.figures import slices
from holdfast.jobs.figures.counting import Counting
from holdfast.jobs.figures.slices import Body, Slices, day_slice, hour_slice, partition_of
from holdfast.jobs.figures.totals import Figures, merged
from holdfast.kernel.errors import StoreUnavailable, WriteConflict
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Consumed, Query, Store, attr, every_item
from holdfast.ports.store.admin import CreateTable
from holdfast.ports.store.tables import JOBS, LOGS, TABLES
from holdfast.simulator.proof.processes import Killed
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.clocks import START, StillClock
from tests.contracts import backends
from tests.payloads import CREATED, REPOSITORY
from tests.servers.processes import RunningServer
from tests.support.figure_stories import (
    INSTALLATION,
    Life,
    count_until_done,
    read_figures,
    tell,
    true_figures,
)

HOUR = 3600
DAY = 24 * HOUR
_NUMBERS = count(1)


@pytest.fixture(params=["memory", "sqlite", pytest.param("dynamodb", marks=pytest.mark.real)])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, StillClock]]:
    """A store, and a clock of a time at which no real clock considers its items expired."""
    clock = StillClock(START)
    if request.param != "dynamodb":
        path = tmp_path / "s.db"
        store = memory_store(clock) if request.param == "memory" else sqlite_store(path, clock, tables=TABLES)
        yield store, clock
        store.close()
        return
    server: RunningServer = request.getfixturevalue("dynamodb_server")
    transport = backends.dynamodb_calls(server.url, clock).transport
    calls = DynamoCalls(transport, clock)
    names = {table.setting: f"{table.name}-figures-{next(_NUMBERS)}" for table in TABLES}
    for table in TABLES:
        DynamoTables(calls, names).carry_out(CreateTable(table))
    yield DynamoStore(calls, names), clock
    for name in names.values():
        calls.call("DeleteTable", {"TableName": name})
    transport.close()


def _lives(base: Instant) -> list[Life]:
    plain = [Life(number, number * 1900, base=base) for number in range(1, 8)]
    return [
        *plain,
        Life(20, 100, conclusion="failure", base=base),
        Life(21, 200, is_gated=True, base=base),
        Life(22, 300, is_interrupted=True, base=base),
        Life(23, 400, is_stolen=True, base=base),
        Life(24, 500, has_ended=False, base=base),
    ]


def _tell_all(store: Store, clock: StillClock, lives: list[Life]) -> None:
    for life in lives:
        tell(store, clock, life.events())


def _not_ended(lives: list[Life]) -> list[Life]:
    return [replace(life, has_ended=False) for life in lives]


def test_the_figures_are_those_of_all_jobs_on_every_backend(stored: tuple[Store, StillClock]) -> None:
    """Of the whole items, although only the index is read: with attempts, gates and runners that ran another job."""
    store, clock = stored
    lives = _lives(START)
    clock.advance(5 * HOUR)
    _tell_all(store, clock, lives)
    counting = Counting(store, clock, INSTALLATION)
    count_until_done(counting)
    assert read_figures(store, clock).days == true_figures(store, lives)
    for _ in range(30):  # the day ends, and has a slice of its own
        clock.advance(HOUR)
        counting.run_pass()
    assert Slices(store, INSTALLATION).read(day_slice(START.date())).version
    found = read_figures(store, clock)
    assert (found.days, found.unknown_days) == (true_figures(store, lives), [])
    assert read_figures(store, clock, REPOSITORY).days == found.days
    assert read_figures(store, clock, "acme/other").days == {}


# Any order, duplication and crash


_LIFE = st.builds(
    Life,
    number=st.integers(1, 12),
    created=st.integers(0, 40).map(lambda step: step * 1300),
    conclusion=st.sampled_from(["success", "failure", "cancelled"]),
    job_name=st.sampled_from(["lint", "test"]),
    is_gated=st.booleans(),
    is_interrupted=st.booleans(),
    is_stolen=st.booleans(),
)
_LIVES = st.lists(_LIFE, min_size=1, max_size=6, unique_by=lambda life: life.number)


@settings(max_examples=40)
@given(_LIVES, st.data())
def test_any_order_repetition_and_crash_gives_the_same_figures(lives: list[Life], data: st.DataObject) -> None:
    clock = StillClock(CREATED)
    store = memory_store(clock)
    told = data.draw(st.permutations([said for life in lives for said in life.events()] * 2))
    for said in told:
        match data.draw(st.sampled_from(["tell", "tell", "tell", "pass", "crash", "wait"])):
            case "pass":
                Counting(store, clock, INSTALLATION).run_pass()
            case "crash":
                _crashed_pass(store, clock, data.draw(st.integers(1, 12)))
            case "wait":
                clock.advance(data.draw(st.integers(1, 5)) * 1700)
            case _:
                pass
        tell(store, clock, [said])
    # No pass is lost for good: at the latest a checkpoint counts what came late. Each step is less than a long pause.
    for _ in range(26):
        clock.advance(2 * HOUR)
        Counting(store, clock, INSTALLATION).run_pass()
    assert read_figures(store, clock).days == true_figures(store, lives)


def _crashed_pass(store: Store, clock: StillClock, at: int) -> int:
    """A pass that dies after so many writes; returns how many it made. What it only reads changes nothing."""
    writes = 0

    def hook(call: PortCall, here: CallPoint) -> None:
        nonlocal writes
        if call.method not in ("batch_get", "get", "query") and here is CallPoint.AFTER:
            writes += 1
            if writes == at:
                raise Killed

    with suppress(Killed):
        Counting(CallGate(hook).wrapped(store, "store"), clock, INSTALLATION).run_pass()
    return writes


def test_a_crash_after_any_write_is_repaired_by_the_next_pass() -> None:
    """At the turn of a day, when hours, the day and its repositories are written."""
    for at in count(1):
        clock = StillClock(CREATED)
        store = memory_store(clock)
        lives = _lives(CREATED)
        _tell_all(store, clock, [*lives[:6], *_not_ended(lives[6:])])
        clock.advance(14 * HOUR)
        Counting(store, clock, INSTALLATION).run_pass()
        _tell_all(store, clock, lives[6:])
        clock.advance(10 * HOUR)
        writes = _crashed_pass(store, clock, at)
        Counting(store, clock, INSTALLATION).run_pass()
        truth = true_figures(store, lives)
        assert read_figures(store, clock).days == truth, f"died after write {at}"
        assert read_figures(store, clock, REPOSITORY).days == truth, f"died after write {at}"
        if writes < at:
            assert at > 5, "the pass made too few writes to prove anything"
            return


@pytest.mark.parametrize("moment", [CallPoint.AFTER, pytest.param(CallPoint.BEFORE, marks=pytest.mark.slow)])
def test_two_passes_at_once_lose_nothing(moment: CallPoint) -> None:
    """While one waits at a call, more jobs end, and another counts them; then the first goes on."""
    for at in count():
        calls = _two_passes(at, moment)
        if at >= calls:
            assert at > 10, "the pass made too few calls to prove anything"
            return


def _two_passes(at: int, moment: CallPoint) -> int:
    clock = StillClock(CREATED)
    store = memory_store(clock)
    lives = _lives(CREATED)
    _tell_all(store, clock, [*lives[:6], *_not_ended(lives[6:])])
    clock.advance(16 * HOUR)

    def hook(call: PortCall, here: CallPoint) -> None:
        if call.number == at and here is moment:
            _tell_all(store, clock, lives[6:])
            Counting(store, clock, INSTALLATION).run_pass()

    gate = CallGate(hook)
    Counting(gate.wrapped(store, "store"), clock, INSTALLATION).run_pass()
    truth = true_figures(store, lives)
    assert read_figures(store, clock).days == truth, f"met at call {at}"
    assert read_figures(store, clock, REPOSITORY).days == truth, f"met at call {at}"
    return len(gate.calls)


def test_a_lost_answer_doubles_nothing() -> None:
    clock = StillClock(CREATED.plus(5 * HOUR))
    store = memory_store(clock)
    lives = _lives(CREATED)
    _tell_all(store, clock, lives)
    for at in range(40):

        def hook(call: PortCall, here: CallPoint, at: int = at) -> None:
            if call.number == at and here is CallPoint.AFTER:
                raise StoreUnavailable("no answer")

        with suppress(StoreUnavailable):
            Counting(CallGate(hook).wrapped(store, "store"), clock, INSTALLATION).run_pass()
    assert read_figures(store, clock).days == true_figures(store, lives)


# Slices


def test_a_paused_process_replaces_nothing_newer() -> None:
    clock = StillClock(CREATED)
    slices_ = Slices(memory_store(clock), INSTALLATION)
    name = hour_slice("2026-01-15T10")
    known = slices_.read(name)
    newer = slices_.put(known, Body(sources={"a": "newer"}), clock.now(), clock.now().plus(DAY))
    with pytest.raises(WriteConflict):
        slices_.put(known, Body(sources={"a": "older"}), clock.now(), clock.now().plus(DAY))
    assert slices_.read(name) == newer


def test_a_slice_of_several_items_is_read_whole_and_leaves_none_behind(
    stored: tuple[Store, StillClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "PART_BYTES", 100)
    store, clock = stored
    found = Slices(store, INSTALLATION)
    known = found.read("day#2100-01-15")
    for text in ("x", "xyz" * 3):
        body = Body(sources={f"{text}{number}": f"{number * 7919 % 1009}" for number in range(200)})
        known = found.put(known, body, clock.now(), clock.now().plus(DAY))
        assert known.parts > 3
        assert found.read("day#2100-01-15") == known
        assert found.between("day#2100-01-15", "day#2100-01-16") == {"day#2100-01-15": known}
    known = found.put(known, Body(), clock.now(), clock.now().plus(DAY))
    assert found.between("day#2100-01-15", "day#2100-01-16") == {"day#2100-01-15": known}
    assert len(list(every_item(store, Query(LOGS, partition_of(INSTALLATION), consistent=True)))) == 1


def test_an_expired_slice_is_replaced_before_the_store_removes_it(stored: tuple[Store, StillClock]) -> None:
    store, clock = stored
    found = Slices(store, INSTALLATION)
    old = found.put(found.read("day#x"), Body(sources={"a": "1"}), clock.now(), clock.now().plus(60))
    clock.advance(61)
    known = found.read("day#x")
    assert known.version == 0
    new = found.put(known, Body(sources={"a": "2"}), clock.now(), clock.now().plus(60))
    assert found.read("day#x") == new != old


def test_a_pass_in_which_nothing_happened_writes_only_its_calendar() -> None:
    clock, consumed = StillClock(CREATED.plus(5 * HOUR)), list[Consumed]()
    store = memory_store(clock, consumed.append)
    _tell_all(store, clock, _lives(CREATED))
    count_until_done(Counting(store, clock, INSTALLATION))
    clock.advance(60)
    consumed.clear()
    Counting(store, clock, INSTALLATION).run_pass()
    assert [each.call for each in consumed if each.write_units] == ["put"]


# Building, pauses, recounts


def test_an_initial_build_takes_several_passes_and_names_the_days_that_it_has_not_reached() -> None:
    clock = StillClock(CREATED.plus(20 * DAY))
    store = memory_store(clock)
    lives = [Life(number, number * DAY) for number in range(1, 20)]
    _tell_all(store, clock, lives)
    before = read_figures(store, clock)
    assert (before.days, before.counted_at) == ({}, None)
    assert "2026-01-20" in before.unknown_days
    counting = Counting(store, clock, INSTALLATION)
    assert counting.run_pass().is_behind
    half = read_figures(store, clock)
    truth = true_figures(store, lives)
    assert half.counted_at == clock.now()
    assert "2026-01-16" in half.days
    assert half.unknown_days[-1] >= "2026-02-03"
    for day, figures in half.days.items():
        assert day in half.unknown_days or figures == truth[day]
    passes = 1
    while counting.run_pass().is_behind:
        passes += 1
    assert passes > 5
    after = read_figures(store, clock)
    assert (after.days, after.unknown_days) == (truth, [])


def test_after_a_pause_of_days_everything_is_counted_and_until_then_unknown() -> None:
    clock = StillClock(CREATED)
    store = memory_store(clock)
    counting = Counting(store, clock, INSTALLATION)
    counting.run_pass()
    lives = [Life(number, number * 5 * HOUR) for number in range(1, 30)]
    _tell_all(store, clock, lives)
    clock.advance(7 * DAY)
    assert read_figures(store, clock).unknown_days[-1] == clock.now().date()
    count_until_done(counting)
    found = read_figures(store, clock)
    assert (found.days, found.unknown_days) == (true_figures(store, lives), [])


def test_a_clock_that_was_far_ahead_hides_nothing() -> None:
    clock, ahead = StillClock(CREATED.plus(HOUR)), StillClock(CREATED.plus(60 * DAY))
    store = memory_store(clock)
    Counting(store, ahead, INSTALLATION).run_pass()
    lives = _lives(CREATED)
    clock.advance(5 * HOUR)
    _tell_all(store, clock, lives)
    count_until_done(Counting(store, clock, INSTALLATION))
    assert read_figures(store, clock).days == true_figures(store, lives)


def _counted_for_days(store: Store, clock: StillClock, lives: list[Life]) -> Counting:
    """All jobs have ended, and their day is made."""
    _tell_all(store, clock, lives)
    counting = Counting(store, clock, INSTALLATION)
    for _ in range(40):
        clock.advance(HOUR)
        counting.run_pass()
    return counting


def test_figures_of_days_outlive_their_jobs_and_a_recount_leaves_them() -> None:
    clock = StillClock(CREATED)
    store = memory_store(clock)
    lives = _lives(CREATED)
    counting = _counted_for_days(store, clock, lives)
    truth = true_figures(store, lives)
    clock.advance(120 * DAY)
    counting.recount(CREATED)
    count_until_done(counting)
    assert true_figures(store, lives) == {}
    assert read_figures(store, clock, days=200).days == truth


def test_a_recount_of_a_day_whose_hours_have_expired_keeps_its_jobs() -> None:
    clock = StillClock(CREATED)
    store = memory_store(clock)
    lives = _lives(CREATED)
    counting = _counted_for_days(store, clock, lives)
    clock.advance(60 * DAY)
    counting.recount(CREATED.plus(2 * HOUR))
    tell(store, clock, [replace(lives[-1], has_ended=True).events()[-2]])
    count_until_done(counting)
    assert read_figures(store, clock, days=100).days == true_figures(store, lives)
    assert read_figures(store, clock, days=100).unknown_days == []


def test_a_renamed_repository_leaves_no_jobs_under_its_old_name() -> None:
    clock = StillClock(CREATED)
    store = memory_store(clock)
    lives = _lives(CREATED)[:3]
    _tell_all(store, clock, lives)
    counting = Counting(store, clock, INSTALLATION)
    for _ in range(30):
        clock.advance(HOUR)
        counting.run_pass()
    for life in lives:
        store.update(JOBS, life.key.item, attr("GSI2-PK").set_to(f"{INSTALLATION}#acme/renamed"))
    counting.recount(CREATED)
    count_until_done(counting)
    assert merged(read_figures(store, clock, REPOSITORY).days.values()) == Figures()
    assert read_figures(store, clock, "acme/renamed").days == true_figures(store, lives)
