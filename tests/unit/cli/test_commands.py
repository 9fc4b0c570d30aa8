"""Every command: its --json output, its exit code, and its suggestion for a typo."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from holdfast.adapters.sqlite import sqlite_store
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.main import cli
from holdfast.cluster.rules import A_WORKER_MAY_LEAVE
from holdfast.cluster.seen import Seen
from holdfast.cluster.state import ClusterState
from holdfast.cluster.tick_summary import cluster_log, summary_of
from holdfast.control.decision_log import TickRecord
from holdfast.control.rules import rule
from holdfast.entrypoints.simulation.search import Tally
from holdfast.kernel import errors
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.ids import ClusterId
from holdfast.ports.readings import Unknown
from holdfast.ports.store.tables import TABLES
from tests.clocks import StillClock
from tests.payloads import JOB_ID
from tests.support.commands import ARGUMENTS, DEPLOYMENT, ENDLESS, REFUSED, leaves
from tests.support.job_world import NOW, JobWorld, in_the_afternoon
from tests.support.price_lists import listed, product
from tests.support.runner_offers import described
from tests.support.terminal import on_terminal

PAGE: Final = Path(__file__).parents[3] / "docs" / "terminal.md"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Only the settings of the test, and a clock that stands still in the afternoon."""
    in_the_afternoon(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def filled(directory: Path) -> Path:
    """A store with a run, a job, and one that waits for its deployment."""
    (directory / ".holdfast").mkdir()
    clock = StillClock(NOW)
    with closing(sqlite_store(directory / ".holdfast" / "holdfast.db", clock, tables=TABLES)) as store:
        world = JobWorld(store, clock)
        world.run()
        world.job(JOB_ID, "queued", "in_progress", "completed", conclusion="failure")
        world.job(2, "queued", "waiting", after=60, deployment=DEPLOYMENT)
    (directory / "list.json").write_text(listed(product()))
    (directory / "types.json").write_text(described(("m7i.large", 2, 8192, "x86_64")))
    return directory


def holdfast(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=environment, prog_name="holdfast")


@pytest.mark.parametrize("command", ["explain", "status"])
def test_what_a_rule_names_one_by_one_has_a_line_each(directory: Path, command: str) -> None:
    (directory / ".holdfast").mkdir()
    clock = StillClock(NOW)
    lines = ("i-1: pod kube-system/coredns: it stays", "i-2: it is \x1b[31mthe newest worker")
    details = rule(A_WORKER_MAY_LEAVE, holds=False, value="0 of 2 workers", limit=">= 1 worker", details=lines)
    seen = Seen(ClusterId("cluster"), NOW, ClusterState(), (), Unknown("-"), Unknown("-"), Unknown("-"))
    with closing(sqlite_store(directory / ".holdfast" / "holdfast.db", clock, tables=TABLES)) as store:
        record = TickRecord(NOW, "here", summary_of(seen), [details], [], None, [])
        cluster_log(store, ClusterId("cluster")).record(record)
    shown = holdfast(command, COLUMNS="200").output
    assert "a_worker_may_leave: i-1: pod kube-system/coredns: it stays\n" in shown
    assert "a_worker_may_leave: i-2: it is \\x1b[31mthe newest worker\n" in shown


# --json


def test_every_command_is_tested_here() -> None:
    assert {path for path, _ in leaves(cli)} == set(ARGUMENTS) | REFUSED | ENDLESS


@pytest.mark.parametrize("path", sorted(ARGUMENTS))
def test_json_is_one_object_and_nothing_else(filled: Path, path: str) -> None:
    result = holdfast(*path.split(), *ARGUMENTS[path].split(), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    assert found
    if "items" in found:
        assert "cursor" in found


@pytest.mark.parametrize("path", sorted(REFUSED))
def test_an_error_leaves_stdout_empty(filled: Path, path: str) -> None:
    result = holdfast(*path.split(), "--json")
    assert result.exit_code in (ExitCode.FAILED, ExitCode.USAGE)
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)


@pytest.mark.parametrize("path", sorted(ARGUMENTS))
def test_without_json_the_output_is_text(filled: Path, path: str) -> None:
    result = holdfast(*path.split(), *ARGUMENTS[path].split())
    assert (result.exit_code, bool(result.stdout.strip())) == (0, True)
    assert not result.stdout.startswith("{")


# Typos


@pytest.mark.parametrize(
    ("arguments", "guess"),
    [
        (("statsu",), "Did you mean 'status'?"),
        (("docter",), "Did you mean 'doctor'?"),
        (("jobs", "lst"), "Did you mean 'list'?"),
        (("status", "--wacth"), "Did you mean '--watch'?"),
        (("jobs", "list", "--staus", "queued"), "Did you mean '--status'?"),
        (("simulate", "--scenario", "scale_up"), "did you mean 'scale-up'?"),
        (("simulate", "--scenario", "spot-strom"), "did you mean 'spot-storm'?"),
        (("simulate", "--scenario", "\x1b[2J"), "'holdfast simulate --scenario list' lists all"),
    ],
)
def test_a_typo_gets_a_suggestion(arguments: tuple[str, ...], guess: str) -> None:
    result = holdfast(*arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (ExitCode.USAGE, "", 1)
    assert guess in result.stderr
    assert result.stderr.strip().isprintable()


def test_a_setting_with_a_typo_gets_a_suggestion(directory: Path) -> None:
    (directory / "holdfast.toml").write_text("MAX_WORKER = 5\n")
    result = holdfast("status", HOLDFAST_STOER="x")
    assert result.exit_code == ExitCode.USAGE
    assert "HOLDFAST_STOER is not a setting; did you mean HOLDFAST_STORE?" in result.stderr
    assert "MAX_WORKER is not a setting; did you mean MAX_WORKERS?" in result.stderr


# Exit codes


def codes_in(page: str) -> dict[int, str]:
    section = page.partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    return {int(code): words for code, words in re.findall(r"^\| ([0-9]+) \| (.+) \|$", section, re.MULTILINE)}


def test_the_docs_list_every_exit_code_and_no_other() -> None:
    assert set(codes_in(PAGE.read_text(encoding="utf-8"))) == set(ExitCode)


def kinds(kind: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from kinds(below)


def test_every_error_exits_with_a_documented_code() -> None:
    assert {kind.exit_code for kind in kinds(HoldfastError)} == {ExitCode.FAILED, ExitCode.USAGE}
    usage = {kind for kind in kinds(HoldfastError) if kind.exit_code == ExitCode.USAGE}
    assert usage == {errors.BadSetting, errors.MissingExtra}


@pytest.mark.parametrize(
    ("arguments", "environment", "code"),
    [
        (("--version",), {}, ExitCode.DONE),
        (("settings", "--help"), {}, ExitCode.DONE),
        (("doctor",), {}, ExitCode.DONE),
        (("tables", "check"), {}, ExitCode.FAILED),
        (("status",), {}, ExitCode.FAILED),
        (("doctor",), {"MAX_WORKERS": "ten"}, ExitCode.FAILED),
        (("jobs", "show", "x"), {}, ExitCode.FAILED),
        (("settings",), {"MAX_WORKERS": "ten"}, ExitCode.USAGE),
        (("settings", "--nothing"), {}, ExitCode.USAGE),
        (("nothing",), {}, ExitCode.USAGE),
        ((), {}, ExitCode.USAGE),
        (("jobs",), {}, ExitCode.USAGE),
    ],
)
def test_a_command_exits_with_its_documented_code(
    arguments: tuple[str, ...], environment: dict[str, str], code: ExitCode
) -> None:
    assert holdfast(*arguments, **environment).exit_code == code


def test_an_interrupted_search_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a pipe, where no progress is shown."""

    def interrupted(_request: object, _seeds: object, _jobs: int, report: Callable[[Tally], object], **_: int) -> None:
        report(Tally(seeds=12, found={7: "NoLeak"}))
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.entrypoints.simulation.search.search", interrupted)
    result = holdfast("simulate", "--seeds", "100")
    assert (result.exit_code, result.stdout) == (ExitCode.INTERRUPTED, "")
    assert result.stderr.strip() == "interrupted after 12 of 100 seeds: 1 violation (seeds 7)"


def test_an_interrupted_seed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.entrypoints.simulation.program.outcome_of", interrupted)
    result = holdfast("simulate", "--seed", "7")
    assert (result.exit_code, result.stderr.strip()) == (ExitCode.INTERRUPTED, "interrupted; seed 7 was not completed")


@pytest.mark.parametrize(
    ("data", "arguments"),
    [
        ("elsewhere", ("explain",)),
        ("else where", ("status",)),
        ("elsewhere/x.db", ("jobs", "list")),
        ("elsewhere", ("kill",)),
        ("elsewhere", ("doctor",)),
        ("elsewhere", ("tables", "describe")),
        ("elsewhere", ("prices", "show")),
    ],
)
def test_a_suggested_command_uses_the_same_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, arguments: tuple[str, ...]
) -> None:
    """Without its --data it would create, or show, something else."""
    monkeypatch.chdir(tmp_path)
    result = holdfast(*arguments, "--data", data)
    assert re.search(rf"holdfast [a-z ]+ --data {re.escape(shlex.quote(data))}", result.output), result.output
    assert not re.search(r"(: |')holdfast (run|tables create|prices refresh)('|$)", result.output, re.MULTILINE)


def test_ctrl_c_ends_a_running_command_with_130() -> None:
    with on_terminal("simulate", "--seeds", "100000") as shown:
        shown.until("seeds/s")
        shown.process.send_signal(signal.SIGINT)
        assert shown.end() == ExitCode.INTERRUPTED
    assert "Traceback" not in shown.text


def test_ctrl_c_ends_a_search_and_its_workers_without_a_traceback() -> None:
    """A terminal sends Ctrl-C to the whole process group. The workers get it as well, and may still be starting."""
    with on_terminal("simulate", "--seeds", "100000", own_group=True) as shown:
        shown.until("seeds/s")
        os.killpg(shown.process.pid, signal.SIGINT)
        assert shown.end() == ExitCode.INTERRUPTED  # `end` waits until no process holds the terminal
    assert "Traceback" not in shown.text


def test_a_search_shows_its_progress_at_once_and_after_each_seed() -> None:
    with on_terminal("simulate", "--seeds", "3", "--days", "0.1") as shown:
        assert shown.end() == ExitCode.DONE
    assert [f" {number}/3 " in shown.text for number in range(4)] == [True] * 4
    with on_terminal("simulate", "--seeds", "1", "--days", "0.1", "--json") as shown:
        assert shown.end() == ExitCode.DONE
    assert "seeds/s" not in shown.text


def test_ctrl_c_while_modules_are_imported_prints_nothing() -> None:
    code = """
import sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "holdfast.cli.main":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from holdfast.cli.start import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.INTERRUPTED, "", "")


def test_the_workers_of_a_killed_search_end_with_it() -> None:
    with on_terminal("simulate", "--seeds", "100000", own_group=True) as shown:
        shown.until("seeds/s")
        shown.process.kill()
        shown.end()  # returns when the last process that holds the terminal has ended
