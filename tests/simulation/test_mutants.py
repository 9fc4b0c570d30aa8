"""Mistakes that are planted in the production code are found, by a checker that the page names."""

import re

import pytest

from tools.mutants import PAGE, file_of, in_a_child, with_mistake
from tools.planted import MUTANTS, Mutant

# Found in a scenario without a fault: a second each.
QUICK = [mutant for mutant in MUTANTS if mutant.name in ("the fence does not grow", "the lease lasts an hour")]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_text_is_in_the_code_and_the_mistake_is_python(mutant: Mutant) -> None:
    source = with_mistake(mutant, file_of(mutant).read_text(encoding="utf-8"))
    compile(source, mutant.name, "exec")


def test_a_text_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LookupError, match="must be there once"):
        with_mistake(MUTANTS[0], "something else")


def test_there_are_enough_and_none_is_named_twice() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25


def test_the_page_names_who_found_each() -> None:
    rows = re.findall(r"^\| (.*?)(?: \(.*?\))? \| `.*?` \| (.*?) \| .* \|$", PAGE.read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == [mutant.name for mutant in MUTANTS]
    assert all("nobody" not in by for _, by in rows)


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_a_planted_mistake_is_found(mutant: Mutant) -> None:
    assert in_a_child(mutant)["by"]


@pytest.mark.prove
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m not in QUICK], ids=lambda mutant: mutant.name)
def test_each_planted_mistake_is_found(mutant: Mutant) -> None:
    assert in_a_child(mutant)["by"]
