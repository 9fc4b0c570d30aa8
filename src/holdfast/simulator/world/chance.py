"""Random numbers by key: the same seed and parts always give the same number.

A sequence of random numbers would not work for faults: leaving one out would shift all that follow, and a run could not
be shrunk.
"""

from typing import Final

_MASK: Final = (1 << 64) - 1
_FIRST: Final = 0x9E3779B97F4A7C15
_SECOND: Final = 0xBF58476D1CE4E5B9
_UNIT: Final = 1.0 / (1 << 53)


def drawn(seed: int, *parts: int) -> float:
    """A number from 0 up to 1 that depends only on the seed and the parts."""
    return drawn_on(mixed(seed, *parts[:-1]), parts[-1])


def mixed(seed: int, *parts: int) -> int:
    """The seed and the first parts of many draws, mixed once."""
    return mixed_on((seed + 1) * _FIRST & _MASK, *parts)


def mixed_on(mix: int, *parts: int) -> int:
    """Mix in more parts."""
    for part in parts:
        mix = ((mix ^ (part + 1)) * _SECOND) & _MASK
        mix ^= mix >> 29
    return mix


def drawn_on(mix: int, last: int) -> float:
    """The draw that begins with `mix` and ends with the last part."""
    mix = ((mix ^ (last + 1)) * _SECOND) & _MASK  # inlined from above: this runs at every port call
    mix = ((mix ^ (mix >> 29)) * _FIRST) & _MASK
    return ((mix ^ (mix >> 32)) >> 11) * _UNIT
