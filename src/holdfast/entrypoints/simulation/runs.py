"""Simulator runs started from the console: one at a time, each in its own process.

The process has a low priority, so that it does not slow down the server and the ticks. It gets none of our settings or
secrets, and ends when this process does.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from msgspec import structs

from holdfast.kernel.errors import BadRequest
from holdfast.kernel.text import cut
from holdfast.simulator.proof.scenarios import SCENARIOS
from holdfast.simulator.proof.swarm import Faultiness
from holdfast.views.simulator_status import CheckerResult, RunSettings, SimulatorRun, ViolationFound

SEED_MOST: Final = 10**9
SEEDS_MOST: Final = 1000
_COMMAND: Final = (sys.executable, "-P", "-m", "holdfast.entrypoints.simulation.process")
_ITS_ENVIRONMENT: Final = ("PATH", "PYTHON", "LANG", "LC_", "LD_", "TMP")
_VIOLATIONS_KEPT: Final = 10
_LINE_MOST: Final = 300


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What to simulate: `seeds` seeds from `seed` on. Each draws its own world, or the faults of a scenario."""

    seed: int
    seeds: int
    faults: Faultiness
    scenario: str | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "RunOrder":
        scenario = given.get("scenario") or None
        if scenario is not None and scenario not in SCENARIOS:
            raise BadRequest(f"scenario {cut(scenario)!r}: expected one of {', '.join(SCENARIOS)}")
        faults = given.get("faults") or (Faultiness.NONE if scenario else Faultiness.WILD)
        if faults not in set(Faultiness):
            raise BadRequest(f"faults {cut(faults)!r}: expected one of {', '.join(Faultiness)}")
        seed = _number(given, "seed", 0, SEED_MOST)
        return cls(seed, _number(given, "seeds", 1, SEEDS_MOST), Faultiness(faults), scenario)

    def command(self) -> str:
        """The same run on the command line."""
        words = ["holdfast simulate", f"--seed {self.seed}", f"--seeds {self.seeds}", f"--faults {self.faults}"]
        return " ".join([*words, f"--scenario {self.scenario}"] if self.scenario else words)


def _number(given: Mapping[str, str], name: str, least: int, most: int) -> int:
    text = given.get(name) or "1"
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise BadRequest(f"{name} {cut(text)!r}: expected a whole number from {least} to {most:,}")
    return int(text)


@dataclass
class _RunProgress:
    """What a run has reported so far."""

    seeds_done: int = 0
    virtual_days: float = 0.0
    port_calls: int = 0
    faults: int = 0
    checkers: list[CheckerResult] = field(default_factory=list)
    violations: list[ViolationFound] = field(default_factory=list)

    def add(self, report: Mapping[str, Any]) -> None:
        if "checkers" in report:
            self.checkers = [
                CheckerResult(name=each["name"], says=each["says"], broken=0) for each in report["checkers"]
            ]
            return
        self.seeds_done += 1
        self.virtual_days = round(self.virtual_days + report["virtual_days"], 4)
        self.port_calls += report["port_calls"]
        self.faults += report["faults"]
        for violation in report["violations"]:
            place = next(n for n, each in enumerate(self.checkers) if each.name == violation["invariant"])
            checker = self.checkers[place]
            self.checkers[place] = structs.replace(checker, broken=checker.broken + 1)
            if len(self.violations) < _VIOLATIONS_KEPT:
                story = [cut(line, _LINE_MOST) for line in violation["story"]]
                self.violations.append(ViolationFound(**{**violation, "says": checker.says, "story": story}))


class _Running:
    """One run, from its start. A thread reads its reports."""

    def __init__(self, order: RunOrder, command: Sequence[str], changed: Callable[[], None]) -> None:
        self.order = order
        self._changed = changed
        self._progress = _RunProgress()
        self._began_seconds = time.monotonic()
        self._ended_seconds: float | None = None
        self._was_stopped = False
        self._last_line = ""
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [*command, json.dumps(asdict(order))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={name: value for name, value in os.environ.items() if name.startswith(_ITS_ENVIRONMENT)},
        )
        self._listener = threading.Thread(target=self._listen, name="simulator-run", daemon=True)
        self._listener.start()

    @property
    def is_under_way(self) -> bool:
        with self._lock:
            return self._ended_seconds is None

    def stop(self) -> None:
        self._was_stopped = True
        self._process.kill()
        self._listener.join()

    def shown(self) -> SimulatorRun:
        with self._lock:
            end = time.monotonic() if self._ended_seconds is None else self._ended_seconds
            progress = self._progress
            return SimulatorRun(
                state=self._state(),
                problem=self._last_line or "it exited without a message" if self._state() == "failed" else None,
                order=RunSettings(**asdict(self.order)),
                command=self.order.command(),
                seconds=round(end - self._began_seconds, 1),
                seeds_done=progress.seeds_done,
                virtual_days=progress.virtual_days,
                port_calls=progress.port_calls,
                faults=progress.faults,
                checkers=list(progress.checkers),
                violations=list(progress.violations),
            )

    def _state(self) -> Literal["running", "done", "stopped", "failed"]:
        if self._progress.seeds_done == self.order.seeds:
            return "done"
        if self._ended_seconds is None:
            return "running"
        return "stopped" if self._was_stopped else "failed"

    def _listen(self) -> None:
        with self._process as process:
            for line in process.stdout or ():
                with self._lock:
                    self._take(line)
                self._changed()
        with self._lock:
            self._ended_seconds = time.monotonic()
        self._changed()

    def _take(self, line: str) -> None:
        try:
            self._progress.add(json.loads(line))
        except (ValueError, LookupError, TypeError):
            self._last_line = cut(line.strip(), _LINE_MOST) or self._last_line


class SimulatorRuns:
    """The newest run, running or ended. `changed` is called after each report, from another thread."""

    def __init__(self, changed: Callable[[], None], command: Sequence[str] = _COMMAND) -> None:
        self._changed = changed
        self._command = command
        self._newest: _Running | None = None
        self._lock = threading.Lock()

    def start(self, params: Mapping[str, str]) -> SimulatorRun:
        order = RunOrder.of(params)
        with self._lock:
            if self._newest is not None and self._newest.is_under_way:
                raise BadRequest("a run is already in progress; stop it, or wait until it ends")
            self._newest = _Running(order, self._command, self._changed)
            return self._newest.shown()

    def stop(self) -> SimulatorRun:
        """Stop the run, if one is running."""
        with self._lock:
            if self._newest is None:
                raise BadRequest("there has been no run yet")
            if self._newest.is_under_way:
                self._newest.stop()
            return self._newest.shown()

    def shown(self) -> SimulatorRun | None:
        newest = self._newest
        return None if newest is None else newest.shown()
