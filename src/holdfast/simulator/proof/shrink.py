"""Shrinking: find a minimal set of a run's faults that still breaks the same invariant (delta debugging).

A fault is drawn by its name alone, so leaving one out does not change the others.
"""

from collections.abc import Callable, Sequence

TRIES_MOST = 400


def shrunk(names: Sequence[str], still_breaks: Callable[[Sequence[str]], bool], most: int = TRIES_MOST) -> list[str]:
    """The names that are needed: removing any single one no longer breaks it, unless the tries ran out."""
    needed = list(names)
    groups = 2
    tries = 0
    while needed and tries < most:
        size = max(1, len(needed) // groups)
        for start in range(0, len(needed), size):
            tries += 1
            rest = needed[:start] + needed[start + size :]
            if still_breaks(rest):
                needed, groups = rest, max(2, groups - 1)
                break
            if tries >= most:
                break
        else:
            if size == 1:
                break
            groups = min(len(needed), groups * 2)
    return needed
