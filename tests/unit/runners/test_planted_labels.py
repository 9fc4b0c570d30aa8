"""Mistakes planted in how labels become machines are found, each by the test that it names."""

import pytest

from tools.kill_rates import first_failure
from tools.mutants import file_of, with_mistake
from tools.planted.labels import LABELS
from tools.planted.mutant import Mutant

each = pytest.mark.parametrize("mutant", LABELS, ids=lambda mutant: mutant.name)


@each
def test_its_text_is_in_the_code_and_its_replacement_is_valid_python(mutant: Mutant) -> None:
    compile(with_mistake(mutant, file_of(mutant).read_text(encoding="utf-8")), mutant.name, "exec")


@pytest.mark.slow
@each
def test_it_is_found_by_its_test(mutant: Mutant) -> None:
    found = first_failure(mutant, [mutant.where])
    assert found is not None
    assert found.partition("[")[0] == mutant.where.rpartition("::")[2]
