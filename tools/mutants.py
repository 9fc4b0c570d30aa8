"""Plant mistakes in the production code and see whether a checker finds them: `python -m tools.mutants [NAME…]`.

Each is planted in a process of its own, when the module is imported; files are not touched. Writes docs/mutants.md
when all were tried. A mistake whose text is no longer there is an error: the list must follow the code.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tools.kill_rates_page import with_rates
from tools.planted import MUTANTS, Mutant

if TYPE_CHECKING:  # nothing of Holdfast's is imported before the mistake is planted
    from holdfast.simulator.proof.run import Outcome, Program
    from holdfast.simulator.proof.swarm import Setup

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "mutants.md"
SEEDS_MOST = 100
SLEEP_SECONDS = 340  # longer than a sweep: another process has handled it by then
_START = """\
<!-- Written by `python -m tools.mutants`. Change tools/planted, not this page. -->

# Planted mistakes

Each line is a mistake that was planted in the production code, and the checker that found it first: in a scenario, with
the program killed or put to sleep at each call of a scenario, or with the faults of a seed. What the checkers watch is
in [proof.md](proof.md). `make test-real` plants each of them again, and fails where this page is not what it finds.

| mistake | in | found by | where |
| --- | --- | --- | --- |
"""


class Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module with the mistake in it."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,  # noqa: ARG002 -- as importlib calls it
        target: ModuleType | None = None,  # noqa: ARG002 -- as above
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._mutant.module:
            return None
        return importlib.util.spec_from_loader(name, self, origin=str(file_of(self._mutant)))

    def exec_module(self, module: ModuleType) -> None:
        source = with_mistake(self._mutant, file_of(self._mutant).read_text(encoding="utf-8"))
        exec(compile(source, f"{self._mutant.module} with {self._mutant.name!r}", "exec"), module.__dict__)  # noqa: S102


def file_of(mutant: Mutant) -> Path:
    return ROOT / "src" / f"{mutant.module.replace('.', '/')}.py"


def with_mistake(mutant: Mutant, source: str) -> str:
    found = source.count(mutant.old)
    if found != 1:
        raise LookupError(f"{mutant.name}: its text is {found} times in {mutant.module}, and must be there once")
    return source.replace(mutant.old, mutant.new)


def hunted(mutant: Mutant) -> dict[str, Any]:
    """In this process: plant it, and look for harm until some is found."""
    import logging

    logging.disable(logging.CRITICAL)
    sys.meta_path.insert(0, Planted(mutant))
    for outcome, where in hunts(mutant.where):
        if outcome.violations:
            return {"by": outcome.invariants[0], "where": where, "found": outcome.violations[0][0].found}
    return {"by": None, "where": f"{SEEDS_MOST} seeds", "found": ""}


def hunts(where: str) -> Iterator[tuple[Outcome, str]]:
    """Runs in which its harm may show, those that are named first."""
    from holdfast.entrypoints.simulation.program import HoldfastProgram, RunRequest, outcome_of
    from holdfast.simulator.proof.run import Run
    from holdfast.simulator.proof.scenarios import SCENARIOS
    from tools.crashes import calls_of, deaths_of, outcome_with
    from tools.planted.scripts import SCRIPTS

    program = HoldfastProgram()
    for kind, _, name in (part.rpartition(":") for part in where.split("+")):
        if name in SCENARIOS:
            yield outcome_with(program, SCENARIOS[name]()), f"scenario {name}"
        if kind == "crash":
            for death in deaths_of(calls_of(program, SCENARIOS[name]())):
                yield outcome_with(program, SCENARIOS[name](), death), f"scenario {name}, {death}"
        if kind == "sleep":
            for outcome, words in asleep(program, SCENARIOS[name]()):
                yield outcome, f"scenario {name}, {words}"
        if kind == "script":
            yield Run(program, SCRIPTS[name].setup, SCRIPTS[name].faults()).outcome(), f"script: {name}"
        if kind == "seed":
            yield outcome_of(RunRequest(int(name))), f"seed {name}"
    for seed in range(1, SEEDS_MOST + 1):
        yield outcome_of(RunRequest(seed)), f"seed {seed}"


def asleep(program: Program, setup: Setup) -> Iterator[tuple[Outcome, str]]:
    """Asleep at each call, before it or after its effect, while others take over."""
    from holdfast.simulator.proof.faults import Fault, FaultKind, ScriptedFaults
    from holdfast.simulator.proof.run import Run
    from tools.crashes import calls_of

    for process, call, port, method in calls_of(program, setup):
        for is_after in (False, True):
            faults = ScriptedFaults({(process, call): Fault(FaultKind.PAUSE, SLEEP_SECONDS, is_after)})
            words = f"asleep {'after' if is_after else 'before'} {process}, call {call}: {port}.{method}"
            yield Run(program, setup, faults).outcome(), words


def in_a_child(mutant: Mutant) -> dict[str, Any]:
    command = [sys.executable, "-m", "tools.mutants", "--child", mutant.name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{mutant.name}: {done.stderr.strip().splitlines()[-1] if done.stderr else 'no outcome_of'}")
    answered: dict[str, Any] = json.loads(done.stdout)
    return answered


def row_of(mutant: Mutant, verdict: dict[str, Any]) -> str:
    """Its line of the page."""
    return f"{row_start(mutant)} {verdict['by'] or '**nobody**'} | {verdict['where']} |"


def row_start(mutant: Mutant) -> str:
    """The verdict before a mutant was tried."""
    says = f" ({mutant.says})" if mutant.says else ""
    return f"| {mutant.name}{says} | `{mutant.module.removeprefix('holdfast.')}` |"


def page(found: Sequence[tuple[Mutant, dict[str, Any]]]) -> str:
    rows = [row_of(mutant, verdict) for mutant, verdict in found]
    caught = sum(1 for _, verdict in found if verdict["by"])
    return with_rates(f"{_START}{chr(10).join(rows)}\n\n{caught} of {len(found)} were found.\n")


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--child"]:
        print(json.dumps(hunted(next(m for m in MUTANTS if m.name == arguments[1]))))
        return 0
    chosen = [m for m in MUTANTS if not arguments or m.name in arguments]
    for mutant in chosen:
        with_mistake(mutant, file_of(mutant).read_text(encoding="utf-8"))
    with ThreadPoolExecutor(2) as pool:
        found = []
        for mutant, verdict in zip(chosen, pool.map(in_a_child, chosen), strict=True):
            found.append((mutant, verdict))
            print(f"{mutant.name}: {verdict['by'] or 'NOT FOUND'} ({verdict['where']})", flush=True)
    if not arguments:
        PAGE.write_text(page(found), encoding="utf-8")
    return 0 if all(verdict["by"] for _, verdict in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
