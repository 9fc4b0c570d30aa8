"""The clock. A tick reads `now` once."""

from typing import Protocol

from holdfast.kernel.instants import Instant


class Clock(Protocol):
    def now(self) -> Instant:
        """The wall clock. It may jump; safety never depends on it."""
        ...

    def monotonic_seconds(self) -> float:
        """A clock that never goes backwards, for deadlines within one process."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait. Used only between retries of one call: ticks do not sleep."""
        ...
