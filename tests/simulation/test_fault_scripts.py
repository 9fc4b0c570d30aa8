"""Each bug that a seed once found has a pinned fault script, or a reason why it has none.

The scripts break nothing today. That each still finds its bug, planted again, is in test_mutants.
"""

import pytest

from holdfast.entrypoints.simulation.program import HoldfastProgram
from holdfast.simulator.proof.run import Run
from tests.simulation.found_seeds import FOUND
from tools.kill_rates_page import HEADING
from tools.mutants import PAGE
from tools.planted import MUTANTS
from tools.planted.scripts import SCRIPTS

# Why a seed has no script. A mistake of a checker has a test in test_checkers or test_job_checkers instead.
WITHOUT = {
    4: "the scenario rerun-by-hand meets it without a fault",
    35: "guarded twice: clean-up reads the node itself before it terminates",
    66: "guarded twice: each target is judged again before it is committed",
    303: "what caused it is not recorded; the mistake 'neither look sees the pods that are leaving' breaks the same",
    454: "a mistake of the checker",
    10571: "a mistake of the checker",
    20405: "a mistake of the checker",
    21041: "a mistake of the checker",
    23287: "a mistake of the checker",
    26958: "a mistake of the checker",
    30607: "a mistake of the checker",
    30306: "no single fault in a world of two jobs meets it",
    202: "no single fault in a world of two jobs meets it",
    10621: "no single fault in a world of two jobs meets it",
    11346: "no single fault in a world of two jobs meets it",
    12283: "no single fault in a world of two jobs meets it",
    14974: "guarded twice: the run's jobs are listed anew before GitHub is asked",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_fault_script_breaks_nothing_today(name: str) -> None:
    script = SCRIPTS[name]
    faults = script.faults()
    outcome = Run(HoldfastProgram(), script.setup, faults).outcome()
    assert [str(violation) for violation, _ in outcome.violations] == []
    assert faults.happened.total() >= len(script.draws) + len(script.calls), "a fault met no call"


def test_every_seed_has_a_script_or_a_reason() -> None:
    scripted = {seed for script in SCRIPTS.values() for seed in script.seeds}
    assert scripted | set(WITHOUT) == set(FOUND)
    assert not scripted & set(WITHOUT)


def test_every_script_finds_the_bug_that_it_is_for() -> None:
    """`make test-real` plants each again and compares with the page."""
    lines = PAGE.read_text(encoding="utf-8").partition(HEADING)[0].splitlines()
    for name in SCRIPTS:
        planted = [mutant.name for mutant in MUTANTS if mutant.where == f"script:{name}"]
        assert planted, name
        for mistake in planted:
            (line,) = [line for line in lines if line.startswith(f"| {mistake} ") or f"| {mistake} (" in line]
            assert line.endswith(f"| script: {name} |")
