"""The section of docs/mutants.md with kill rates, made from the results that `tools/kill_rates.py` keeps."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.planted.blind import BLIND
from tools.planted.mutant import Mutant

RESULTS: Final = Path(__file__).parent / "planted" / "kill_rates.json"
SEEDS: Final = 60
WAYS: Final = ("unit tests", "scenarios", "seeds")
HEADING: Final = "## Kill rates"
Result = dict[str, str | None]  # what noticed the mistake, by each way, and the commit at which it was tried
_START: Final = """\
<!-- Written by `python -m tools.kill_rates`, from tools/planted/kill_rates.json. -->

Each line of this table is a mistake that was written by reading the production code without its tests, and what notices
it: the unit tests that run the changed lines, the simulator's scenarios and scripts (also with the process killed at
each call), and the seeds 1 to {seeds} with their faults. The three are measured apart. A mistake in an adapter or a
page is outside of what the simulator runs, and can only be noticed by tests. Measured at {commits}.
"""


def measured() -> dict[str, Result]:
    """The results so far, by the name of the mistake."""
    found: dict[str, Result] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return found


def with_rates(page: str) -> str:
    """The page with its section as the results have it; without one if nothing was measured."""
    before = page.partition(f"\n{HEADING}\n")[0]
    section = rates_section(measured())
    return f"{before}\n{section}" if section else before


def rates_section(results: Mapping[str, Result]) -> str:
    mutants = [mutant for mutant in BLIND if mutant.name in results]
    if not mutants:
        return ""
    rows = [_row(mutant, results[mutant.name]) for mutant in mutants]
    start = _START.format(seeds=SEEDS, commits=_commits(results))
    columns = ["| mistake | in | unit tests | scenarios | seeds |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([HEADING, "", start, *rates(mutants, results), "", *columns, *rows]) + "\n"


def rates(mutants: Sequence[Mutant], results: Mapping[str, Result]) -> list[str]:
    modules = simulated_modules()
    reached = [mutant for mutant in mutants if mutant.module in modules]
    lines = ["| noticed by | of all | of those in simulated code |", "| --- | --- | --- |"]
    groups = [*((way, (way,)) for way in WAYS), ("scenarios or seeds", WAYS[1:]), ("any of them", WAYS)]
    return lines + [f"| {name} | {_share(mutants, results, w)} | {_share(reached, results, w)} |" for name, w in groups]


def simulated_modules() -> frozenset[str]:
    """The modules that a simulated run imports. In a process of its own: this one may have imported more."""
    code = "import sys, holdfast.entrypoints.simulation.program; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())


def _row(mutant: Mutant, result: Result) -> str:
    cells = [mutant.name, f"`{mutant.module.removeprefix('holdfast.')}`", *(result[way] or "no" for way in WAYS)]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _commits(results: Mapping[str, Result]) -> str:
    counted = Counter(result["commit"] for result in results.values())
    if len(counted) == 1:
        return f"commit {next(iter(counted))}"
    return "commits " + ", ".join(f"{commit} ({count})" for commit, count in counted.most_common())


def _share(mutants: Sequence[Mutant], results: Mapping[str, Result], ways: Sequence[str]) -> str:
    noticed = sum(1 for mutant in mutants if any(results[mutant.name][way] for way in ways))
    return f"{noticed} of {len(mutants)} ({100 * noticed / max(1, len(mutants)):.0f} %)"
