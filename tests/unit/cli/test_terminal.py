"""Terminal output: tables that fit, colours where allowed, and a live status."""

import os
import re
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from click.testing import CliRunner
from msgspec import structs

from holdfast.adapters.sqlite import sqlite_store
from holdfast.cli.main import cli
from holdfast.cli.status import significant_state, status_lines
from holdfast.cli.terminal.colours import Style, is_coloured, job_style, painted
from holdfast.cli.terminal.layout import Cell, table_lines, wrapped
from holdfast.cli.terminal.output import words_lines
from holdfast.cli.terminal.watch import Blocks, Screen, watch
from holdfast.cli.tick_rows import what_was_done
from holdfast.control.pause import PauseStatus
from holdfast.control.rules import Verdict
from holdfast.jobs.model.facts import Status
from holdfast.kernel.errors import NeedsOperator, StoreUnavailable
from holdfast.kernel.settings import SETTINGS
from holdfast.ports.store.tables import TABLES
from holdfast.views.cluster_status import ClusterStatus, FailureStatus, LeaseStatus, ScaleUpAction
from holdfast.views.decisions import DecisionEntry, RuleResult, StepTaken, TickObserved
from tests.clocks import StillClock
from tests.support.job_world import HOSTILE, JobWorld
from tests.support.terminal import WAIT_SECONDS, on_terminal

CODES: Final = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("HOLDFAST_") or name in {"NO_COLOR", "COLUMNS", *(row.name for row in SETTINGS)}:
            monkeypatch.delenv(name)
    return tmp_path


def rows(*texts: Sequence[str]) -> list[list[Cell]]:
    return [[Cell(text) for text in row] for row in texts]


# Tables


def test_a_table_wraps_its_last_column_and_does_not_break_names() -> None:
    table = rows(["LONG_NAME", "x", "several words that do not fit a line of forty-five"])
    assert list(table_lines(["NAME", "V", "HELP"], table, 45)) == [
        "NAME       V  HELP",
        "LONG_NAME  x  several words that do not fit a",
        "              line of forty-five",
    ]


def test_text_for_which_a_column_is_too_narrow_goes_below_its_row() -> None:
    table = rows(["2026-11-16T11:36:14Z", "8", "nothing: not cpu_high (0.67), not pods_waiting (0)"])
    assert list(table_lines(["AT", "WORKERS", "WHY"], table, 44)) == [
        "AT                    WORKERS",
        "    WHY",
        "2026-11-16T11:36:14Z  8",
        "    nothing: not cpu_high (0.67), not",
        "    pods_waiting (0)",
    ]


def test_without_a_width_a_row_is_a_line() -> None:
    table = rows(["a", "b" * 300, "c " * 300])
    assert len(list(table_lines(["A", "B", "C"], table, None))) == 2


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 120])
@pytest.mark.parametrize(
    "texts",
    [
        ("x" * 300, "y" * 300, "z" * 300),
        ("日本語" * 40, "🚀" * 50, "ありがとう ございます " * 20),
        ("e\u0301" * 90, "", "\\u202e" * 30),
        ("", "", ""),
    ],
)
def test_a_table_fits_whatever_its_contents(texts: tuple[str, ...], width: int) -> None:
    for line in table_lines(["JOB", "STATUS", "WHERE"], rows(texts, ["1", "queued", "acme/shop"]), width):
        assert columns_of(line) <= width, line


def columns_of(line: str) -> int:
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in line)
    return len(line) + wide - sum(map(bool, map(unicodedata.combining, line)))


def test_no_character_is_lost_by_wrapping() -> None:
    text = "日本語 " + "x" * 50 + " e\u0301 ünïcode words"
    assert "".join(wrapped(text, 7)).replace(" ", "") == text.replace(" ", "")


def test_colours_take_no_width_and_end_with_their_text() -> None:
    table = [[Cell("1"), Cell("failure", Style.BAD), Cell("a b c d e f g h i j k l m n o p q r s t u v w x")]]
    coloured = list(table_lines(["JOB", "STATUS", "WHERE"], table, 44, painted))
    assert [CODES.sub("", line) for line in coloured] == list(table_lines(["JOB", "STATUS", "WHERE"], table, 44))
    assert "\x1b[31mfailure\x1b[0m" in coloured[1]
    assert all(line.count("\x1b[") % 2 == 0 for line in coloured)


def test_wrapped_lines_are_indented() -> None:
    assert words_lines("one two three four five", 14, indent=2) == ["  one two", "    three four", "    five"]
    assert words_lines("a\nb\x1b[2J", None) == ["a\\nb\\x1b[2J"]


