"""Simulator runs started from the console: in a separate process, one at a time."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.entrypoints.simulation import process as simulation_process
from holdfast.entrypoints.simulation.console_controls import SimulatorConsole
from holdfast.entrypoints.simulation.program import RunRequest
from holdfast.entrypoints.simulation.runs import _COMMAND, SEEDS_MOST, SimulatorRuns
from holdfast.entrypoints.simulation.search import tally_of
from holdfast.kernel.errors import BadRequest
from holdfast.simulator.checkers import EVERY
from holdfast.simulator.checkers.base import Checker
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.proof.run import Run
from holdfast.simulator.proof.swarm import Faultiness
from holdfast.views.plain_json import json_object
from tests.support.answer_schemas import check
from tests.support.console_access import OPEN, TOKENS, bearer
from tests.support.console_world import OPERATOR, ORIGIN, READER, ConsoleWorld
from tests.support.persistent_worlds import persistent_world

LONG = {"seed": "1", "seeds": str(SEEDS_MOST)}
PATIENCE_SECONDS = 120.0


class Watched:
    """Runs, and a way to wait for their progress."""

    def __init__(self, *command: str) -> None:
        self._change = threading.Condition()
        self.runs = SimulatorRuns(self._changed, command) if command else SimulatorRuns(self._changed)

    def _changed(self) -> None:
        with self._change:
            self._change.notify_all()

    def until(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        with self._change:
            assert self._change.wait_for(lambda: is_so(self.shown()), PATIENCE_SECONDS), self.shown()
        return self.shown()

    def ended(self) -> dict[str, Any]:
        return self.until(lambda run: run["state"] != "running")

    def shown(self) -> dict[str, Any]:
        shown = self.runs.shown()
        assert shown is not None
        return json_object(shown)


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    if watched.runs.shown():
        watched.runs.stop()


def test_a_run_has_the_same_result_as_the_command_line(watched: Watched) -> None:
    assert watched.runs.shown() is None
    begun = watched.runs.start({"seed": "3", "seeds": "2", "faults": "mild"})
    assert (begun.state, begun.seeds_done, begun.violations) == ("running", 0, [])
    done = watched.ended()
    expected = tally_of(RunRequest(3, Faultiness.MILD), [3, 4])
    assert (done["state"], done["problem"], done["seeds_done"]) == ("done", None, 2)
    assert (done["port_calls"], done["faults"]) == (expected.port_calls, expected.faults.total())
    assert done["virtual_days"] == expected.virtual_days
    assert [checker["name"] for checker in done["checkers"]] == [checker.name for checker in EVERY]
    assert done["command"] == "holdfast simulate --seed 3 --seeds 2 --faults mild"


def test_one_run_at_a_time_with_a_low_priority_until_it_is_stopped(watched: Watched) -> None:
    watched.runs.start(LONG)
    watched.until(lambda run: bool(run["checkers"]))
    assert watched.runs._newest is not None
    process = watched.runs._newest._process
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    with pytest.raises(BadRequest, match="a run is already in progress"):
        watched.runs.start({"seed": "2"})
    stopped = watched.runs.stop()
    assert stopped.state == "stopped"
    assert process.returncode == -signal.SIGKILL
    assert watched.runs.stop() == stopped
    watched.runs.start({"seed": "2", "scenario": "scale-up"})
    assert watched.ended()["state"] == "done"


def test_its_process_ends_with_its_input() -> None:
    """Even if another process still reads its output."""
    order = json.dumps({"seed": 1, "seeds": SEEDS_MOST, "faults": "wild", "scenario": None})
    process = subprocess.Popen([*_COMMAND, order], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert "checkers" in json.loads(process.stdout.readline())
        process.stdin.close()
        try:
            process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0


def test_it_ends_when_its_parent_is_killed() -> None:
    script = f"""
