"""`status` and `explain` say why something was done, or not done, after a run in the simulated world."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.adapters.sqlite import sqlite_store
from holdfast.adapters.system_clock import SystemClock
from holdfast.cli.main import cli
from holdfast.ports.store.tables import TABLES
from holdfast.simulator.world.k3s import Workload
from tests.simulation.harness import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Pods became pending an hour ago; the store is a file."""
    start = SystemClock().now().plus(-3000)
    stage = Stage(start=start, open_store=lambda clock: sqlite_store(tmp_path / "holdfast.db", clock, tables=TABLES))
    stage.world.k3s.run(Workload("web", 35))
    yield stage
    stage.store.close()


def holdfast(tmp_path: Path, *arguments: str) -> Result:
    environment = {"HOLDFAST_STORE": f"sqlite:{tmp_path / 'holdfast.db'}", "LOG_LEVEL": "error"}
    return CliRunner().invoke(cli, list(arguments), env=environment, catch_exceptions=False)


def test_explain_says_for_every_tick_what_was_done_and_why_or_why_not(stage: Stage, tmp_path: Path) -> None:
    stage.tick_until(lambda: stage.state.last_scale.epoch_ms > 0)
    ticks = json.loads(holdfast(tmp_path, "explain", "--since", "2h", "--json").stdout)["items"]
    first, *_, last = ticks
    assert first["steps"] == []
    waited = next(rule for rule in first["rules"] if rule["name"] == "waiting_long_enough")
    assert (waited["verdict"], waited["limit"]) == ("no", ">= 180 s")
    kinds = [step["kind"] for tick in ticks for step in tick["steps"]]
    assert kinds[0] == "begin_scale_up"
    assert kinds[-1] == "complete_scale_up"
    assert "joined" in last["steps"][-1]["because"]
    text = holdfast(tmp_path, "explain", "--since", "2h").stdout
    assert re.search(r"not waiting_long_enough \((59|60|61) s\)", text)
    assert "begin_scale_up: 15 pods pending" in text


def test_status_shows_the_action_under_way(stage: Stage, tmp_path: Path) -> None:
    stage.tick_until(lambda: stage.state.up is not None)
    text = holdfast(tmp_path, "status").stdout
    assert "scale-up" in text
    assert "VERIFYING" in text
    overview = json.loads(holdfast(tmp_path, "status", "--json").stdout)
    assert overview["action"]["requested"] == 2
    assert len(overview["action"]["machines"]) == 2


def test_a_pause_starts_nothing_new_and_says_so(stage: Stage, tmp_path: Path) -> None:
    stage.tick()
    stage.store.close()
    assert "paused the cluster" in holdfast(tmp_path, "pause", "--reason", "an upgrade").stdout
    assert "an upgrade" in holdfast(tmp_path, "status").stdout
    stage.store = sqlite_store(tmp_path / "holdfast.db", stage.clock, tables=TABLES)
    for _ in range(8):
        stage.tick()
    assert len(stage.alive) == 2
    stage.store.close()
    holdfast(tmp_path, "resume")
    stage.store = sqlite_store(tmp_path / "holdfast.db", stage.clock, tables=TABLES)
    stage.tick_until(lambda: len(stage.alive) == 4)


def test_a_dry_run_of_a_pause_changes_nothing(stage: Stage, tmp_path: Path) -> None:
    assert "would pause" in holdfast(tmp_path, "pause", "--dry-run").stdout
    assert json.loads(holdfast(tmp_path, "status", "--json").stdout)["paused"] is None


def test_an_invalid_duration_is_a_clear_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli, ["explain", "--since", "yesterday"], env={"HOLDFAST_STORE": f"sqlite:{tmp_path}/x.db"}
    )
    assert result.exit_code == 2
    assert "for example 30m" in result.stderr
