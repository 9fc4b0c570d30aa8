"""The time that an invocation has: what it begins, it ends before it is stopped.

Near the end no call to EC2 or Kubernetes is begun any more. The store may still be called: what a call brought about is
recorded, and the lease is given back. The next tick goes on from there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar, cast

from msgspec.structs import replace

from holdfast.cluster.hands import Hands
from holdfast.kernel.errors import Retryable
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock

P = TypeVar("P")

# No single call to EC2 takes longer, and the store is quick.
CALL_SECONDS: Final = 18.0
# Of a short invocation, so much at most: it should get something done.
_SPARED_SHARE: Final = 1 / 3


class OutOfTime(Retryable):
    """The invocation is about to end. Nothing failed: the next tick goes on."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When an invocation ends, by a clock that never goes back."""

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
        """The end on the wall clock, in whole seconds; never before the next one."""
        return now.plus(max(1, math.floor(self.seconds_left())))

    def check(self) -> None:
        """OutOfTime when nothing more should be begun."""
        left = self.seconds_left()
        if left < self.spare_seconds:
            raise OutOfTime(
                f"{max(0.0, left):.0f} s are left of this call, too few to begin more; the next tick goes on"
            )

    def hands(self, hands: Hands) -> Hands:
        """The same hands, which begin nothing when it is too late."""
        return replace(hands, machines=self._port(hands.machines), kube=self._port(hands.kube))

    def _port(self, port: P) -> P:
        return cast(P, _InTime(port, self))


class _InTime:
    def __init__(self, port: Any, deadline: Deadline) -> None:
        self._port = port
        self._deadline = deadline

    def __getattr__(self, method: str) -> Callable[..., Any]:
        target = getattr(self._port, method)

        def call(*args: Any, **options: Any) -> Any:
            self._deadline.check()
            return target(*args, **options)

        return call
