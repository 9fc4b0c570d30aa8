"""Who counts: the daemon's loop, the function that sweeps, a recount, and a backfill that ends."""

from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import sqlite_store
from holdfast.cli.main import cli
from holdfast.entrypoints.figure_counts import FigureCounter, figure_counter
from holdfast.jobs.figures.stored_calendar import read_calendar
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.settings import load_settings
from holdfast.ports.store import Store
from holdfast.ports.store.tables import TABLES
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.clocks import StillClock
from tests.payloads import CREATED, INSTALLATION_ID
from tests.support.figure_stories import INSTALLATION, Life, read_figures, tell, true_figures
from tests.support.job_world import NOW, JobWorld, in_the_afternoon

DAY = 86_400
LIVES = [Life(number, -number * DAY) for number in range(1, 12)]


def _counter(store: Store, clock: StillClock) -> FigureCounter:
    return FigureCounter(store, clock, "team", 60)


def _told(clock: StillClock) -> Store:
    store = memory_store(clock)
    for life in LIVES:
        tell(store, clock, life.events())
    return store


def test_the_loop_counts_without_a_pause_until_it_has_caught_up() -> None:
    clock = StillClock(NOW)
    store = _told(clock)
    counter = _counter(store, clock)
    waits = [counter.run()]
    while waits[-1] < 60:
        waits.append(counter.run())
    assert len(waits) > 3
    assert read_figures(store, clock).days == true_figures(store, LIVES)


def test_a_function_counts_as_long_as_it_may() -> None:
    clock = StillClock(NOW)
    store = _told(clock)
    assert _counter(store, clock).count(0).is_behind
    found = _counter(store, clock).count(20)
    assert (found.is_behind, found.problems) == (False, [])
    assert read_figures(store, clock).days == true_figures(store, LIVES)


def test_two_processes_do_not_count_twice_in_an_interval() -> None:
    clock = StillClock(NOW)
    store = _told(clock)
    _counter(store, clock).count(20)
    clock.advance(30)
    assert _counter(store, clock).count(20).hours == 0
    clock.advance(30)
    assert _counter(store, clock).count(20).hours > 0


def test_a_store_that_fails_is_reported_and_the_next_turn_counts() -> None:
    clock = StillClock(NOW)
    store = _told(clock)

    def away(call: PortCall, _moment: CallPoint) -> None:
        if call.method == "query":
            raise StoreUnavailable("away")

    failing = CallGate(away).wrapped(store, "store")
    assert _counter(failing, clock).count(20).problems == [f"installation {INSTALLATION}: away"]
    assert _counter(store, clock).count(20).problems == []


@pytest.mark.parametrize(
    ("given", "seconds"),
    [({}, 60), ({"HOLDFAST_STORE": "dynamodb:"}, 720), ({"FIGURES_SEC": "120"}, 120)],
)
def test_the_interval_is_that_of_the_setting_or_the_store(given: dict[str, str], seconds: float) -> None:
    clock = StillClock(NOW)
    assert figure_counter(load_settings(given), memory_store(clock), clock).every_seconds == seconds


def test_a_recount_is_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_afternoon(tmp_path, monkeypatch)
    monkeypatch.setattr("holdfast.entrypoints.figure_counts.world_clock", lambda _settings: StillClock(NOW))
    (tmp_path / ".holdfast").mkdir(mode=0o700)
    with closing(sqlite_store(tmp_path / ".holdfast" / "holdfast.db", StillClock(NOW), tables=TABLES)) as store:
        world = JobWorld(store, StillClock(NOW))
        world.job(1, "queued", "in_progress", "completed")
        world.count()
        before = read_calendar(store, INSTALLATION)
    result = CliRunner().invoke(cli, ["jobs", "recount", "--since", CREATED.plus(-5 * DAY).iso()])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"installation {INSTALLATION_ID}: the next passes will count its jobs again\n"
    with closing(sqlite_store(tmp_path / ".holdfast" / "holdfast.db", StillClock(NOW), tables=TABLES)) as store:
        after = read_calendar(store, INSTALLATION)
    assert before is not None
    assert after is not None
    assert after.frontier < before.frontier
    assert after.reached == before.reached
