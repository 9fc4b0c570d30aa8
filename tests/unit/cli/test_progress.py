"""The progress of a long command: lines in a pipe, a bar on a terminal."""

import os
import pty
import re
import subprocess
import sys

import pytest

from holdfast.cli.terminal import progress
from holdfast.cli.terminal.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("holdfast.cli.terminal.progress.time.monotonic", lambda: now[0])
    return now


def test_without_a_terminal_there_is_a_line_now_and_then(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the rate and the time left; the work of an earlier run does not count for the rate."""
    with Progress("backfill", "objects") as shown:
        shown.show(1000, 5000, "")
        for done in (1100, 1200, 1300):
            clock[0] += 5
            shown.show(done, 5000, f"{done} written")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "backfill: 1200 of 5000 objects, 20 per second, 3 min 10 s left, 1200 written\n"


def test_without_a_known_total_none_is_shown(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("compare", "objects") as shown:
        shown.show(0, None, "")
        clock[0] += 20
        shown.show(500, None, "0 differences")
    assert capsys.readouterr().err == "compare: 500 objects, 25 per second, 0 differences\n"


@pytest.mark.parametrize(("seconds", "words"), [(7, "7 s"), (61, "1 min 01 s"), (7500, "2 h 05 min")])
def test_durations_are_written_in_words(seconds: float, words: str) -> None:
    assert progress._span(seconds) == words


PROGRAM = """
import sys
if {without_rich}: sys.modules["rich"] = None; import importlib.util; importlib.util.find_spec = lambda name: None
from holdfast.cli.terminal.progress import Progress
with Progress("backfill", "objects") as shown:
    for done in range(0, 101, 50):
        shown.show(done, 100, str(done) + " written")
"""


@pytest.mark.parametrize("without_rich", [True, False])
def test_on_a_terminal_there_is_a_bar(without_rich: bool) -> None:
    main, other = pty.openpty()
    program = PROGRAM.format(without_rich=without_rich)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, "-c", program], stderr=other, stdout=subprocess.PIPE, env=environment, check=True
    )
    os.close(other)
    said = os.read(main, 100_000).decode(errors="replace")
    os.close(main)
    assert done.stdout == b""
    assert re.search("█|━", said)
    assert "100 written" in said
    assert "100 of 100 objects" in said if without_rich else "100/100" in said
