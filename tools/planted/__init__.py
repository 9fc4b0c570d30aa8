"""Mistakes to plant in the production code, one list for each half of it.

Those of `blind.py` that a script is for are planted with the others.
"""

from typing import Final

from tools.planted.blind import BLIND
from tools.planted.cluster import CLUSTER
from tools.planted.found import FOUND
from tools.planted.jobs import JOBS
from tools.planted.mutant import Mutant

__all__ = ["MUTANTS", "Mutant"]
MUTANTS: Final[tuple[Mutant, ...]] = (*CLUSTER, *JOBS, *FOUND, *(mutant for mutant in BLIND if mutant.where))
