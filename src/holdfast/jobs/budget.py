"""How many calls to GitHub a piece of work may make. What is left over waits for the next time."""

from dataclasses import dataclass


@dataclass
class Budget:
    calls: int

    def spend(self) -> bool:
        """Whether one more call may be made; it then counts as made."""
        if self.calls <= 0:
            return False
        self.calls -= 1
        return True
