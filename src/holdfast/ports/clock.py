"""Time, as the core asks for it. One tick reads `now` once."""

from typing import Protocol

from holdfast.kernel.instants import Instant


class Clock(Protocol):
    def now(self) -> Instant:
        """The wall clock. It may jump; no safety argument rests on it."""
        ...

    def monotonic_seconds(self) -> float:
        """A clock that never goes back, for deadlines within one process."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait. Used between retries of one call only: ticks do not sleep."""
        ...
