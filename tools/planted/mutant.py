"""A mistake to plant: a change of the production code's text that an engineer might make, or once made."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake. `old` must be in the module exactly once; `where` is where to look for its harm first."""

    name: str
    module: str
    old: str
    new: str
    # Scenarios, crash:SCENARIO (killed at each of its calls), sleep:SCENARIO (asleep at each), seed:NUMBER,
    # script:NAME (of scripts.py); + between.
    where: str = ""
    says: str = ""
