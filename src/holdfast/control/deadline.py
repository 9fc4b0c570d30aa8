"""The deadline of an invocation: it starts nothing that it cannot finish.

Near the end it makes no more calls to EC2 or Kubernetes. It may still call the store: to record what a call did, and to
release the lease. The next tick resumes from there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from holdfast.kernel.errors import Retryable
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.kube import ForwardingKube, Kube
from holdfast.ports.machines import ForwardingMachines, Machines

T = TypeVar("T")

# No call to EC2 takes longer, and the store is fast.
CALL_SECONDS: Final = 18.0
# A short invocation reserves at most this share of its time, so that it gets something done.
_SPARED_SHARE: Final = 1 / 3


class OutOfTime(Retryable):
    """The invocation is about to end. Nothing failed: the next tick resumes."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When an invocation ends, by the monotonic clock."""

    clock: Clock
    end_seconds: float
    spare_seconds: float

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> Self:
        spare_seconds = min(CALL_SECONDS, max(0.0, seconds) * _SPARED_SHARE)
        return cls(clock, clock.monotonic_seconds() + seconds, spare_seconds)

    def seconds_left(self) -> float:
        return self.end_seconds - self.clock.monotonic_seconds()

    def instant(self, now: Instant) -> Instant:
        """The deadline on the wall clock, in whole seconds, at least one second after `now`."""
        return now.plus(max(1, math.floor(self.seconds_left())))

    def check(self) -> None:
        """Raise OutOfTime if it is too late to start anything."""
        left = self.seconds_left()
        if left < self.spare_seconds:
            raise OutOfTime(
                f"{max(0.0, left):.0f} s of this invocation are left, too few to start more; the next tick resumes"
            )


class TimedMachines(ForwardingMachines):
    """EC2, which raises OutOfTime instead of starting a call too late."""

    def __init__(self, machines: Machines, deadline: Deadline) -> None:
        super().__init__(machines)
        self._deadline = deadline

    def _forward(self, call: Callable[[], T]) -> T:
        self._deadline.check()
        return call()


class TimedKube(ForwardingKube):
    """Kubernetes, which raises OutOfTime instead of starting a call too late."""

    def __init__(self, kube: Kube, deadline: Deadline) -> None:
        super().__init__(kube)
        self._deadline = deadline

    def _forward(self, call: Callable[[], T]) -> T:
        self._deadline.check()
        return call()