from holdfast.entrypoints.simulation.runs import SimulatorRuns
import threading
changed = threading.Event()
runs = SimulatorRuns(changed.set)
runs.start({LONG!r})
changed.wait()
print(runs._newest._process.pid, flush=True)
threading.Event().wait()
"""
    starter = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with starter:
        assert starter.stdout is not None
        handle = os.pidfd_open(int(starter.stdout.readline()))
        try:
            starter.kill()
            assert select.select([handle], [], [], PATIENCE_SECONDS)[0]
        finally:
            os.close(handle)


def test_its_process_has_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a failure is reported with its last output."""
    monkeypatch.setenv("CONSOLE_TOKEN", OPERATOR)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    watched = Watched(sys.executable, "-c", "import os; print('beginning'); raise SystemExit(str(sorted(os.environ)))")
    watched.runs.start({})
    failed = watched.ended()
    assert failed["state"] == "failed"
    assert "'PATH'" in failed["problem"]
    assert not {"CONSOLE_TOKEN", "AWS_SECRET_ACCESS_KEY"} & set(failed["problem"].split("'"))
    assert failed["seeds_done"] == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seed": "-1"}, "seed '-1': expected a whole number from 0 to 1,000,000,000"),
        ({"seed": "1e3"}, "seed '1e3'"),
        ({"seed": "9" * 5000}, "expected a whole number"),
        ({"seed": "\xb2"}, "expected a whole number"),
        ({"seeds": "0"}, "seeds '0': expected a whole number from 1 to 1,000"),
        ({"seeds": "1001"}, "from 1 to 1,000"),
        ({"faults": "some"}, "faults 'some': expected one of none, mild, wild"),
        ({"scenario": "<script>"}, "scenario '<script>': expected one of scale-up"),
    ],
)
def test_an_invalid_request_starts_nothing(given: dict[str, str], said: str, watched: Watched) -> None:
    with pytest.raises(BadRequest) as refused:
        watched.runs.start(given)
    assert said in str(refused.value)
    assert watched.runs.shown() is None


