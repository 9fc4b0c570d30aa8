"""Mistakes planted in the production code are found, each by a checker that the page names."""

import pytest

from holdfast.simulator.checkers import EVERY
from tools.kill_rates_page import HEADING, WAYS, Result, rates_section, simulated_modules, with_rates
from tools.mutants import PAGE, file_of, in_a_child, row_of, row_start, with_mistake
from tools.planted import MUTANTS, Mutant
from tools.planted.blind import BLIND

# Found in a scenario without a fault: a second each.
QUICK = [mutant for mutant in MUTANTS if mutant.name in ("the fence does not grow", "the lease lasts an hour")]


@pytest.mark.parametrize("mutant", [*MUTANTS, *BLIND], ids=lambda mutant: mutant.name)
def test_the_text_of_a_mistake_is_in_the_code_and_its_replacement_is_valid_python(mutant: Mutant) -> None:
    source = with_mistake(mutant, file_of(mutant).read_text(encoding="utf-8"))
    compile(source, mutant.name, "exec")


def test_a_text_that_is_not_in_the_code_is_an_error() -> None:
    with pytest.raises(LookupError, match="must be there once"):
        with_mistake(MUTANTS[0], "something else")


def test_both_halves_have_enough_mistakes_and_names_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 50
    assert sum(1 for mutant in MUTANTS if mutant.module.startswith("holdfast.jobs")) >= 20


def test_the_page_has_a_line_for_each_mistake_and_names_the_checker_that_found_it() -> None:
    planted = PAGE.read_text(encoding="utf-8").partition(HEADING)[0]
    lines = [line for line in planted.splitlines() if line.startswith("| ")][2:]
    assert len(lines) == len(MUTANTS)
    checkers = {checker.name for checker in EVERY}
    for line, mutant in zip(lines, MUTANTS, strict=True):
        assert line.startswith(row_start(mutant)), "run python -m tools.mutants"
        assert line.removeprefix(row_start(mutant)).split(" | ")[0].strip() in checkers


@pytest.mark.parametrize(
    "mutant",
    [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in MUTANTS],
    ids=[m.name for m in MUTANTS],
)
@pytest.mark.timeout(1800)
def test_a_planted_mistake_is_found_as_the_page_says(mutant: Mutant) -> None:
    assert row_of(mutant, in_a_child(mutant)) in PAGE.read_text().splitlines()


# Kill rates


def test_the_rates_are_counted_from_the_results_and_each_mistake_has_its_line() -> None:
    simulated = simulated_modules()
    inside = next(mutant for mutant in BLIND if mutant.module in simulated)
    outside = next(mutant for mutant in BLIND if mutant.module not in simulated)
    nothing: Result = dict.fromkeys(WAYS)
    results = {
        inside.name: nothing | {"seeds": "MaxKept (seed 3)", "commit": "abc"},
        outside.name: nothing | {"unit tests": "test_a[x|y]", "commit": "abc"},
    }
    section = rates_section(results)
    assert "| seeds | 1 of 2 (50 %) | 1 of 1 (100 %) |" in section
    assert "| unit tests | 1 of 2 (50 %) | 0 of 1 (0 %) |" in section
    assert "| any of them | 2 of 2 (100 %) | 1 of 1 (100 %) |" in section
    assert "Measured at commit abc." in section
    assert "| test_a[x\\|y] | no | no |" in section
    assert rates_section({}) == ""


def test_the_page_has_the_rates_of_the_results_that_are_kept() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_rates(page) == page, "run python -m tools.docs"
