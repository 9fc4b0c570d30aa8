"""How jobs ended, as a person would count them: ``184 succeeded, 13 failed``."""

from collections.abc import Mapping
from typing import Final

# In this order; GitHub's other words follow as they are.
_WORDS: Final = {
    "success": "succeeded",
    "failure": "failed",
    "timed_out": "timed out",
    "cancelled": "cancelled",
    "skipped": "skipped",
    "startup_failure": "failed to start",
    "action_required": "waiting for an approval",
}


def conclusion_counts(counts: Mapping[str, int]) -> str:
    known = [name for name in _WORDS if name in counts]
    others = sorted(name for name in counts if name not in _WORDS)
    return ", ".join(f"{counts[name]} {_WORDS.get(name) or name.replace('_', ' ')}" for name in [*known, *others])