# Colours


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_used_only_on_terminals_that_support_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert is_coloured(Terminal())
    assert not is_coloured(StringIO())
    monkeypatch.setenv("NO_COLOR", "")
    assert is_coloured(Terminal())
    monkeypatch.setenv("NO_COLOR", "0")
    assert not is_coloured(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not is_coloured(Terminal())


def test_every_status_of_a_job_has_a_colour_and_an_unknown_one_has_none() -> None:
    assert all(job_style(status) is not Style.PLAIN for status in Status if status != Status.COMPLETED)
    assert job_style("something new") is Style.PLAIN


# A real terminal


@contextmanager
def ended(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    """Whether the test passes or fails: otherwise the process might never end."""
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def ticked(directory: Path) -> Path:
    """A simulated cluster after two ticks."""
    for _ in range(2):
        assert CliRunner().invoke(cli, ["tick"]).exit_code == 0
    return directory


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("command", ["status", "explain", "tick --dry-run", "settings", "doctor", "tables describe"])
def test_on_a_terminal_everything_fits_and_colours_add_no_information(ticked: Path, command: str, columns: int) -> None:
    with on_terminal(*command.split(), columns=columns) as shown:
        assert shown.end() == 0
    with on_terminal(*command.split(), columns=columns, NO_COLOR="1") as bare:
        assert bare.end() == 0
    lines = CODES.sub("", shown.text).splitlines()
    assert len(lines) > 4
    if command != "tables describe":  # not a table: its purpose is one long line, which the terminal wraps itself
        assert [line for line in lines if len(line) > columns] == []
    assert "\x1b" not in bare.text
    if command not in ("explain", "tables describe", "settings"):
        assert CODES.search(shown.text)


@pytest.mark.parametrize("columns", [60, 80])
def test_figures_about_jobs_fit_a_terminal(directory: Path, columns: int) -> None:
    """The process has the real clock, and the jobs arrived long after it: they have not expired."""
    (directory / ".holdfast").mkdir()
    clock = StillClock()
    with closing(sqlite_store(directory / ".holdfast" / "holdfast.db", clock, tables=TABLES)) as store:
        world = JobWorld(store, clock)
        for number, name in enumerate(HOSTILE):
            world.job(number, "queued", "in_progress", "completed", conclusion="success", after=number, name=name)
    january = ["--since", "2026-01-01T00:00:00Z", "--until", "2026-02-01T00:00:00Z"]
    for command in (["jobs", "stats", *january], ["cost", *january], ["cost", "--by", "workflow", *january]):
        with on_terminal(*command, columns=columns) as shown:
            assert shown.end() == 0, shown.text
        lines = CODES.sub("", shown.text).splitlines()
        assert len(lines) > 2
        assert [line for line in lines if columns_of(line) > columns or not line.isprintable()] == []


def test_a_pipe_gets_no_colours(ticked: Path) -> None:
    for command in (["status"], ["explain"], ["doctor"], ["settings"]):
        found = subprocess.run([sys.executable, "-m", "holdfast.cli.main", *command], capture_output=True, check=True)
        assert b"\x1b" not in found.stdout


# Live


def test_status_on_a_terminal_is_redrawn_in_place_and_ends_with_ctrl_c(ticked: Path) -> None:
    with on_terminal("status", "--watch", "--interval", "0.1") as shown:
        shown.until("every 0.1 s; Ctrl-C to stop")
        first = len(shown.text)
        shown.until("every 0.1 s; Ctrl-C to stop")
        while len(shown.text) < first * 2:
            assert shown._read()
        shown.process.send_signal(signal.SIGINT)
        assert shown.end() == 0
    entered, left = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
    assert shown.text.startswith(entered)
    drawn, _, after = shown.text.removeprefix(entered).partition(left)
    assert drawn.count("\x1b[H") > 1
    assert all("the cluster has" in block for block in drawn.split("\x1b[H")[1:-1])
    assert CODES.sub("", after).startswith("the cluster has ")
    assert "Traceback" not in shown.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_pipe_gets_a_block_for_each_change_and_no_error_when_it_ends(ticked: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "status", "--watch", "--interval", "0.1"]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("the cluster has ")
        assert CliRunner().invoke(cli, ["pause", "--reason", "lunch\x1b[2J"]).exit_code == 0
        block = iter(process.stdout.readline, "")
        assert any("paused by" in line and "lunch\\x1b[2J" in line for line in block)
        process.send_signal(number)
        rest, errors = process.communicate(timeout=WAIT_SECONDS)
        assert (process.returncode, errors) == (0, "")
    assert "the cluster has" not in rest


def test_with_json_each_change_is_an_object_on_a_line(ticked: Path) -> None:
    import json

    command = [sys.executable, "-m", "holdfast.cli.main", "status", "--watch", "--json", "--interval", "0.1"]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["paused"] is None
        assert CliRunner().invoke(cli, ["pause"]).exit_code == 0
        assert json.loads(process.stdout.readline())["paused"]["reason"] == ""
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 0


def test_a_closed_pipe_ends_it_silently(ticked: Path) -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "status", "--watch", "--interval", "0.1"]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=WAIT_SECONDS, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_an_interval_without_watch_is_a_usage_error() -> None:
    result = CliRunner().invoke(cli, ["status", "--interval", "5"], prog_name="holdfast")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "holdfast: --interval needs --watch\n"


def looks(*answers: Any) -> Callable[[], Any]:
    waiting = list(answers)

    def look() -> Any:
        answer = waiting.pop(0) if waiting else KeyboardInterrupt()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return look


def test_a_temporary_error_is_shown_and_retried(capsys: pytest.CaptureFixture[str]) -> None:
    slept: list[float] = []
    blocks = Blocks(lambda seen: [f"saw {seen}"], lambda seen: seen)
    with pytest.raises(KeyboardInterrupt):
        watch(looks("a", StoreUnavailable("busy\x1b[2J"), "a", "b"), blocks, 3, slept.append)
    printed = capsys.readouterr()
    assert printed.out == "saw a\n\nsaw b\n"
    assert printed.err == "holdfast: busy\\x1b[2J\n"
    assert slept == [3, 3, 3, 3]


def test_an_error_that_needs_an_operator_ends_it() -> None:
    blocks = Blocks(lambda seen: [f"saw {seen}"], lambda seen: seen)
    with pytest.raises(NeedsOperator):
        watch(looks("a", NeedsOperator("the file is gone; put it back")), blocks, 3, lambda _seconds: None)


@pytest.mark.parametrize("lines", [3, 10, 40])
def test_a_screen_is_never_taller_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lines: int
) -> None:
    monkeypatch.setattr(
        "holdfast.cli.terminal.watch.shutil.get_terminal_size", lambda *_, **__: os.terminal_size((40, lines))
    )
    screen: Screen[str] = Screen(lambda _seen: [f"line {number}" for number in range(30)], 2)
    screen.show("x")
    screen.show_problem("p" * 100)
    drawn = capsys.readouterr().out.split("\x1b[H")[1:]
    assert [block.count("\n") + 1 for block in drawn] == [min(lines, 32)] * 2
    assert "every 2 s; Ctrl-C to stop" in drawn[0]
    assert f"{'p' * 40}\x1b[K" in drawn[1]


