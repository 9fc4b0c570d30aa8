"""Measure which mistakes are noticed, and by what: `python -m tools.kill_rates [--jobs N] [NAME…]`.

The mistakes of tools/planted/blind.py were written by reading the code without its tests. Each is tried three times:
against the unit tests that run its lines, against the scenarios (also killed at each call), and against seeds. Each of
the three ends at its first failure. Results are kept in tools/planted/kill_rates.json, each with its commit, so an
interrupted measurement resumes, and docs/mutants.md can be written from them without measuring. Name mistakes to try
them again, or delete the file to start over.

The map from lines to tests is measured once by running the tests under coverage, and kept in build/ as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Final

from tools.kill_rates_page import RESULTS, SEEDS, WAYS, Result, measured, with_rates
from tools.mutants import PAGE, ROOT, Planted, file_of, with_mistake
from tools.planted.blind import BLIND
from tools.planted.mutant import Mutant

BUILD: Final = ROOT / "build"
MAP: Final = BUILD / "coverage-by-test"
_TESTS: Final = ("-m", "not slow and not prove", "-p", "no:randomly", "-p", "no:cacheprovider", "-q")


def covering_tests(mutant: Mutant) -> list[str]:
    """The tests that run a line which the mistake changes."""
    from coverage import CoverageData

    source = file_of(mutant).read_text(encoding="utf-8")
    first = source[: source.index(mutant.old)].count("\n") + 1
    lines = range(first, first + mutant.old.count("\n") + 1)
    data = CoverageData(str(MAP))
    data.read()
    by_line = data.contexts_by_lineno(str(file_of(mutant)))
    contexts = {context for line in lines for context in by_line.get(line, ()) if context}
    return sorted({context.partition("|")[0] for context in contexts})


def measure_map() -> None:
    """Run the tests once, and record which test ran which line."""
    BUILD.mkdir(exist_ok=True)
    part = MAP.with_suffix(".part")
    settings = ["--cov=holdfast", "--cov-context=test", "--cov-report=", "--timeout=1200"]
    command = [sys.executable, "-m", "pytest", "-n", "2", *_TESTS, *settings]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"COVERAGE_FILE": str(part)}, check=True)
    part.rename(MAP)


def failing_test(mutant: Mutant) -> str | None:
    """The first of the covering tests that fails."""
    chosen = covering_tests(mutant)
    return first_failure(mutant, chosen) if chosen else None


def first_failure(mutant: Mutant, chosen: Sequence[str]) -> str | None:
    """The first of these tests that fails, in a copy of the source with the mistake in it."""
    with TemporaryDirectory() as made:
        copy = Path(made) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        changed = copy / file_of(mutant).relative_to(ROOT / "src")
        changed.write_text(with_mistake(mutant, changed.read_text(encoding="utf-8")), encoding="utf-8")
        listed = Path(made) / "tests.txt"
        listed.write_text("\n".join(chosen), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", *_TESTS, "--tb=no", f"@{listed}"]
        environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode not in (0, 1) or (done.returncode and not failed):
        raise RuntimeError(
            f"{mutant.name}: pytest ended with {done.returncode}: {done.stdout[-400:]}{done.stderr[-400:]}"
        )
    return failed[0].split(" ")[1].rpartition("::")[2] if failed else None


def simulated(mutant: Mutant, way: str) -> str | None:
    """In this process: plant it, and name the first checker that notices."""
    import logging

    logging.disable(logging.CRITICAL)
    sys.meta_path.insert(0, Planted(mutant))
    return next(_found(way), None)


def _found(way: str) -> Iterator[str]:
    from holdfast.entrypoints.simulation.program import HoldfastProgram, RunRequest, outcome_of
    from holdfast.simulator.proof.run import Run
    from holdfast.simulator.proof.scenarios import SCENARIOS
    from tools.crashes import calls_of, distinct_deaths, outcome_with
    from tools.planted.scripts import SCRIPTS

    program = HoldfastProgram()
    if way == "seeds":
        for seed in range(1, SEEDS + 1):
            outcome = outcome_of(RunRequest(seed))
            yield from (f"{name} (seed {seed})" for name in outcome.invariants)
        return
    for name, script in SCRIPTS.items():
        yield from (f"{found} ({name})" for found in Run(program, script.setup, script.faults()).outcome().invariants)
    for name, setup in SCENARIOS.items():
        yield from (f"{found} ({name})" for found in outcome_with(program, setup()).invariants)
    for name, setup in SCENARIOS.items():
        for death in distinct_deaths(calls_of(program, setup())):
            yield from (f"{found} ({name}, killed)" for found in outcome_with(program, setup(), death).invariants)


def in_a_child(mutant: Mutant, way: str) -> str | None:
    command = [sys.executable, "-m", "tools.kill_rates", "--child", mutant.name, way]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        # A mistake may also end the simulated world itself; that is noticed, too.
        return f"{done.stderr.strip().splitlines()[-1].partition(':')[0]} raised"
    found: str | None = json.loads(done.stdout)
    return found


def tried(mutant: Mutant) -> Result:
    found = {way: failing_test(mutant) if way == "unit tests" else in_a_child(mutant, way) for way in WAYS}
    return found | {"commit": _commit()}


def _commit() -> str:
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--child"]:
        print(json.dumps(simulated(next(m for m in BLIND if m.name == arguments[1]), arguments[2])))
        return 0
    jobs = int(arguments[1]) if arguments[:1] == ["--jobs"] else 2
    names = arguments[2:] if arguments[:1] == ["--jobs"] else arguments
    for mutant in BLIND:
        with_mistake(mutant, file_of(mutant).read_text(encoding="utf-8"))
    if not MAP.exists():
        measure_map()
    results = measured()
    writing = Lock()

    def measure(mutant: Mutant) -> None:
        found = tried(mutant)
        with writing:
            results[mutant.name] = found
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(f"{len(results)}/{len(BLIND)} {mutant.name}: {found}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(measure, [m for m in BLIND if m.name in names or (not names and m.name not in results)]))
    PAGE.write_text(with_rates(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
