"""The operating system's clock."""

import time

from holdfast.kernel.instants import Instant


class SystemClock:
    """Implements `holdfast.ports.clock.Clock`."""

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1_000_000)

    def monotonic_seconds(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