def decision(**changed: Any) -> DecisionEntry:
    entry: dict[str, Any] = {"at": "2026-01-15T10:00:00.123Z", "kind": "tick", "seen": None, "rules": [], "steps": []}
    return DecisionEntry(**{**entry, "stopped": None, "messages": [], "ticks": 1, **changed})


def overview(**changed: Any) -> ClusterStatus:
    last = decision(rules=[rule("no", "0.31")])
    status: dict[str, Any] = {
        "cluster": "c",
        "workers": 3,
        "action": None,
        "notices": [],
        "last_scale_at": None,
        "pending_since": None,
        "idle_since": None,
        "up_failures": 0,
        "up_backoff_until": None,
        "lease": LeaseStatus(owner="", until=None, fence=0),
        "paused": None,
        "last_tick": last,
        "failed_ticks": None,
        "last_failure": None,
    }
    return ClusterStatus(**{**status, **changed})


def rule(verdict: Literal["no", "yes"], value: str, name: str = "cpu_high", limit: str = ">= 0.70") -> RuleResult:
    return RuleResult(name=name, verdict=Verdict(verdict), value=value, limit=limit)


def last(**changed: Any) -> dict[str, Any]:
    return {"last_tick": decision(**changed)}


UP: Final = ScaleUpAction(id="7", phase="LAUNCHING", seconds=3, requested=1, machines=[], slots=[])
AT: Final = "2026-01-15T09:00:00.000Z"


