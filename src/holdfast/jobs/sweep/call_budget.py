"""How many calls to GitHub a sweep may make."""

from dataclasses import dataclass


@dataclass
class CallBudget:
    """How many calls to GitHub may still be made. Work that is left over waits for the next sweep."""

    calls: int

    def spend(self) -> bool:
        """Spend one call; False if none is left."""
        if self.calls <= 0:
            return False
        self.calls -= 1
        return True
