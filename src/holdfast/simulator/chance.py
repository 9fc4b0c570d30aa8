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
    return drawn_on(mixed(seed, *parts[:-1]), parts[-1])


def mixed(seed: int, *parts: int) -> int:
    """The seed and the first parts of many questions, mixed once for all of them."""
    return mixed_on((seed + 1) * _FIRST & _MASK, *parts)


def mixed_on(mix: int, *parts: int) -> int:
    """More parts, mixed into what was mixed before."""
    for part in parts:
        mix = ((mix ^ (part + 1)) * _SECOND) & _MASK
        mix ^= mix >> 29
    return mix


def drawn_on(mix: int, last: int) -> float:
    """The answer to the question that begins with `mix` and ends with the last part."""
    mix = ((mix ^ (last + 1)) * _SECOND) & _MASK  # as above, and not a call: this is drawn at each call through a port
    mix = ((mix ^ (mix >> 29)) * _FIRST) & _MASK
    return ((mix ^ (mix >> 32)) >> 11) * _UNIT
