"""The story of a run: one line for each event. The same seed gives the same story, byte for byte."""

import hashlib
from collections.abc import Iterator

from holdfast.kernel.instants import Instant


class Story:
    """The events of a run, in order: when, which process (or the world), and what."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, str, str]] = []

    def record(self, at: Instant, who: str, what: str) -> None:
        self._lines.append((at.epoch_ms, who, what))

    def __len__(self) -> int:
        return len(self._lines)

    def lines(self, first: int = 0, last: int | None = None) -> Iterator[str]:
        for at_ms, who, what in self._lines[max(0, first) : last]:
            yield f"{Instant(at_ms).iso()[11:23]}  {who:<10} {what}"

    def until(self, position: int, most: int = 40) -> list[str]:
        """The lines before a position, and a few after it."""
        return list(self.lines(position - most, position + 3))

    def digest(self) -> str:
        """A short hash of the whole story."""
        digest = hashlib.sha256()
        for line in self.lines():
            digest.update(line.encode())
        return digest.hexdigest()[:16]