@pytest.mark.parametrize(
    ("before", "after", "is_change"),
    [
        (last(), last(at="2026-01-15T10:01:00.000Z"), False),
        (last(rules=[rule("no", "0.31")]), last(rules=[rule("no", "0.35")]), False),
        (last(rules=[rule("no", "0.31")]), last(rules=[rule("yes", "0.75")]), True),
        ({"action": UP}, {"action": structs.replace(UP, seconds=9)}, False),
        ({"action": UP}, {"action": structs.replace(UP, phase="JOINING")}, True),
        ({}, {"action": UP}, True),
        ({}, {"workers": 4}, True),
        ({}, {"paused": PauseStatus(by="x", since=AT, reason="")}, True),
        (last(), last(steps=[StepTaken(kind="repair", because="odd")]), True),
        ({}, {"last_tick": None}, True),
        ({}, {"last_failure": FailureStatus(what="NoLook", at=AT, why="slow")}, True),
    ],
)
def test_passing_time_is_not_a_change(before: dict[str, Any], after: dict[str, Any], is_change: bool) -> None:
    assert (significant_state(overview(**before)) != significant_state(overview(**after))) is is_change


def test_status_describes_problems_in_words() -> None:
    seen = overview(
        action=UP,
        up_failures=2,
        up_backoff_until="2026-01-15T10:05:00.000Z",
        paused=PauseStatus(by="a\nb", since="2026-01-15T10:00:00.000Z", reason="tests"),
        last_tick=decision(rules=[rule("no", "0.31")], stopped="lease held by x", ticks=3),
        last_failure=FailureStatus(what="a temporary error", at=AT, why="slow\x1b[2J"),
    )
    assert list(status_lines(seen, None)) == [
        "cluster c has 3 workers",
        "  paused by a\\nb since 2026-01-15T10:00:00Z: tests",
        "  scale-up 7: LAUNCHING for 3 s",
        "  last action completed: never",
        "  2 scale-ups failed in a row; next attempt after 2026-01-15T10:05:00Z",
        "  last failure 2026-01-15T09:00:00Z: a temporary error: slow\\x1b[2J",
        "  last tick 2026-01-15T10:00:00Z: stopped (3 ticks): lease held by x",
        "",
        "  RULE      HOLDS  SEEN  LIMIT",
        "  cpu_high  no     0.31  >= 0.70",
    ]
    assert list(status_lines(overview(workers=1, last_tick=None), None)) == [
        "cluster c has 1 worker",
        "  no action in progress",
        "  last action completed: never",
        "  no ticks in the last day; 'holdfast doctor' checks everything that a tick needs",
    ]


def test_while_ticks_fail_status_says_so_as_explain_does() -> None:
    """The last tick that completed looks healthy, and may be hours old."""
    failed = decision(kind="no-tick", at="2026-01-15T11:00:00.000Z", stopped="EC2 does not answer", ticks=5)
    failure = FailureStatus(what="a temporary error", at=AT, why="EC2 does not answer")
    lines = list(status_lines(overview(failed_ticks=failed, last_failure=failure), None))
    assert lines[3:5] == [
        "  last tick 2026-01-15T11:00:00Z: stopped (5 ticks): EC2 does not answer",
        "  last tick that completed 2026-01-15T10:00:00Z: nothing: not cpu_high (0.31)",
    ]
    assert what_was_done(failed) in lines[3], "the words of explain"
    never = list(status_lines(overview(failed_ticks=failed, last_tick=None), None))
    assert never[-1].startswith("  no tick completed in the last day")


def test_a_waiting_tick_says_what_it_waits_for() -> None:
    """Not which rules keep it from starting something else; and a rule that is checked twice is named once."""
    asked_twice = [rule("no", "scale-up 7", "no_action_under_way", "none")] * 2
    seen = TickObserved(
        workers=1,
        expected=1,
        cpu=None,
        pending=None,
        nodes=None,
        ready_elsewhere=None,
        unknown={},
        action="7",
        phase="VERIFYING",
        notices=0,
        paused=False,
        fence=1,
    )
    assert what_was_done(decision(rules=asked_twice, seen=seen)) == "nothing new: 7 is in progress, VERIFYING"
    assert what_was_done(decision(rules=asked_twice)) == "nothing: not no_action_under_way (scale-up 7)"


def test_a_pause_is_shown_as_a_pause_and_not_as_a_stopped_tick() -> None:
    stopped = "by ann: an upgrade"
    assert what_was_done(decision(stopped=stopped, kind="paused")) == "paused by ann: an upgrade"
    assert what_was_done(decision(stopped=stopped, kind="no-tick")) == "stopped: by ann: an upgrade"