class NoProcessKilled(Checker):
    name = "NoProcessKilled"
    says = "no process is <killed> in this world"

    def ended(self, by: Process, error: BaseException | None) -> None:
        if type(error).__name__ == "Killed":
            self.fail(by, "it was killed")


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The output of the process for a world in which an invariant is violated."""
    monkeypatch.setattr(simulation_process, "EVERY", (NoProcessKilled,))
    defaults = {**(Run.__init__.__kwdefaults__ or {}), "checkers": (NoProcessKilled,)}
    monkeypatch.setattr("holdfast.simulator.proof.run.Run.__init__.__kwdefaults__", defaults)
    reports: list[dict[str, Any]] = []
    simulation_process.report_runs(RunRequest(17), 2, reports.append)
    return reports


def said(messages: list[dict[str, Any]]) -> str:
    """A program that prints exactly that."""
    lines = "\n".join(json.dumps(message) for message in messages)
    return f"print({lines!r})"


def test_a_violation_is_shown_with_its_trace_and_the_command_to_reproduce_it(messages: list[dict[str, Any]]) -> None:
    watched = Watched(sys.executable, "-c", said(messages))
    watched.runs.start({"seed": "17", "seeds": "2"})
    done = watched.ended()
    assert done["state"] == "done"
    assert done["checkers"] == [{"name": "NoProcessKilled", "says": NoProcessKilled.says, "broken": 2}]
    first = done["violations"][0]
    assert (first["seed"], first["invariant"], first["found"]) == (17, "NoProcessKilled", "it was killed")
    assert any("VIOLATION NoProcessKilled" in line for line in first["story"])
    assert first["command"] == "holdfast simulate --seed 17 --faults wild"


# The page


@pytest.fixture
def controls(tmp_path: Path, messages: list[dict[str, Any]]) -> Iterator[tuple[SimulatorConsole, Watched]]:
    watched = Watched(sys.executable, "-c", said(messages))
    with persistent_world(tmp_path) as world:
        yield SimulatorConsole(world, 7, lambda: None, watched.runs), watched


ORDER = {"seed": "17", "seeds": "2", "faults": "wild", "scenario": ""}


def test_a_run_is_started_and_watched_on_the_page(controls: tuple[SimulatorConsole, Watched]) -> None:
    world = ConsoleWorld(access=OPEN, controls=controls[0])
    assert "No runs yet" in world.get("/simulator").text
    check("simulator", world.get("/api/simulator").json)
    sent = world.post("/simulator/run", ORDER, ORIGIN)
    assert (sent.status, sent.headers["location"]) == (303, "/simulator#run")
    controls[1].ended()
    page = world.get("/simulator").text
    for words in (
        "2 of 2 seeds",
        "<option selected>wild</option>",
        'value="19"',
        "seed 17: it was killed",
        "no process is &lt;killed&gt;",
        "violated in 2 seeds",
    ):
        assert words in page
    answered = world.get("/api/simulator").json
    assert answered["run"]["violations"][1]["seed"] == 18
    check("simulator", answered)


def test_a_run_is_started_with_json(controls: tuple[SimulatorConsole, Watched]) -> None:
    world = ConsoleWorld(access=TOKENS, controls=controls[0])
    order = json.dumps({"seed": 17, "seeds": 2}).encode()
    assert world.ask("POST", "/api/simulator/run", bearer(OPERATOR), body=order).json["order"] == {
        "seed": 17,
        "seeds": 2,
        "faults": "wild",
        "scenario": None,
    }
    controls[1].ended()
    ended = world.ask("POST", "/api/simulator/stop", bearer(OPERATOR)).json
    assert ended["state"] == "done"
    check("simulator-run", ended)
    for body in (b"[]", b"{", b'{"seed": "17"}', b'{"speed": 1}', b'{"seed": -1}'):
        refused = world.ask("POST", "/api/simulator/run", bearer(OPERATOR), body=body)
        assert (refused.status, refused.json["error"]["code"]) == (400, "bad_request")
    assert world.ask("POST", "/api/simulator/run", bearer(OPERATOR), body=b" " * 5000).status == 413


@pytest.mark.parametrize("path", ["/simulator/run", "/simulator/stop", "/api/simulator/run", "/api/simulator/stop"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        (bearer(READER), 403),
        ({"origin": "https://evil.example"}, 401),
    ],
)
def test_only_operators_start_runs(
    path: str, headers: Mapping[str, str], status: int, controls: tuple[SimulatorConsole, Watched]
) -> None:
    assert ConsoleWorld(access=TOKENS, controls=controls[0]).post(path, ORDER, headers).status == status
    on_this_machine = ConsoleWorld(access=OPEN, controls=controls[0])
    assert on_this_machine.post(path, ORDER, {"origin": "https://evil.example"}).status == 403
    assert controls[1].runs.shown() is None


def test_a_refused_request_shows_a_page_that_says_why(controls: tuple[SimulatorConsole, Watched]) -> None:
    world = ConsoleWorld(access=OPEN, controls=controls[0])
    refused = world.post("/simulator/run", {"seed": "<b>"}, {**ORIGIN, "accept": "text/html"})
    assert refused.status == 400
    assert "<h1>Bad request</h1>" in refused.text
    assert "seed &#39;&lt;b&gt;&#39;" in refused.text
    assert '<a href="/simulator#run">Go back</a>' in refused.text
    assert world.post("/simulator/run", {"seed": "<b>"}, ORIGIN).json["error"]["code"] == "bad_request"


def test_readers_see_no_buttons(controls: tuple[SimulatorConsole, Watched]) -> None:
    world = ConsoleWorld(access=TOKENS, controls=controls[0])
    assert "<form" not in world.get("/simulator", bearer(READER)).text
    assert 'action="/simulator/run"' in world.get("/simulator", bearer(OPERATOR)).text
