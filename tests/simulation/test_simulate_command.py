"""`holdfast simulate`: what it prints, draws and exits with."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import cli
from holdfast.entrypoints.simulation.program import RunRequest
from holdfast.simulator.checkers.base import Checker
from holdfast.simulator.proof.faults import FaultKind
from holdfast.simulator.proof.plot_strokes import Scale, thinned
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.proof.run import Sample


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", *arguments])


def test_a_seed_as_json_is_one_object_of_counts() -> None:
    result = simulate("--seed", "3", "--json")
    assert result.exit_code == 0
    counts = json.loads(result.stdout)
    assert counts["seeds"] == 1
    assert counts["virtual_days"] == 0.25
    assert counts["port_calls"] > 1000
    assert counts["webhooks"] > counts["github_jobs"] > 5
    assert counts["faults"] == sum(counts["faults_by_kind"].values()) > 0
    assert counts["violations"] == 0


def test_the_summary_of_a_seed_covers_cluster_and_jobs() -> None:
    result = simulate("--seed", "3", "--story")
    assert result.exit_code == 0, result.output
    assert re.search(r"seed 3: \d+ workers in .*; \d+ jobs of \d+ runs at GitHub, \d+ webhooks;", result.stdout)
    for words in ("tick-1 ", "hook-0 ", "fleet-0 ", "sweep-1 ", "workflow_jobs 8#"):
        assert words in result.stdout


def test_the_summary_of_a_jobs_scenario_mentions_no_workers() -> None:
    result = simulate("--scenario", "gated-job", "--story")
    assert result.exit_code == 0, result.output
    assert "status → approved" in result.stdout
    assert "workers in" not in result.stdout


def test_several_seeds_are_searched_by_several_processes() -> None:
    result = simulate("--seeds", "4", "--jobs", "2", "--faults", "mild", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["seeds"] == 4


def test_days_sets_the_length_of_a_seed() -> None:
    result = simulate("--seed", "3", "--days", "0.125", "--faults", "none", "--json")
    assert json.loads(result.stdout)["virtual_days"] == 0.125


def test_a_plot_is_an_svg_of_the_whole_run(tmp_path: Path) -> None:
    file = tmp_path / "run.svg"
    result = simulate("--seed", "3", "--plot", str(file), "--json")
    assert result.exit_code == 0
    assert result.stderr == f"plot written to {file}\n"
    assert json.loads(result.stdout)["plot"] == str(file)
    picture = ElementTree.fromstring(file.read_text())  # noqa: S314 -- our own
    words = " ".join(text for text in picture.itertext())
    panels = (
        "workers, number",
        "pending pods, number",
        "CPU of the workers, %",
        "cost, US cents an hour",
        "jobs at GitHub",
    )
    lanes = ("scale-up", "scale-down", "spot notices", *json.loads(result.stdout)["faults_by_kind"])
    around = ("faults: nothing unsafe may happen", "healed: everything must settle", "hours since the start")
    for word in (*panels, *lanes, *around, "in service", "every invariant held"):
        assert word in words


def test_a_plot_of_a_jobs_scenario_has_no_cluster_curves(tmp_path: Path) -> None:
    file = tmp_path / "run.svg"
    assert simulate("--scenario", "plain-job", "--plot", str(file)).exit_code == 0
    words = " ".join(ElementTree.fromstring(file.read_text()).itertext())  # noqa: S314 -- our own
    assert "jobs at GitHub, number" in words
    assert "no faults" in words
    assert "workers" not in words


@pytest.mark.parametrize(
    ("value", "whole", "most", "step"),
    [
        (9, True, 10, 5),
        (1, True, 1, 1),
        (3, True, 3, 1),
        (100, False, 100, 50),
        (17.2, False, 20, 5),
        (0.3, False, 0.3, 0.1),
    ],
)
def test_an_axis_has_room_for_its_curve_and_a_few_round_marks(
    value: float, whole: bool, most: float, step: float
) -> None:
    scale = Scale.of(value, whole=whole)
    assert scale.most == pytest.approx(most)
    assert scale.step == pytest.approx(step)
    assert 2 <= len(scale.steps()) <= 6


def test_a_long_run_is_drawn_with_fewer_points_and_keeps_its_peaks_and_faults() -> None:
    samples = [Sample(number * 60, 2, 0, 9 if number == 777 else 0, 0.5, 0, faults=()) for number in range(2000)]
    samples[778].faults = (FaultKind.LOST,)
    drawn = thinned(samples)
    assert len(drawn) == 1000
    assert max(sample.pending for sample in drawn) == 9
    assert [sample.faults for sample in drawn if sample.faults] == [(FaultKind.LOST,)]


def test_a_plot_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    result = simulate("--scenario", "spot", "--plot", str(tmp_path / "none" / "run.svg"))
    assert result.exit_code == 1
    assert "cannot write" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--faults", "few"),
        ("--scenario", "unheard-of"),
        ("--seeds", "0"),
        ("--jobs", "65", "--seeds", "2"),
        ("--days", "0"),
        ("--days", "nan"),
        ("--seed", "-1"),
        ("--plot", "run.png"),
        ("--only", ", "),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    result = simulate(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--scenario", "spot", "--days", "1"), "--days"),
        (("--seeds", "2", "--plot", "x.svg"), "--plot"),
        (("--seeds", "2", "--only", "tick-1@1:lost"), "--only"),
        (("--seeds", "2", "--story"), "--story"),
        (("--jobs", "2"), "--jobs"),
        (("--story", "--json"), "--story"),
        (("--scenario", "list", "--seeds", "2"), "--seeds"),
        (("--scenario", "list", "--story"), "--story"),
    ],
    ids=" ".join,
)
def test_an_option_without_effect_is_refused(arguments: tuple[str, ...], named: str) -> None:
    result = simulate(*arguments)
    assert result.exit_code == 2
    assert named in result.stderr
    assert result.stdout == ""


def test_only_selects_faults_of_the_run() -> None:
    names = json.loads(simulate("--seed", "3", "--json").stdout)["fault_names"]
    alone = json.loads(simulate("--seed", "3", "--only", names[0], "--json").stdout)
    assert alone["fault_names"] == names[:1]
    wrong = simulate("--seed", "3", "--only", f"{names[0]},tick-1@9999:lost", "--json")
    assert wrong.exit_code == 2
    assert wrong.stdout == ""
    assert "unknown fault in this run: tick-1@9999:lost;" in wrong.stderr
    assert names[0] not in wrong.stderr.partition(";")[0]


def test_only_none_is_the_same_world_without_a_fault() -> None:
    result = simulate("--seed", "3", "--only", "none")
    assert result.exit_code == 0
    assert "; 0 faults" in result.stdout
    assert RunRequest(3).command([]) == "holdfast simulate --seed 3 --faults wild --only none"


def test_the_scenarios_are_listed() -> None:
    listed = json.loads(simulate("--scenario", "list", "--json").stdout)["items"]
    assert {"name", "about"} == set(listed[0])
    assert len(listed) >= 12


class TwiceKilled(Checker):
    name = "TwiceKilled"
    says = "no process is killed in this world"

    def ended(self, by: Process, error: BaseException | None) -> None:
        if type(error).__name__ == "Killed":
            self.fail(by, "it was killed")


def test_a_violation_prints_the_invariant_the_seed_the_needed_faults_and_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An invariant that any kill violates: one fault is needed, and the printed command reproduces the violation."""
    every = sys.modules["holdfast.simulator.checkers"].EVERY
    monkeypatch.setattr("holdfast.simulator.checkers.EVERY", (*every, TwiceKilled))
    monkeypatch.setattr(
        "holdfast.simulator.proof.run.Run.__init__.__kwdefaults__", {**kwdefaults(), "checkers": (TwiceKilled,)}
    )
    result = simulate("--seed", "17", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["violations"] == 1
    lines = result.stderr.strip().splitlines()
    assert lines[0].startswith("TwiceKilled violated: no process is killed")
    assert "faults needed (1 of" in result.stderr
    assert lines[-2] == "to reproduce:"
    words = lines[-1].split()
    assert words[:2] == ["holdfast", "simulate"]
    again = simulate(*words[2:])
    assert again.exit_code == 1
    assert again.stderr.strip().splitlines()[-1] == lines[-1]


def kwdefaults() -> dict[str, object]:
    from holdfast.simulator.proof.run import Run

    return dict(Run.__init__.__kwdefaults__ or {})
