"""Chance that depends on nothing but numbers: the same question gets the same answer, whoever asked before.

A sequence of random numbers would not do for faults: leaving one out would shift all that follow, and a run could not
be shrunk to the faults that matter.
"""

from typing import Final

_MASK: Final = (1 << 64) - 1
_FIRST: Final = 0x9E3779B97F4A7C15
_SECOND: Final = 0xBF58476D1CE4E5B9
_UNIT: Final = 1.0 / (1 << 53)


def drawn(seed: int, *parts: int) -> float:
    """A number from 0 up to 1, by the seed and the parts alone."""
    mixed = (seed + 1) * _FIRST & _MASK
    for part in parts:
        mixed = ((mixed ^ (part + 1)) * _SECOND) & _MASK
        mixed ^= mixed >> 29
    mixed = (mixed * _FIRST) & _MASK
    return ((mixed ^ (mixed >> 32)) >> 11) * _UNIT
