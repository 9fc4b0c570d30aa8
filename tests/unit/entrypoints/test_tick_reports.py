"""What the log says about ticks that fail: at which level, and how often."""

import logging
from typing import Any

import pytest
from msgspec.structs import force_setattr

from holdfast.control.lease import LeaseHeld
from holdfast.entrypoints.daemon import Ticker
from holdfast.entrypoints.tick_reports import TickReports
from holdfast.entrypoints.wiring.world import OpenWorld
from holdfast.kernel.errors import HoldfastError, NeedsOperator, StoreUnavailable
from holdfast.ports.store import Key, set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.world.k3s import Workload
from tests.clocks import StillClock
from tests.simulation.harness import Stage

Line = tuple[str, str]


class AwayStore:
    """A store that answers no call."""

    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, _name: str) -> Any:
        def call(*_: object, **__: object) -> Any:
            self.calls += 1
            raise StoreUnavailable(f"DynamoDB does not respond; gave up after {self.calls} s")

        return call


class Daemon:
    """The daemon's ticks, and what they log."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.stage = Stage()
        self.stage.clock.sleep(60)
        self.cluster = self.stage.cluster()
        self.ports = (self.cluster.reads, self.cluster.writes)
        world = OpenWorld(self.stage.clock, self.stage.machines, None, None, [], "", "", None)  # type: ignore[arg-type]
        self.ticker = Ticker(self.cluster, world, TickReports(self.cluster, []), 60)
        self._caplog = caplog
        caplog.set_level(logging.INFO)

    def lose_store(self) -> None:
        self.use(AwayStore())

    def use(self, store: Any) -> None:
        for ports in self.ports:
            force_setattr(ports, "store", store)

    def ticked(self, times: int = 1) -> list[Line]:
        """The lines at INFO and above of so many ticks, one a minute."""
        self._caplog.clear()
        for _ in range(times):
            self.ticker.run()
            self.stage.clock.sleep(60)
        return [(record.levelname, record.getMessage()) for record in self._caplog.records]


@pytest.fixture
def daemon(caplog: pytest.LogCaptureFixture) -> Daemon:
    return Daemon(caplog)


def test_while_the_store_is_away_the_failed_tick_is_the_warning_and_the_only_one(daemon: Daemon) -> None:
    daemon.lose_store()
    ((level, line),) = daemon.ticked()
    assert level == "WARNING"
    assert line.startswith("tick failed: DynamoDB does not respond")
    assert line.endswith("; the next tick is the retry")


def test_an_outage_is_logged_once_and_then_every_ten_minutes_with_its_count(daemon: Daemon) -> None:
    """The texts differ in a number, as those of DynamoDB do."""
    daemon.lose_store()
    lines = daemon.ticked(25)
    assert [level for level, _ in lines] == ["WARNING"] * 3
    assert [line.rpartition(" (")[2] for _, line in lines[1:]] == ["11 times in a row)", "21 times in a row)"]


def test_the_end_of_an_outage_is_logged_and_the_next_outage_is_not_folded_into_it(daemon: Daemon) -> None:
    daemon.lose_store()
    daemon.ticked(3)
    daemon.use(daemon.stage.store)
    assert daemon.ticked() == [("INFO", "a tick succeeded again, after 3 failures")]
    assert daemon.ticked() == []
    daemon.lose_store()
    ((level, _),) = daemon.ticked()
    assert level == "WARNING"


def test_a_tick_that_stands_by_is_no_warning(daemon: Daemon) -> None:
    stage = daemon.stage
    until = stage.clock.now().plus(3000).epoch_seconds
    stage.store.update(STATE, Key("cluster"), set_all({"lockOwner": "other", "lockUntilEpoch": until}))
    stage.world.k3s.run(Workload("web", 60))
    lines = daemon.ticked(3)
    assert [(level, line.partition(" for ")[0]) for level, line in lines] == [
        ("INFO", "tick skipped: lease held by other")
    ]


class NoPuts:
    """A store in which nothing can be put: neither the log nor the latest failure."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, *_: object, **__: object) -> Any:
        raise StoreUnavailable("LOGS_TABLE does not respond")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_successful_tick_that_cannot_be_recorded_says_that_it_succeeded(daemon: Daemon) -> None:
    daemon.use(NoPuts(daemon.stage.store))
    lines = daemon.ticked()
    assert lines == [
        (
            "WARNING",
            "the tick succeeded, but could not be recorded in the decision log: LOGS_TABLE does not respond",
        )
    ]


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (StoreUnavailable("away"), "WARNING"),
        (NeedsOperator("no permission"), "ERROR"),
        (LeaseHeld("held by another"), "INFO"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_kind_of_failure_has_its_level(error: HoldfastError, level: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    TickReports(Stage().cluster(), []).failed(error)
    assert [record.levelname for record in caplog.records] == [level]


def test_a_clock_that_is_set_back_does_not_silence_the_log(caplog: pytest.LogCaptureFixture) -> None:
    stage, clock = Stage(), StillClock()
    cluster = stage.cluster()
    force_setattr(cluster.writes, "clock", clock)
    reports = TickReports(cluster, [])
    reports.failed(StoreUnavailable("away"))
    clock.advance(-86_400)
    reports.failed(StoreUnavailable("away"))
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 2
